"""FlashInfer: sequences of one length, end to end."""

import flash_attn

__version__ = "0.fake"


class BatchPrefillWithRaggedKVCacheWrapper:
    def __init__(self, workspace, layout):
        assert layout == "NHD"

    def plan(self, ends_q, ends_k, heads_q, heads_kv, dim_qk, head_dim_vo, causal, sm_scale, q_data_type):
        self._ends = [ends.values() for ends in (ends_q, ends_k)]
        self._heads = (heads_q, heads_kv)
        self._dims = (dim_qk, head_dim_vo)
        self._options = {"softmax_scale": sm_scale, "causal": causal}

    def run(self, q, k, v):
        def split(tensor, ends, heads, dim):
            assert tensor.shape == (ends[-1], heads, dim)
            return tensor.view((len(ends) - 1, int(ends[1]), heads, dim))

        (ends_q, ends_k), (heads_q, heads_kv), (dim_qk, dim_v) = self._ends, self._heads, self._dims
        q, k = split(q, ends_q, heads_q, dim_qk), split(k, ends_k, heads_kv, dim_qk)
        output = flash_attn.flash_attn_func(q, k, split(v, ends_k, heads_kv, dim_v), **self._options)
        return output.contiguous().flatten(0, 1)
