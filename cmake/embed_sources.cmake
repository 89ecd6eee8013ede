# Writes OUTPUT, a C++ file that holds the text of FILES (paths relative to REPO) and the compiler version of
# kernels/compiler.toml. Run as: cmake -DREPO=... -DOUTPUT=... -DFILES=a,b,... -P embed_sources.cmake
file(STRINGS ${REPO}/kernels/compiler.toml line REGEX "^nvrtc *=")
string(REGEX REPLACE "^nvrtc *= *\"([^\"]*)\".*" "\\1" version "${line}")
if(NOT version MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$")
  message(FATAL_ERROR "kernels/compiler.toml: no line nvrtc = \"MAJOR.MINOR.PATCH\"")
endif()

string(REPLACE "," ";" FILES "${FILES}")
file(WRITE ${OUTPUT}.part "// Made by cmake/embed_sources.cmake.\n#include \"jit/embedded.hpp\"\n\nnamespace attune::jit {\n\n"
  "const char measured_nvrtc_version[] = \"${version}\";\n\nconst EmbeddedFile embedded_files[] = {\n")
foreach(path IN LISTS FILES)
  file(READ ${REPO}/${path} text)
  string(FIND "${text}" ")attune_embedded\"" closes)
  if(NOT closes EQUAL -1)
    message(FATAL_ERROR "${path} holds the delimiter its text is embedded with")
  endif()
  file(APPEND ${OUTPUT}.part "    {\"${path}\", R\"attune_embedded(${text})attune_embedded\"},\n")
endforeach()
file(APPEND ${OUTPUT}.part "    {nullptr, nullptr},\n};\n\n}  // namespace attune::jit\n")
file(RENAME ${OUTPUT}.part ${OUTPUT})
