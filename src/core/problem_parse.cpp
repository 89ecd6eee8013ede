// Text to problem: `fwd b1 h8/8 q512 k512 d64 f16 causal-br`. docs/problems.md gives the grammar.
#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/problem.hpp"

namespace attune {
namespace {

constexpr std::string_view example = "fwd b1 h8/8 q512 k512 d64 f16 causal-br";
constexpr std::string_view words =
    "b# h#/# q# k# d#[/#] f16 bf16 f32 causal-tl causal-br full w#,# cap# sink bias=bhqk mask=bhqk var used-q used-k "
    "nolse scale# bshd bhsd overlap kvready high";

// One word, taken apart from the left.
class Word {
 public:
  explicit Word(std::string_view text) : text_(text), rest_(text) {}

  std::string_view text() const { return text_; }
  bool done() const { return rest_.empty(); }

  bool take(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  template <typename T>
  bool take_number(T& value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{}) return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return true;
  }

  // `bhqk`, with 1 for each broadcast dimension.
  bool take_shape(ScoreShape& shape) {
    constexpr std::string_view letters = "bhqk";
    if (rest_.size() < letters.size()) return false;
    bool* const present[] = {&shape.batch, &shape.head, &shape.query, &shape.key};
    for (size_t i = 0; i < letters.size(); ++i) {
      if (rest_[i] != letters[i] && rest_[i] != '1') return false;
      *present[i] = rest_[i] == letters[i];
    }
    rest_.remove_prefix(letters.size());
    return true;
  }

 private:
  std::string_view text_, rest_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Problem parse() {
    problem_.features = ATTUNE_LSE;
    constexpr std::string_view blank = " \t\r\n";
    size_t at = text_.find_first_not_of(blank);
    if (at == text_.npos) fail(ATTUNE_INVALID_ARGUMENT, "the problem is ''; it must look like '{}'", example);
    for (bool first = true; at != text_.npos; first = false) {
      const size_t end = std::min(text_.find_first_of(blank, at), text_.size());
      const Word word(text_.substr(at, end - at));
      if (!first) {
        read(word);
      } else if (word.text() != "fwd") {
        fail(ATTUNE_INVALID_ARGUMENT, "problem '{}' begins with '{}'; it must begin with fwd, as in '{}'", text_,
             word.text(), example);
      }
      at = text_.find_first_not_of(blank, end);
    }
    complete();
    return problem_from(desc_from(problem_));
  }

 private:
  void read(Word word) {
    const std::string_view text = word.text();
    if (text == "f16") return dtype(word, Dtype::f16);
    if (text == "bf16") return dtype(word, Dtype::bf16);
    if (text == "f32") return dtype(word, Dtype::f32);
    if (text == "full") return causal(word, Causal::none);
    if (text == "causal-tl") return causal(word, Causal::top_left);
    if (text == "causal-br" || text == "causal") return causal(word, Causal::bottom_right);
    if (text == "bshd") return layout(word, Layout::bshd);
    if (text == "bhsd") return layout(word, Layout::bhsd);
    if (text == "sink") return feature(word, ATTUNE_SINK);
    if (text == "used-q") return feature(word, ATTUNE_USED_Q);
    if (text == "used-k") return feature(word, ATTUNE_USED_K);
    if (text == "overlap") return feature(word, ATTUNE_OVERLAP);
    if (text == "kvready") return feature(word, ATTUNE_KV_READY);
    if (text == "high") return feature(word, ATTUNE_F32_HIGH);
    if (text == "nolse") {
      once(word, "nolse");
      problem_.features &= ~ATTUNE_LSE;
      return;
    }
    if (word.take("bias=")) return bias(word);
    if (word.take("mask=")) return mask(word);
    if (word.take("scale")) return number(word, "scale", "scale#", scale_);
    if (word.take("cap")) return cap(word);
    if (word.take("var")) return packed(word);
    if (word.take("b")) return number(word, "b", "b#", problem_.batch);
    if (word.take("h")) return pair(word, "h", "h#/#", problem_.heads_q, problem_.heads_kv);
    if (word.take("q")) return number(word, "q", "q#", problem_.seq_q);
    if (word.take("k")) return number(word, "k", "k#", problem_.seq_k);
    if (word.take("d")) return pair(word, "d", "d# or d#/#", problem_.dim_qk, problem_.dim_v);
    if (word.take("w")) return window(word);
    unknown(word, words);
  }

  template <typename T>
  void number(Word word, std::string_view kind, std::string_view form, T& value) {
    once(word, kind);
    if (!word.take_number(value) || !word.done()) unknown(word, form);
  }

  // One number stands for both.
  void pair(Word word, std::string_view kind, std::string_view form, int64_t& a, int64_t& b) {
    once(word, kind);
    if (!word.take_number(a)) unknown(word, form);
    b = a;
    if (word.take("/") && !word.take_number(b)) unknown(word, form);
    if (!word.done()) unknown(word, form);
  }

  void dtype(Word word, Dtype value) {
    once(word, "dtype");
    problem_.dtype = value;
  }

  void causal(Word word, Causal value) {
    once(word, "causal");
    problem_.causal = value;
  }

  void layout(Word word, Layout value) {
    once(word, "layout");
    layout_ = value;
  }

  void feature(Word word, attune_features bit) {
    once(word, word.text());
    problem_.features |= bit;
  }

  void bias(Word word) {
    once(word, "bias");
    problem_.features |= ATTUNE_BIAS;
    if (!word.take_shape(bias_)) unknown(word, "bias=bhqk with 1 for each broadcast dimension");
    bias_f32_ = word.take(":f32");
    if (!word.done()) unknown(word, "bias=bhqk or bias=bhqk:f32");
  }

  void mask(Word word) {
    once(word, "mask");
    problem_.features |= ATTUNE_MASK;
    if (!word.take_shape(mask_) || !word.done()) unknown(word, "mask=bhqk with 1 for each broadcast dimension");
  }

  void cap(Word word) {
    number(word, "cap", "cap#", problem_.softcap);
    // In a Problem 0 means "none".
    if (problem_.softcap == 0) unknown(word, "cap# with a number greater than 0");
  }

  void window(Word word) {
    once(word, "w");
    if (!word.take_number(problem_.window_left) || !word.take(",") || !word.take_number(problem_.window_right) ||
        !word.done())
      unknown(word, "w#,# (keys to the left and to the right of the diagonal, -1 for all)");
  }

  void packed(Word word) {
    once(word, "var");
    problem_.features |= ATTUNE_PACKED;
    if (word.done()) return;
    totals_given_ = true;
    if (!word.take("=") || !word.take_number(problem_.total_q) || !word.take(",") ||
        !word.take_number(problem_.total_k) || !word.done())
      unknown(word, "var or var=#,# (rows of q and of k in all)");
  }

  void complete() {
    for (const std::string_view kind : {"b", "h", "q", "k", "d", "dtype"})
      if (!seen(kind))
        fail(ATTUNE_INVALID_ARGUMENT, "problem '{}' lacks {}; it must look like '{}'", text_, kind, example);
    problem_.bias_dtype = bias_f32_ ? Dtype::f32 : problem_.dtype;
    problem_.scale = seen("scale") ? scale_ : default_scale(problem_.dim_qk);
    if (problem_.packed() && !totals_given_) {
      problem_.total_q = total_of(problem_.seq_q);
      problem_.total_k = total_of(problem_.seq_k);
    }
    if (problem_.packed()) {
      // As problem_from does; the strides of bias and mask depend on it.
      problem_.seq_q = std::min(problem_.seq_q, problem_.total_q);
      problem_.seq_k = std::min(problem_.seq_k, problem_.total_k);
    }
    set_contiguous(problem_, layout_, bias_, mask_);
  }

  int64_t total_of(int64_t seq) {
    int64_t total = 0;
    if (__builtin_mul_overflow(problem_.batch, seq, &total))
      fail(ATTUNE_INVALID_ARGUMENT, "problem '{}' has {} * {} rows; it must be less than 2^31", text_, problem_.batch,
           seq);
    return total;
  }

  bool seen(std::string_view kind) const { return std::ranges::find(seen_, kind) != seen_.end(); }

  void once(Word word, std::string_view kind) {
    if (seen(kind))
      fail(ATTUNE_INVALID_ARGUMENT, "'{}' in problem '{}' says {} a second time; once is allowed", word.text(), text_,
           kind);
    seen_.push_back(kind);
  }

  [[noreturn]] void unknown(Word word, std::string_view expected) {
    fail(ATTUNE_INVALID_ARGUMENT, "'{}' in problem '{}' is not understood; it must be {}", word.text(), text_,
         expected);
  }

  std::string_view text_;
  Problem problem_;
  std::vector<std::string_view> seen_;
  Layout layout_ = Layout::bshd;
  ScoreShape bias_, mask_;
  bool bias_f32_ = false, totals_given_ = false;
  float scale_ = 1;
};

}  // namespace

Problem parse_problem(std::string_view text) { return Parser(text).parse(); }

}  // namespace attune
