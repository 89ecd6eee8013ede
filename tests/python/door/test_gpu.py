"""What only a GPU can show: the report's shapes beside torch's own backends, random problems, graphs, streams."""

import random
import threading

import attune
import pytest
import torch
from float64 import complaint, relative_rms, truth
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.usefixtures("gpu")

REPORTS7 = [
    (1, 8, 128, False),
    (1, 8, 256, False),
    (1, 8, 512, False),
    (1, 8, 512, True),
    (2, 8, 1024, True),
    (1, 8, 2048, False),
    (1, 8, 2048, True),
]
REPORTS5 = [
    (batch, heads, length, causal)
    for batch, heads, length in ((1, 8, 512), (2, 8, 512), (1, 8, 1024), (1, 4, 2048), (4, 16, 256))
    for causal in (False, True)
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("batch, heads, length, causal", sorted({*REPORTS7, *REPORTS5}))
def test_the_shapes_of_the_reports(batch, heads, length, causal, dtype):
    q, k, v = (torch.randn(batch, heads, length, 64, device="cuda", dtype=dtype) for _ in range(3))
    out = attune.sdpa(q, k, v, is_causal=causal)
    seen = [x.transpose(1, 2) for x in (q, k, v)]
    expected = truth(*seen, causal="top-left" if causal else None)
    assert complaint(out.transpose(1, 2), expected) == ""
    if dtype == torch.float16:
        error = (out.transpose(1, 2).double() - expected.out).abs()
        assert error[expected.out.abs() <= 1].max() <= 1e-3
    errors = []
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            peer = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        unit = torch.finfo(dtype).eps
        torch.testing.assert_close(out, peer, rtol=unit, atol=2 * unit)
        errors.append(relative_rms(peer.transpose(1, 2), expected.out))
    # The math backend computes in float32, which no fused one does.
    assert relative_rms(out.transpose(1, 2), expected.out) <= 1.1 * errors[0]


def random_problem(draw: random.Random) -> tuple[list, dict]:
    def length():
        return draw.choice([draw.randint(1, 200), draw.choice([64, 128, 256]) + draw.randint(-2, 2), 513])

    dtype = draw.choice([torch.float16, torch.bfloat16, torch.float32])
    batch, kv_heads = draw.choice([1, 1, 2, 3]), draw.choice([1, 2, 3])
    heads = kv_heads * draw.choice([1, 1, 2, 4])
    rows, keys, dim = length(), length(), draw.choice([16, 40, 64, 64, 80, 96, 128, 128, 192, 256])
    dim_v = dim if draw.random() < 0.8 else draw.choice([32, 64, 128])
    storage = draw.choice(["bshd", "bhsd"])

    def tensor(rows, heads, dim):
        if storage == "bhsd":
            return torch.randn(batch, heads, rows, dim, device="cuda", dtype=dtype).transpose(1, 2)
        return torch.randn(batch, rows, heads, dim, device="cuda", dtype=dtype)

    def score_shape():
        return tuple(extent if draw.random() < 0.6 else 1 for extent in (batch, heads, rows, keys))

    options = {}
    if draw.random() < 0.5:
        options["causal"] = draw.choice(["top-left", "bottom-right"])
    if draw.random() < 0.25:
        options["window"] = (draw.randint(-1, 70), draw.randint(-1, 70))
    if draw.random() < 0.15:
        options["softcap"] = draw.choice([1.0, 5.0, 30.0])
    if draw.random() < 0.25:
        options["sink"] = torch.randn(heads, device="cuda")
    if draw.random() < 0.2:
        options["bias"] = torch.randn(score_shape(), device="cuda", dtype=draw.choice([dtype, torch.float32]))
    if draw.random() < 0.2:
        options["mask"] = torch.rand(score_shape(), device="cuda") > 0.3
    if draw.random() < 0.15:
        options["scale"] = draw.choice([0.0, 0.125, -0.25])
    return [tensor(rows, heads, dim), tensor(keys, kv_heads, dim), tensor(keys, kv_heads, dim_v)], options


@pytest.mark.parametrize("seed", range(100))
def test_random_problems(seed):
    torch.manual_seed(seed)
    inputs, options = random_problem(random.Random(seed))
    out, lse = attune.attention(*inputs, return_lse=True, **options)
    assert complaint(out, truth(*inputs, **options), lse) == "", f"seed {seed}"


def tensors(dtype=torch.bfloat16, rows=256, heads=8, dim=64):
    return [torch.randn(1, rows, heads, dim, device="cuda", dtype=dtype) for _ in range(3)]


def test_a_captured_call_follows_its_inputs():
    q, k, v = tensors()
    attune.attention(q, k, v, causal="top-left")  # what is loaded now need not be loaded in the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attune.attention(q, k, v, causal="top-left")
    for _ in range(3):
        for x in (q, k, v):
            x.normal_()
        graph.replay()
        assert torch.equal(out, attune.attention(q, k, v, causal="top-left"))


def test_a_compiled_block_with_cuda_graphs():
    def block(q, k, v):
        return attune.attention(q * 0.5, k, v, causal="top-left") + 1

    q, k, v = tensors()
    torch.compiler.reset()
    compiled = torch.compile(block, fullgraph=True, mode="reduce-overhead")
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(q, k, v), block(q, k, v), rtol=0, atol=2e-2)


def test_a_first_call_inside_a_capture_is_an_error_and_not_a_hang():
    q, k, v = tensors(rows=257, heads=3)
    with pytest.raises(attune.AttuneError, match="graph capture"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        attune.attention(q, k, v)
    torch.cuda.synchronize()
    assert complaint(attune.attention(q, k, v), truth(q, k, v)) == ""


def test_runs_on_the_current_stream():
    q, k, v = tensors()
    expected = attune.attention(q, k, v)
    late = [torch.full_like(x, float("nan")) for x in (q, k, v)]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for place, x in zip(late, (q, k, v)):
            place.copy_(x)
        out = attune.attention(*late)
    stream.synchronize()
    assert torch.equal(out, expected)


def test_many_threads_and_streams():
    inputs = [tensors(rows=rows) for rows in (64, 128, 200, 256)]
    expected = [attune.attention(*each) for each in inputs]
    torch.cuda.synchronize()
    wrong = []

    def work(each, result):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                out = attune.attention(*each)
            torch.cuda.current_stream().synchronize()
            if not torch.equal(out, result):
                wrong.append(each[0].shape)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_device_is_that_of_the_tensors():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    first = tensors()
    second = [x.to("cuda:1") for x in first]
    for q, k, v in 3 * [first, second]:
        for current in range(2):
            with torch.cuda.device(current):
                out = attune.attention(q, k, v)
            assert out.device == q.device and complaint(out, truth(q, k, v)) == ""
    with pytest.raises(attune.InvalidArgument, match="k is on cuda:1"):
        attune.attention(first[0], *second[1:])


def test_offsets_that_are_not_aligned():
    flat = torch.randn(3 * 256 * 8 * 64 + 1, device="cuda", dtype=torch.float16)[1:]
    q, k, v = flat.view(3, 1, 256, 8, 64)
    assert complaint(attune.attention(q, k, v), truth(q, k, v)) == ""


def test_as_torchs_flash_implementation():
    registry = torch.nn.attention
    if not hasattr(registry, "activate_flash_attention_impl"):
        pytest.skip(f"torch {torch.__version__} has no registry of flash implementations")
    q, k, v = (torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def flash(*inputs):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return functional.scaled_dot_product_attention(*inputs, is_causal=True)

    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    flash(*leaves).sum().backward()
    gradients = [x.grad for x in leaves]
    attune.register_flash_impl()
    registry.activate_flash_attention_impl("attune")
    try:
        expected = attune.attention(q, k, v, causal="bottom-right", layout="bhsd", return_lse=True)[0]
        assert torch.equal(flash(q, k, v), expected)
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        flash(*leaves).sum().backward()
        for leaf, gradient in zip(leaves, gradients):
            torch.testing.assert_close(leaf.grad, gradient, rtol=0, atol=5e-2)
    finally:
        registry.restore_flash_attention_impl()
    assert registry.current_flash_attention_impl() is None
    flash(q, k, v)
