#include "lab/check/oracle_tools.hpp"

#include "lab/check/remap.hpp"

namespace attune::lab {

Tensors keys_of(const Problem& problem, const Tensors& whole, int64_t begin, int64_t end, Storage storage) {
  Problem p = problem;
  p.seq_k = end - begin;
  const bool last = end == problem.seq_k;
  if (!last && p.causal == Causal::bottom_right) {
    // Row i sees keys up to i + seq_k - seq_q of the whole, which is so far to the right of its own diagonal.
    p.causal = Causal::none;
    p.window_right = problem.seq_k - end;
    p.features |= ATTUNE_WINDOW;
  }
  if (!last) p.features &= ~(ATTUNE_SINK | ATTUNE_DSINK);
  const auto shape = [](const attune_score_strides& s) {
    return ScoreShape{s.batch != 0, s.head != 0, s.query != 0, s.key != 0};
  };
  set_contiguous(p, problem.q.head > problem.q.row ? Layout::bhsd : Layout::bshd, shape(p.bias), shape(p.mask));
  Remap remap = identity_remap(p);
  for (int64_t& key : remap.keys) key += begin;
  return remapped(whole, p, storage, remap);
}

}  // namespace attune::lab
