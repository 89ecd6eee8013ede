"""FlexAttention, compiled by torch.compile: windows, lengths and documents by a block mask, softcap and bias by
score_mod, sinks by the log-sum-exp it returns, as models that have such do it."""

from __future__ import annotations

from functools import partial

from attune.lab.contender import Bound, Contender
from attune.lab.errors import Absent
from attune.lab.imports import imported
from attune.lab.problem import Problem
from attune.lab.tensors import Tensors


class Flex(Contender):
    name = "flex"

    def __init__(self, beside_sdpa: bool):
        """`beside_sdpa`: what SDPA can say is left to it, since each problem takes many seconds to compile."""
        self._beside_sdpa = beside_sdpa
        self._compiled = {}  # by problem: each is compiled once, for the check, and used again in the rounds

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        p = problem
        if p.backward:
            raise Absent("only its forward pass is measured here")
        if self._beside_sdpa and not (p.windowed or p.softcap or p.sink or p.packed):
            raise Absent("beside torch's SDPA it takes part where there is a window, softcap, sink or packing")
        module = imported("torch.nn.attention.flex_attention")
        if p.text not in self._compiled:
            self._compiled[p.text] = torch.compile(_attention_of(torch, module, p.sink), dynamic=False)
        options = {"scale": p.softmax_scale, "enable_gqa": p.heads_q != p.heads_kv}
        if (mask := tensors.made_once("block_mask", lambda: _block_mask(torch, module, p, tensors))) is not None:
            options["block_mask"] = mask
        if (score_mod := _score_mod(torch, p, tensors)) is not None:
            options["score_mod"] = score_mod
        if p.sink:
            options["sink"] = tensors.sink
        inputs = [tensor.transpose(1, 2) for tensor in (tensors.q, tensors.k, tensors.v)]
        return Bound(partial(self._compiled[p.text], *inputs, **options), heads_first=True)


def _attention_of(torch, module, with_sink: bool):
    """A function with code of its own: torch.compile leaves code slow that has met a few shapes."""
    with_lse = {"return_aux": module.AuxRequest(lse=True)} if hasattr(module, "AuxRequest") else {"return_lse": True}

    def plain(q, k, v, **options):
        return module.flex_attention(q, k, v, **options)

    def with_sinks(q, k, v, sink, **options):
        out, lse = module.flex_attention(q, k, v, **options, **with_lse)
        lse = getattr(lse, "lse", lse)
        # exp(lse) / (exp(lse) + exp(sink)) of the weights are the keys'.
        share = torch.sigmoid(lse - sink.view(1, -1, 1)).unsqueeze(-1)
        return (out * share).to(out.dtype)

    function = with_sinks if with_sink else plain
    function.__code__ = function.__code__.replace()
    return function


def _score_mod(torch, p: Problem, tensors: Tensors):
    if not p.softcap and not p.bias:
        return None
    cap, bias = p.softcap, tensors.bias
    varies = [extent > 1 for extent in bias.shape] if p.bias else []

    def changed(score, batch, head, row, key):
        if cap:
            score = cap * torch.tanh(score / cap)
        if varies:
            score = score + bias[tuple(index if vary else 0 for index, vary in zip((batch, head, row, key), varies))]
        return score

    return changed


def _block_mask(torch, module, p: Problem, tensors: Tensors):
    sees, batch, heads = (_packed if p.packed else _dense)(torch, p, tensors)
    if sees is None:
        return None
    if p.mask:
        if p.packed:
            raise Absent("a mask of packed sequences is not written for flex here")
        sees, batch, heads = _with_mask(sees, batch, heads, p, tensors)
    (_, rows), (_, keys) = p.stored_q, p.stored_k
    return module.create_block_mask(sees, batch, heads, rows, keys, device=tensors.device)


def _packed(torch, p: Problem, tensors: Tensors):
    """Each row sees keys of its own document, which lie together."""
    if p.bias:
        raise Absent("a bias of packed sequences is not written for flex here")
    first, last = [0] * p.total_q, [-1] * p.total_q
    for entry in range(p.batch):
        s = p.sequence(entry)
        diagonal = p.diagonal(s.rows, s.keys)
        for row in range(s.rows):
            least = 0 if p.least_offset is None else max(0, row + diagonal + p.least_offset)
            most = s.keys - 1 if p.most_offset is None else min(s.keys - 1, row + diagonal + p.most_offset)
            first[s.first_row + row], last[s.first_row + row] = s.first_key + least, s.first_key + most
    first, last = (torch.tensor(ends, dtype=torch.int32, device=tensors.device) for ends in (first, last))

    def sees(_batch, _head, row, key):
        return (key >= first[row]) & (key <= last[row])

    return sees, None, None


def _dense(torch, p: Problem, tensors: Tensors):
    least, most = p.least_offset, p.most_offset
    used_q, used_k = tensors.used_q, tensors.used_k
    top_left, rows, keys = p.causal == "causal-tl", p.seq_q, p.seq_k
    if least is None and most is None and used_k is None:
        return (None if not p.mask else lambda _batch, _head, row, _key: row >= 0), None, None

    def sees(batch, _head, row, key):
        length = keys if used_k is None else used_k[batch]
        diagonal = row if top_left else row + length - (rows if used_q is None else used_q[batch])
        visible = key < length
        if most is not None:
            visible = visible & (key <= diagonal + most)
        if least is not None:
            visible = visible & (key >= diagonal + least)
        return visible

    return sees, p.batch if p.used_q or p.used_k else None, None


def _with_mask(sees, batch, heads, p: Problem, tensors: Tensors):
    mask = tensors.mask
    varies = [extent > 1 for extent in mask.shape]

    def sees_by_mask(entry, head, row, key):
        place = tuple(index if vary else 0 for index, vary in zip((entry, head, row, key), varies))
        return sees(entry, head, row, key) & (mask[place] != 0)

    return sees_by_mask, p.batch if varies[0] else batch, p.heads_q if varies[1] else heads
