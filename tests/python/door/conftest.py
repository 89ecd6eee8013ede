"""Tests on real torch. Those that need a GPU skip with that reason where torch finds none."""

import os

# oneDNN takes AMX for granted on some virtual machines that lack its palette, and dies in bf16 matrix products.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# Inductor would start a process for each CPU, every one of which imports torch, for a handful of kernels.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import pytest
import torch


@pytest.fixture
def gpu(record_property):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU, and torch finds none")
    record_property("gpu", "used")
    return torch.device("cuda")


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    return request.getfixturevalue("gpu") if request.param == "cuda" else torch.device("cpu")


@pytest.fixture
def training_device(device):
    """One with a backward."""
    import attune

    x = torch.zeros(1, 1, 1, 8, device=device, requires_grad=True)
    if "gradients: refused" in attune.explain(x, x, x):
        pytest.skip("this GPU has no backward kernel")
    return device


@pytest.fixture
def best_device(request):
    """For what takes long and is seen on the CPU where there is no GPU, as in CI."""
    return request.getfixturevalue("gpu") if torch.cuda.is_available() else torch.device("cpu")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)
