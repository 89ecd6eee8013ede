"""Attention on the CPU computes with the threads that torch has: none are started beside them, and their number is
torch's at each call. A forked child, where torch's would hang, has its own."""

import ctypes
import os
import signal
import threading
from pathlib import Path

import attune
import pytest
import torch
from attune import c_api, torch_openmp
from attune.describe import library
from torch.utils.data import DataLoader, Dataset

pytestmark = pytest.mark.skipif(not torch.backends.openmp.is_available(), reason="this torch has no OpenMP")


@pytest.fixture(autouse=True)
def restored():
    """Other tests have the context and the number of threads that they had."""
    before = torch.get_num_threads()
    library.cache_clear()
    yield
    torch.set_num_threads(before)
    library.cache_clear()


@pytest.fixture
def regions(monkeypatch):
    """The parallel regions that Attune starts, each with its number of threads and flags."""
    found = torch_openmp.find()
    assert found is not None
    Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    real, started = Body(found.gomp_parallel), []

    @Body
    def spy(*arguments):
        started.append(arguments[2:])
        real(*arguments)

    address = ctypes.cast(spy, ctypes.c_void_p).value
    monkeypatch.setattr(torch_openmp, "find", lambda: found._replace(gomp_parallel=address))
    yield started


def inputs(dtype=torch.float32):
    return torch.randn(3, 1, 8, 128, 64).to(dtype)


def bits(tensor):
    """Without an operation of torch, which could start a region in a forked child."""
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)


def threads_of_process():
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def do_something_parallel():
    torch.ones(1 << 20).exp_()


def succeeds_in_a_fork(work):
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a hang ends it
        succeeded = False
        try:
            succeeded = work()
        finally:
            os._exit(0 if succeeded else 1)
    return os.waitpid(child, 0)[1] == 0


def test_the_runtime_is_the_one_that_torch_calls():
    omp_get_max_threads = ctypes.CFUNCTYPE(ctypes.c_int)(torch_openmp.find().omp_get_max_threads)
    for threads in (3, 1, 2):
        torch.set_num_threads(threads)
        assert omp_get_max_threads() == threads


def test_no_thread_is_started_beside_those_of_torch(regions):
    torch.set_num_threads(3)
    do_something_parallel()
    q, k, v = inputs()
    before = threads_of_process()
    attune.sdpa(q, k, v)
    assert threads_of_process() == before
    assert regions and set(regions) == {(0, 0)}


def test_the_number_of_threads_is_that_of_torch_at_each_call(regions):
    q, k, v = inputs()
    for threads in (2, 1, 3):
        torch.set_num_threads(threads)
        regions.clear()
        attune.sdpa(q, k, v)
        assert bool(regions) == (threads > 1)
        assert f"\nthreads: {threads}\n" in attune.explain(q, k, v, layout="bhsd")


@pytest.mark.parametrize("threads", [1, 3])
def test_a_new_thread_of_python_has_the_number_of_torch_too(regions, threads):
    torch.set_num_threads(threads)
    q, k, v = inputs()
    attune.sdpa(q, k, v)
    regions.clear()
    thread = threading.Thread(target=attune.sdpa, args=(q, k, v))
    thread.start()
    thread.join()
    assert bool(regions) == (threads > 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_bits_are_those_of_the_own_pool(dtype, monkeypatch):
    q, k, v = inputs(dtype)
    torch.set_num_threads(3)
    shared = attune.sdpa(q, k, v, is_causal=True)
    assert library().openmp is not None
    monkeypatch.setattr(torch_openmp, "find", lambda: None)
    library.cache_clear()
    own = attune.sdpa(q, k, v, is_causal=True)
    assert library().openmp is None
    assert bits(own) == bits(shared)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_forked_child_does_not_hang(regions, threads):
    torch.set_num_threads(3)
    do_something_parallel()
    q, k, v = inputs()
    expected = bits(attune.sdpa(q, k, v))

    def work():
        torch.set_num_threads(threads)  # which may start some for other purposes
        regions.clear()
        before = threads_of_process()
        same = bits(attune.sdpa(q, k, v)) == expected
        return same and not regions and len(threads_of_process() - before) == threads - 1

    assert succeeds_in_a_fork(work)


def test_a_forked_child_with_a_context_of_its_own_does_not_hang():
    torch.set_num_threads(3)
    do_something_parallel()
    q, k, v = inputs()
    expected = bits(attune.sdpa(q, k, v))

    def work():
        library.cache_clear()
        return bits(attune.sdpa(q, k, v)) == expected and library().openmp is None

    assert succeeds_in_a_fork(work)


class Attended(Dataset):
    def __init__(self):
        self.inputs = inputs()

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return attune.sdpa(*self.inputs)


def test_workers_of_a_data_loader_can_call_it():
    torch.set_num_threads(3)
    do_something_parallel()
    data = Attended()
    expected = bits(data[0])
    loader = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [bits(output) for output in loader] == [expected] * 4


def test_where_torch_has_no_such_runtime_the_own_pool_serves(monkeypatch):
    monkeypatch.setattr(torch.backends.openmp, "is_available", lambda: False)
    assert torch_openmp.find() is None
    q, k, v = inputs()
    torch.testing.assert_close(attune.sdpa(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v))
    assert library().openmp is None


def test_another_runtime_than_that_of_torch_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert torch_openmp.find() is None


def test_a_runtime_that_is_not_visible_to_all_is_found_through_torch(monkeypatch):
    expected, load = torch_openmp.find(), ctypes.CDLL

    def hide(path, mode):
        if path is None:
            raise OSError("nothing is visible")
        return load(path, mode=mode)

    monkeypatch.setattr(ctypes, "CDLL", hide)
    assert torch_openmp.find() == expected


def test_a_library_that_torch_does_not_have_is_no_error(monkeypatch):
    def refuse(path, mode):
        raise OSError(f"{path} is not loaded")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert torch_openmp.find() is None


def test_the_library_refuses_half_a_runtime():
    with pytest.raises(attune.InvalidArgument, match="omp_get_max_threads is NULL and "):
        c_api.Library(c_api.library_path(), openmp=c_api.OpenMP(1, 0))
