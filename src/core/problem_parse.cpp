// Text to problem: `fwd b1 h8/8 q512 k512 d64 f16 causal-br`. docs/problems.md gives the grammar. The first word is an
// operation, which says what other words there are.
#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/operation.hpp"

namespace attune {
namespace {

// How the words of a kind are written.
struct WordForm {
  std::string_view kind, form;
};
constexpr WordForm forms[] = {{"p", "p#"},
                              {"b", "b#"},
                              {"h", "h#/#"},
                              {"q", "q#"},
                              {"k", "k#"},
                              {"d", "d#[/#]"},
                              {"dtype", "f16 bf16 f32"},
                              {"parts", "parts-f16 parts-bf16 parts-f32"},
                              {"causal", "causal-tl causal-br full"},
                              {"w", "w#,#"},
                              {"cap", "cap#"},
                              {"var", "var"},
                              {"scale", "scale#"},
                              {"layout", "bshd bhsd"},
                              {"overlap", "overlap"},
                              {"kvready", "kvready"},
                              {"high", "high"},
                              {"any-order", "any-order"}};

bool contains(std::span<const std::string_view> kinds, std::string_view kind) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

// Every word that problems of the operation may have.
std::string words_of(const Operation& operation) {
  std::string words;
  const auto add = [&](std::string_view form) { words += fmt::format("{}{}", words.empty() ? "" : " ", form); };
  for (const WordForm& word : forms)
    if (contains(operation.required_words, word.kind) || contains(operation.optional_words, word.kind)) add(word.form);
  for (const OperandRow& row : operand_rows()) {
    if (!operation.operands.has(row.operand)) continue;
    if (row.form == Form::scores && row.word.empty())
      add(fmt::format("{}=bhqk", row.name));
    else if (operation.has_word_for(row))
      add(row.word);
  }
  return words;
}

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
    if (at == text_.npos)
      fail(ATTUNE_INVALID_ARGUMENT, "the problem is ''; it must look like '{}'", forward_operation.example);
    for (bool first = true; at != text_.npos; first = false) {
      const size_t end = std::min(text_.find_first_of(blank, at), text_.size());
      const Word word(text_.substr(at, end - at));
      if (first)
        operation(word);
      else
        read(word);
      at = text_.find_first_not_of(blank, end);
    }
    complete();
    return problem_.operation->resolved(problem_);
  }

 private:
  void operation(Word word) {
    const Operation* found = find_operation(word.text());
    if (found == nullptr) {
      std::string names;
      for (const Operation* known : operations())
        names += fmt::format("{}{}", names.empty() ? "" : " or ", known->name);
      fail(ATTUNE_INVALID_ARGUMENT, "problem '{}' begins with '{}'; it must begin with {}, as in '{}'", text_,
           word.text(), names, forward_operation.example);
    }
    problem_.operation = found;
  }

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
    for (const OperandRow& row : operand_rows())
      if (text == row.word && problem_.operation->has_word_for(row)) return operand(word, row);
    if (text == "overlap") return feature(word, ATTUNE_OVERLAP);
    if (text == "kvready") return feature(word, ATTUNE_KV_READY);
    if (text == "high") return feature(word, ATTUNE_F32_HIGH);
    if (text == "any-order") return feature(word, ATTUNE_ANY_ORDER);
    if (word.take("bias=")) return bias(word);
    if (word.take("mask=")) return mask(word);
    if (word.take("parts-")) return parts(word);
    if (word.take("scale")) return number(word, "scale", "scale#", scale_);
    if (word.take("cap")) return cap(word);
    if (word.take("var")) return packed(word);
    if (word.take("p")) return number(word, "p", "p#", problem_.parts);
    if (word.take("b")) return number(word, "b", "b#", problem_.batch);
    if (word.take("h")) return pair(word, "h", "h#/#", problem_.heads_q, problem_.heads_kv);
    if (word.take("q")) return number(word, "q", "q#", problem_.seq_q);
    if (word.take("k")) return number(word, "k", "k#", problem_.seq_k);
    if (word.take("d")) return pair(word, "d", "d# or d#/#", problem_.dim_qk, problem_.dim_v);
    if (word.take("w")) return window(word);
    unknown(word, words_of(*problem_.operation));
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
    const bool has_keys = problem_.operation->operands.has(Operand::k);
    if (has_keys && word.take("/") && !word.take_number(b)) unknown(word, form);
    if (!word.done()) unknown(word, has_keys ? form : form.substr(0, form.find('#') + 1));
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

  void operand(Word word, const OperandRow& row) {
    once(word, row.word);
    problem_.features = row.word_is_off ? problem_.features & ~row.on : problem_.features | row.on;
  }

  void parts(Word word) {
    once(word, "parts");
    part_dtype_given_ = true;
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
      if (word.text() != fmt::format("parts-{}", name_of(dtype))) continue;
      problem_.part_dtype = dtype;
      return;
    }
    unknown(word, "parts-f16, parts-bf16 or parts-f32");
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
    for (const std::string_view kind : problem_.operation->required_words)
      if (!seen(kind))
        fail(ATTUNE_INVALID_ARGUMENT, "problem '{}' lacks {}; it must look like '{}'", text_, kind,
             problem_.operation->example);
    if (!part_dtype_given_ && may_say("parts")) problem_.part_dtype = problem_.dtype;
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

  bool seen(std::string_view kind) const { return contains(seen_, kind); }

  bool may_say(std::string_view kind) const {
    const Operation& operation = *problem_.operation;
    return contains(operation.required_words, kind) || contains(operation.optional_words, kind) ||
           std::ranges::any_of(operand_rows(), [&](const OperandRow& row) {
             return (operation.has_word_for(row) && kind == row.word) ||
                    (operation.operands.has(row.operand) && row.form == Form::scores && kind == row.name);
           });
  }

  void once(Word word, std::string_view kind) {
    if (!may_say(kind)) unknown(word, words_of(*problem_.operation));
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
  bool bias_f32_ = false, totals_given_ = false, part_dtype_given_ = false;
  float scale_ = 1;
};

}  // namespace

Problem parse_problem(std::string_view text) { return Parser(text).parse(); }

}  // namespace attune
