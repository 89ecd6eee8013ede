"""The calls of real models in the lab: what the reference says, what Attune is told, and what each peer of torch is
asked for, on a CPU. SDPA's own choice and its plain backend stand in for the GPU's, FlexAttention runs uncompiled, and
varlen_attn, which has no CPU kernel, is a double with its interface."""

import ctypes
import sys
import types

import pytest
import torch
from attune import c_api
from attune.c_api import library_path
from attune.lab.attune_library import AttuneLibrary, arguments_of, describe, outputs_of
from attune.lab.errors import Absent
from attune.lab.flex import Flex
from attune.lab.reference import Reference
from attune.lab.sdpa import Sdpa, SdpaDefault
from attune.lab.tensors import Tensors
from attune.lab.varlen import Varlen
from models import model_calls, small, with_lengths, without

CPU = torch.device("cpu")
CALLS = list(dict.fromkeys(small(call, "f32") for call in model_calls()))
OTHERS = [
    "fwd b2 h2/1 q9 k13 d8/5 f32 causal-tl w3,-1 sink cap2 bhsd",
    "fwd b2 h2/1 q13 k9 d8 f32 causal-br w-1,0",
    "fwd b2 h2/1 q9 k13 d8 f32 w2,1",
    "fwd b2 h2/1 q9 k9 d8 f32 causal-tl bias=b1qk mask=1h11",
    "fwd b3 h2/2 q9 k13 d8 f32 causal-br used-q used-k bias=1h1k:f32",
    "fwd b3 h2/1 q9 k9 d8 f32 w3,2 var=20,20",
    "fwd b3 h2/1 q9 k9 d8 f32 causal-br var=22,22 bias=bhqk mask=b1qk bhsd",
]
ALL = [*CALLS, *(with_lengths(text) for text in OTHERS)]


def names(problems):
    return [problem.text for problem in problems]


@pytest.fixture
def judge():
    """The complaint about what `contender` computes for `asked`, where it was told `told`; "" where it is right."""

    def complaint(contender, asked, told=None):
        with torch.no_grad():
            tensors = Tensors(torch, asked, CPU, 1)
            bound = contender.bind(torch, told or asked, tensors)
            with bound.around():
                output = bound.output_of(bound.call())
            return Reference(torch, asked, tensors).check(output, bound.lse, asked.gate.for_peers()).complaint

    return complaint


class AttuneOnTheCpu:
    """As the lab's contender calls it on a GPU."""

    def __init__(self):
        self._library = AttuneLibrary(str(library_path()))
        self._context = ctypes.c_void_p()
        options = c_api.Options(struct_size=ctypes.sizeof(c_api.Options), threads=1)
        assert self._library.functions.attune_create(ctypes.byref(options), ctypes.byref(self._context)) == c_api.OK

    def run(self, problem, tensors):
        functions = self._library.functions
        output, lse = outputs_of(torch, problem, tensors)
        desc = describe(problem, tensors, output, 0)
        desc.device_kind = c_api.CPU
        size = ctypes.c_uint64()
        status = functions.attune_workspace_bytes(self._context, ctypes.byref(desc), ctypes.byref(size))
        assert status == c_api.OK, self._library.last_error()
        workspace = torch.empty(size.value + c_api.WORKSPACE_ALIGNMENT, dtype=torch.uint8)
        workspace = workspace[-workspace.data_ptr() % c_api.WORKSPACE_ALIGNMENT :]
        args = arguments_of(tensors, output, lse, workspace, size.value)
        status = functions.attune_forward(self._context, ctypes.byref(desc), ctypes.byref(args), None)
        assert status == c_api.OK, self._library.last_error()
        return output, lse


@pytest.mark.parametrize("problem", ALL, ids=names(ALL))
def test_the_reference_and_attune_agree_about_every_feature(problem):
    """Attune's CPU kernels are checked against another reference, in C++."""
    with torch.no_grad():
        tensors = Tensors(torch, problem, CPU, 1)
        found = Reference(torch, problem, tensors).check(*AttuneOnTheCpu().run(problem, tensors), problem.gate)
    assert found.complaint == ""
    assert found.rel_rms > 0


def can_be_said_to_sdpa(problem):
    return not (problem.softcap or problem.sink or problem.packed)


SAYABLE = [problem for problem in ALL if can_be_said_to_sdpa(problem)]
UNSAYABLE = [problem for problem in ALL if not can_be_said_to_sdpa(problem)]


@pytest.mark.parametrize("problem", SAYABLE, ids=names(SAYABLE))
def test_sdpa_is_asked_for_the_same(judge, problem):
    if torch.__version__.startswith("2.4") and problem.heads_q != problem.heads_kv:
        pytest.skip("torch 2.4's SDPA has no grouped heads")
    assert judge(Sdpa("math", "MATH"), problem) == ""
    assert judge(SdpaDefault(), problem) == ""


@pytest.mark.parametrize("problem", UNSAYABLE, ids=names(UNSAYABLE))
def test_sdpa_is_absent_where_no_mask_can_say_it(judge, problem):
    with pytest.raises(Absent, match=r"torch's SDPA has no (softcap|sinks|packed sequences)"):
        judge(Sdpa("math", "MATH"), problem)


def options_of(monkeypatch, text):
    problem = with_lengths(text)
    given = {}
    double = lambda *_, **options: given.update(options)  # noqa: E731
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", double)
    Sdpa("math", "MATH").bind(torch, problem, Tensors(torch, problem, CPU, 1)).call()
    return given


def test_sdpa_gets_is_causal_where_that_is_exact(monkeypatch):
    for text in ("q8 k8 d8 f32 causal-br", "q8 k9 d8 f32 causal-tl"):
        given = options_of(monkeypatch, f"fwd b1 h2 {text}")
        assert given["is_causal"] and "attn_mask" not in given
    for text in ("q8 k9 d8 f32 causal-br", "q8 k8 d8 f32 causal-br used-k", "q8 k8 d8 f32 causal-br mask=111k"):
        given = options_of(monkeypatch, f"fwd b1 h2 {text}")
        assert not given["is_causal"] and given["attn_mask"].dtype == torch.bool


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("d8 bf16 mask=b11k", (2, 1, 1, 8), torch.bool),
        ("d8 bf16 causal-br w3,0", (1, 1, 8, 8), torch.bool),
        ("d8 bf16 used-k", (2, 1, 1, 8), torch.bool),
        ("d8 bf16 causal-br mask=b11k", (2, 1, 8, 8), torch.bool),
        ("d8 bf16 bias=1hqk", (1, 4, 8, 8), torch.bfloat16),
        ("d8 bf16 bias=1h1k:f32", (1, 4, 1, 8), torch.bfloat16),
        ("d8 f16 causal-br bias=1h1k", (1, 4, 8, 8), torch.float16),
        ("d8 f16 bias=1hqk mask=b11k", (2, 4, 8, 8), torch.float16),
    ],
)
def test_the_mask_is_no_larger_than_it_has_to_be(monkeypatch, text, shape, dtype):
    mask = options_of(monkeypatch, f"fwd b2 h4 q8 k8 {text}")["attn_mask"]
    assert (mask.shape, mask.dtype) == (shape, dtype)


# What a peer could forget, and the feature that its problem has.
FORGOTTEN = [
    ("causal-br", {"causal": ""}),
    ("w4,2", {"window": (-1, 2)}),
    ("w4,2", {"window": (4, -1)}),
    ("cap2", {"softcap": 0.0}),
    ("sink", {"sink": False}),
    ("bias=bhqk", {"bias": ""}),
    ("mask=b11k", {"mask": ""}),
    ("mask=b1qk", {"mask": ""}),
    ("used-k", {"used_k": False}),
    ("causal-br used-q", {"used_q": False}),
]


def plain_attention(torch, problem, tensors):
    """Every feature of a dense problem, in a few lines of float64."""
    p, t = problem, tensors
    q, k, v = (each.transpose(1, 2).double() for each in (t.q, t.k, t.v))
    k, v = (each.repeat_interleave(p.heads_q // p.heads_kv, 1) for each in (k, v))
    scores = q @ k.mT * p.softmax_scale
    if p.softcap:
        scores = p.softcap * torch.tanh(scores / p.softcap)
    if p.bias:
        scores = scores + t.bias.double()
    rows, keys = torch.arange(p.seq_q).view(-1, 1), torch.arange(p.seq_k)
    for entry in range(p.batch):
        used_q = p.lengths.used_q[entry] if p.used_q else p.seq_q
        used_k = p.lengths.used_k[entry] if p.used_k else p.seq_k
        away = keys - rows - (0 if p.causal == "causal-tl" else used_k - used_q)
        hidden = keys >= used_k
        if p.causal:
            hidden = hidden | (away > 0)
        if p.window[0] >= 0:
            hidden = hidden | (away < -p.window[0])
        if p.window[1] >= 0:
            hidden = hidden | (away > p.window[1])
        scores[entry].masked_fill_(hidden, -torch.inf)
    if p.mask:
        scores.masked_fill_(t.mask == 0, -torch.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    if p.sink:
        lse = torch.logaddexp(lse, t.sink.double().view(1, -1, 1, 1))
    weights = (scores - lse).exp().nan_to_num(0.0)
    return (weights @ v).transpose(1, 2).float(), lse.squeeze(-1).float()


@pytest.mark.parametrize(("words", "forgets"), FORGOTTEN, ids=[f"{w} {f}" for w, f in FORGOTTEN])
def test_whoever_forgets_a_feature_is_wrong(words, forgets):
    problem = with_lengths(f"fwd b3 h4/2 q12 k16 d8 f32 {words}")
    with torch.no_grad():
        tensors = Tensors(torch, problem, CPU, 1)
        reference = Reference(torch, problem, tensors)
        gate = problem.gate.for_peers()
        right = plain_attention(torch, problem, tensors)
        wrong = plain_attention(torch, without(problem, **forgets), tensors)
        used = problem.lengths.used_q
        if not used:
            assert reference.check(*right, gate).complaint == ""
        assert reference.check(wrong[0], None, gate).complaint.startswith("relative RMS error")


def test_rows_without_keys_are_judged_of_attune_alone():
    problem = with_lengths("fwd b1 h2 q9 k5 d8 f32 causal-br")
    with torch.no_grad():
        tensors = Tensors(torch, problem, CPU, 1)
        reference = Reference(torch, problem, tensors)
        output, lse = plain_attention(torch, problem, tensors)
        assert reference.check(output, lse, problem.gate).complaint == ""
        output[:, :4] = torch.nan
        assert reference.check(output, None, problem.gate).complaint != ""
        assert reference.check(output, None, problem.gate.for_peers()).complaint == ""
        output[:, 4] = torch.nan
        assert reference.check(output, None, problem.gate.for_peers()).complaint != ""


def test_packed_rows_of_no_sequence_are_not_judged():
    problem = with_lengths("fwd b2 h2/1 q9 k9 d8 f32 causal-br var")
    tail = problem.lengths.cu_seqlens_q[-1]
    assert tail < problem.total_q
    with torch.no_grad():
        tensors = Tensors(torch, problem, CPU, 1)
        reference = Reference(torch, problem, tensors)
        output, lse = reference.output.float(), reference.lse.float()
        output[:, tail:] = lse[:, :, tail:] = torch.nan
        assert reference.check(output, lse, problem.gate).complaint == ""
        lse[:, :, tail - 1] += 1
        assert reference.check(output, lse, problem.gate).complaint.startswith("error of the log-sum-exp")


def test_padding_is_on_the_left_of_causal_calls():
    for word, shown in ("causal-br", slice(-3, None)), ("full", slice(0, 3)):
        problem = with_lengths(f"fwd b2 h1 q8 k8 d8 f32 {word} mask=b11k")
        problem = without(problem, lengths=without(problem.lengths, padding=(3, 8)))
        mask = Tensors(torch, problem, CPU, 1).mask
        expected = torch.zeros(8, dtype=torch.uint8)
        expected[shown] = 1
        assert torch.equal(mask[0, 0, 0], expected) and mask[1].all()


@pytest.fixture
def eager_flex(monkeypatch):
    """Without a compiler; FlexAttention itself compiles with a backend that only runs."""
    pytest.importorskip("torch.nn.attention.flex_attention")
    torch.compiler.reset()  # what other tests compiled would make sizes dynamic, softcap among them
    compiled = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function, **how: compiled(function, **how) if "backend" in how else function
    )


FLEX = [p for p in ALL if p.windowed or p.softcap or p.sink or p.packed]


@pytest.mark.parametrize("problem", FLEX, ids=names(FLEX))
def test_flex_is_asked_for_the_same(judge, eager_flex, problem):
    if problem.packed and problem.bias:
        with pytest.raises(Absent, match="of packed sequences is not written for flex here"):
            judge(Flex(True), problem)
    else:
        assert judge(Flex(True), problem) == ""


def test_flex_leaves_to_sdpa_what_that_can_say(judge, eager_flex):
    for text in ("causal-br", "mask=b11k", "bias=1hqk", "used-k", "bias=1hqk mask=b1qk causal-br used-k"):
        problem = with_lengths(f"fwd b2 h2 q8 k8 d8 f32 {text}")
        with pytest.raises(Absent, match="beside torch's SDPA"):
            judge(Flex(True), problem)
        assert judge(Flex(False), problem) == ""


def attend_packed(query, key, value, cu_seq_q, cu_seq_k, window, scale):
    output = torch.zeros(query.shape[0], query.shape[1], value.shape[2])
    for entry in range(len(cu_seq_q) - 1):
        rows, keys = (slice(*cu[entry : entry + 2].tolist()) for cu in (cu_seq_q, cu_seq_k))
        q, k, v = query[rows].double(), key[keys].double(), value[keys].double()
        k, v = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * (scale or q.shape[-1] ** -0.5)
        away = torch.arange(len(k)) - torch.arange(len(q)).view(-1, 1) - (len(k) - len(q))
        for bound, beyond in ((window[0], -away), (window[1], away)):
            if bound >= 0:
                scores.masked_fill_(beyond > bound, -torch.inf)
        output[rows] = torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(0.0), v).float()
    return output


def of_2_10(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None):
    return attend_packed(query, key, value, cu_seq_q, cu_seq_k, (-1, 0 if is_causal else -1), None)


def of_2_11(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)):
    assert max_q == (cu_seq_q[1:] - cu_seq_q[:-1]).max() and max_k == (cu_seq_k[1:] - cu_seq_k[:-1]).max()
    return attend_packed(query, key, value, cu_seq_q, cu_seq_k, window_size, scale)


@pytest.fixture
def varlen_of(monkeypatch):
    def install(function):
        module = types.ModuleType("torch.nn.attention.varlen")
        module.varlen_attn = function
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return install


VARLEN = [
    p for p in ALL
    if (p.packed or p.windowed) and not (p.softcap or p.sink or p.bias or p.mask or p.used_k or p.heads_first)
]  # fmt: skip


@pytest.mark.parametrize("problem", VARLEN, ids=names(VARLEN))
def test_varlen_is_asked_for_the_same(judge, varlen_of, problem):
    varlen_of(of_2_11)
    assert judge(Varlen(), problem) == ""
    varlen_of(of_2_10)
    if problem.windowed:
        with pytest.raises(Absent, match="this torch's varlen_attn has no window"):
            judge(Varlen(), problem)
    else:
        assert judge(Varlen(), problem) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("q8 k8 d8 f32 causal-br", "measured on packed sequences and windows"),
        ("q8 k8 d8 f32 w2,0 sink", "has no sinks"),
        ("q8 k8 d8 f32 w2,0 cap9", "has no softcap"),
        ("q8 k8 d8 f32 w2,0 used-k", "has no used lengths"),
        ("q8 k8 d8 f32 w2,0 mask=b11k", "has no mask"),
        ("q8 k9 d8 f32 w2,0 causal-tl", "aligned bottom-right"),
        ("q8 k8 d8 f32 w2,0 bhsd", "takes rows before heads"),
    ],
)
def test_varlen_is_absent_where_it_has_no_words(judge, varlen_of, text, why):
    varlen_of(of_2_11)
    with pytest.raises(Absent, match=why):
        judge(Varlen(), with_lengths(f"fwd b2 h2 {text}"))


def test_the_varlen_of_this_torch_has_an_interface_that_is_known():
    module = pytest.importorskip("torch.nn.attention.varlen")
    from attune.lab.varlen import _options

    problem = with_lengths("fwd b2 h2/1 q8 k8 d8 f32 causal-br var")
    options = _options(module.varlen_attn, problem)
    assert options.get("window_size") == (-1, 0) or options.get("is_causal")
