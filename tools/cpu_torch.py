"""Installs a torch from PyPI for tests on the CPU: python3 tools/cpu_torch.py BUILD NAME, with the packages of
tools/torch-versions/NAME.txt, as BUILD/torch/NAME.

PyPI's torch for Linux is the build for CUDA. Its CUDA libraries are packages of 2 GB, which it loads and, on a machine
without a GPU, calls for no more than to hear that there is none. They are left out; libraries whose functions all
return 0 take their places.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = sorted((Path(__file__).resolve().parent / "torch-versions").glob("*.txt"))
OF_CUDA = re.compile(r"(lib|__)?(cu|nv|nccl)")  # libraries and functions
STANDIN = "libabsent.so"  # holds the functions; the loader takes a library by name, and any symbol from any library


def output_of(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def missing_libraries(libraries: list[Path]) -> list[str]:
    needed = set()
    for library in libraries:
        needed.update(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", library)))
    return sorted(name for name in needed - {each.name for each in libraries} if OF_CUDA.match(name))


def missing_symbols(libraries: list[Path]) -> list[str]:
    wanted, defined = set(), set()
    for library in libraries:
        for line in output_of("nm", "-D", library).splitlines():
            kind, name = line.split()[-2:]
            if kind == "U" and OF_CUDA.match(name):
                wanted.add(name.split("@")[0])
            elif kind not in "Uwv":
                defined.add(name.split("@")[0])
    return sorted(wanted - defined)


def link(output: Path, *arguments: str | Path) -> None:
    options = ["-shared", "-nostdlib", f"-Wl,-soname,{output.name}", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(["cc", *options, "-o", output, *arguments], check=True)


def add_standins(libs: Path) -> None:
    libraries = sorted(libs.glob("*.so*"))
    names, symbols = missing_libraries(libraries), missing_symbols(libraries)
    source = libs / "absent.s"
    labels = "".join(f'.globl "{name}"\n"{name}":\n' for name in symbols)
    source.write_text(f'.text\n{labels}xorl %eax, %eax\nret\n.section .note.GNU-stack,"",@progbits\n')
    link(libs / STANDIN, source)
    for name in names:
        link(libs / name, "-Wl,--no-as-needed", libs / STANDIN, "-xc", "/dev/null")


def folder(build: Path, name: str) -> Path:
    return build / "torch" / name


def is_installed(build: Path, name: str) -> bool:
    kept = folder(build, name) / "requirements.txt"
    return kept.is_file() and kept.read_text() == requirements(name).read_text()


def requirements(name: str) -> Path:
    return next(path for path in REQUIREMENTS if path.stem == name)


def install(build: Path, name: str) -> None:
    place = folder(build, name)
    shutil.rmtree(place, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", place]
    subprocess.run([*pip, "-r", requirements(name)], check=True)
    add_standins(place / "torch/lib")
    shutil.copy(requirements(name), place / "requirements.txt")  # last: what is half installed is installed again


if __name__ == "__main__":
    install(Path(sys.argv[1]), sys.argv[2])
