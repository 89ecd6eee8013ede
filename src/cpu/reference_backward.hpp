// The gradients of attention in float64: what every backward is judged by. Written to be checked by reading.
#pragma once

#include <vector>

#include "core/operands.hpp"
#include "core/visibility.hpp"

namespace attune::cpu {

// One query head of one sequence. With x_ij the score of row i and key j (scaled, capped, biased), lse_i the
// log-sum-exp of row i with its sink, and p_ij = exp(x_ij - lse_i):
//
//   o_i     = sum_j p_ij v_j
//   delta_i = dout_i . o_i - dlse_i
//   g_ij    = p_ij (dout_i . v_j - delta_i)        the gradient of x_ij
//   s_ij    = g_ij * slope of the cap * scale      the gradient of q_i . k_j
//   dq_i    = sum_j s_ij k_j
//   dk_j    = sum_i s_ij q_i                       over the rows of every head that shares the KV head
//   dv_j    = sum_i p_ij dout_i                    likewise
//   dsink   = sum_i -exp(sink - lse_i) delta_i     over the rows of every sequence
//   dbias   = sum of g_ij                          over what the bias broadcasts
//
// The gradients are those of the function, so o and lse are computed here from the stored q, k, v and not read. Nothing
// is rounded. Rows and keys that are not in use, and keys that no row sees, get 0; they are never read.
class ReferenceHead {
 public:
  ReferenceHead(const Problem& problem, const Operands& operands, int64_t batch, int64_t head);

  struct Score {
    double weight = 0;      // p_ij
    double gradient = 0;    // g_ij
    double s_gradient = 0;  // s_ij
  };
  // 0 where row `row` does not see key `key`.
  Score score(int64_t row, int64_t key) const;
  bool sees(int64_t row, int64_t key) const;

  void add_dq(int64_t row, double* dq) const;
  void add_dk(int64_t key, double* dk) const;
  void add_dv(int64_t key, double* dv) const;
  double dsink() const;

  const Sequence& sequence() const { return sequence_; }
  double lse(int64_t row) const { return lse_[static_cast<size_t>(row)]; }
  const double* o(int64_t row) const { return o_.data() + row * problem_.dim_v; }

 private:
  double product(int64_t row, int64_t key) const;  // q_i . k_j
  double x(int64_t row, int64_t key) const;

  const Problem& problem_;
  const Operands& operands_;
  const int64_t batch_, head_;
  Sequence sequence_;
  std::vector<double> q_, k_, v_, dout_;  // rows and keys in use
  std::vector<double> o_, lse_, delta_;
};

}  // namespace attune::cpu
