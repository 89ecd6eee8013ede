// Attune: fused scaled dot-product attention. The C++20 interface, header-only over attune.h.
//
//   attune::Context context;
//   context.forward({.q = attune::bshd(q, batch, rows, heads, dim),
//                    .k = attune::bshd(k, batch, keys, heads, dim),
//                    .v = attune::bshd(v, batch, keys, heads, dim),
//                    .o = attune::bshd(o, batch, rows, heads, dim),
//                    .causal = attune::Causal::bottom_right});
//
// Errors are attune::Error with the status and the sentence of the C interface. Views know their extents, so calls
// with tensors that do not fit together are refused here, before the C interface sees them.
#ifndef ATTUNE_ATTUNE_HPP
#define ATTUNE_ATTUNE_HPP

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attune/attune.h"

// The names live in attune::api, and users write attune::Context. The library's sources have an attune::Context of
// their own; a file that includes both defines ATTUNE_CPP_QUALIFIED first and writes attune::api::Context. The inline
// namespace also keeps the two apart for the linker.
#ifdef ATTUNE_CPP_QUALIFIED
#define ATTUNE_CPP_INLINE
#else
#define ATTUNE_CPP_INLINE inline
#endif

namespace attune {
ATTUNE_CPP_INLINE namespace api {
  class Error : public std::runtime_error {
   public:
    Error(attune_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
    attune_status status() const noexcept { return status_; }

   private:
    attune_status status_;
  };

  enum class Dtype : attune_dtype { f16 = ATTUNE_F16, bf16 = ATTUNE_BF16, f32 = ATTUNE_F32 };
  enum class Causal : attune_causal {
    none = ATTUNE_CAUSAL_NONE,
    top_left = ATTUNE_CAUSAL_TOP_LEFT,
    bottom_right = ATTUNE_CAUSAL_BOTTOM_RIGHT,
  };

  // Which dtype an element type is. Specialise it for the 16-bit types you use:
  //   template <> inline constexpr attune::Dtype attune::dtype_of<__half> = attune::Dtype::f16;
  template <typename Element>
  inline constexpr Dtype dtype_of = [] {
    static_assert(std::is_same_v<Element, float>, "specialise attune::dtype_of for this element type, or pass a Dtype");
    return Dtype::f32;
  }();

  // Where every pointer of a call lives.
  struct Device {
    attune_device_kind kind = ATTUNE_CPU;
    int32_t index = 0;

    static Device cpu() { return {}; }
    static Device cuda(int32_t index = 0) { return {ATTUNE_CUDA, index}; }
  };

  // A tensor seen as (batch, row, head, dim) through strides counted in elements; dim is contiguous.
  template <typename Void>
  struct BasicView {
    Void* data = nullptr;
    Dtype dtype = Dtype::f32;
    int64_t batch = 0, rows = 0, heads = 0, dim = 0;
    attune_strides strides{};

    operator BasicView<const void>() const
      requires(!std::is_const_v<Void>)
    {
      return {data, dtype, batch, rows, heads, dim, strides};
    }
  };
  using View = BasicView<const void>;
  using OutView = BasicView<void>;

  namespace detail {

  template <typename Element>
  using VoidLike = std::conditional_t<std::is_const_v<Element>, const void, void>;

  inline void check(attune_status status) {
    if (status != ATTUNE_OK) throw Error(status, attune_last_error());
  }

  inline void must_equal(const char* name, int64_t value, const char* other, int64_t expected) {
    if (value != expected)
      throw Error(ATTUNE_INVALID_ARGUMENT, std::string(name) + " is " + std::to_string(value) + "; it must equal " +
                                               other + " (" + std::to_string(expected) + ")");
  }

  inline void must_equal_or_1(const char* name, int64_t value, const char* other, int64_t expected) {
    if (value != 1) must_equal(name, value, other, expected);
  }

  }  // namespace detail

  // Contiguous tensors. Rows before heads:
  template <typename Void>
    requires(std::is_void_v<Void>)
  BasicView<Void> bshd(Void * data, Dtype dtype, int64_t batch, int64_t rows, int64_t heads, int64_t dim) {
    return {data, dtype, batch, rows, heads, dim, {rows * heads * dim, heads * dim, dim}};
  }
  template <typename Element>
  auto bshd(Element * data, int64_t batch, int64_t rows, int64_t heads, int64_t dim) {
    return bshd(static_cast<detail::VoidLike<Element>*>(data), dtype_of<std::remove_const_t<Element>>, batch, rows,
                heads, dim);
  }
  // Heads before rows:
  template <typename Void>
    requires(std::is_void_v<Void>)
  BasicView<Void> bhsd(Void * data, Dtype dtype, int64_t batch, int64_t heads, int64_t rows, int64_t dim) {
    return {data, dtype, batch, rows, heads, dim, {heads * rows * dim, dim, rows * dim}};
  }
  template <typename Element>
  auto bhsd(Element * data, int64_t batch, int64_t heads, int64_t rows, int64_t dim) {
    return bhsd(static_cast<detail::VoidLike<Element>*>(data), dtype_of<std::remove_const_t<Element>>, batch, heads,
                rows, dim);
  }
  // Packed sequences, (total rows, head, dim), are bshd with a batch of 1.

  // Bias or mask seen as (batch, head, query, key); an extent of 1 is broadcast.
  template <typename Element>
  struct BasicScores {
    const Element* data = nullptr;
    Dtype dtype = Dtype::f32;  // of a bias
    int64_t batch = 1, heads = 1, queries = 1, keys = 1;
    attune_score_strides strides{};
  };
  using Bias = BasicScores<void>;
  using Mask = BasicScores<uint8_t>;

  namespace detail {

  inline attune_score_strides score_strides(int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
    return {batch == 1 ? 0 : heads * queries * keys, heads == 1 ? 0 : queries * keys, queries == 1 ? 0 : keys,
            keys == 1 ? 0 : 1};
  }

  }  // namespace detail

  inline Bias bias(const void* data, Dtype dtype, int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
    return {data, dtype, batch, heads, queries, keys, detail::score_strides(batch, heads, queries, keys)};
  }
  template <typename Element>
    requires(!std::is_void_v<Element>)
  Bias bias(const Element* data, int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
    return bias(data, dtype_of<Element>, batch, heads, queries, keys);
  }
  // 0 hides a key.
  inline Mask mask(const uint8_t* data, int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
    return {data, {}, batch, heads, queries, keys, detail::score_strides(batch, heads, queries, keys)};
  }

  // Keys to the left and to the right of the diagonal that a row sees; -1 is unbounded.
  struct Window {
    int64_t left = -1, right = -1;
  };

  // Sequences that lie end to end in q, k, v and o, which then have a batch of 1.
  struct Packed {
    const int32_t* cu_seqlens_q = nullptr;  // batch + 1 offsets, on the device
    const int32_t* cu_seqlens_k = nullptr;
    int64_t batch = 0;
    int64_t max_q = 0, max_k = 0;  // upper bounds of the single lengths
  };

  // One attention call: softmax(mask(softcap(scale * q k^T) + bias)) v. Only q, k, v and o are required.
  struct Forward {
    View q{}, k{}, v{};
    OutView o{};
    Causal causal = Causal::none;
    std::optional<Window> window{};
    std::optional<float> scale{};  // 1/sqrt(dim) if not given
    std::optional<float> softcap{};
    const float* sink = nullptr;  // one logit per query head
    std::optional<Bias> bias{};
    std::optional<Mask> mask{};
    std::optional<Packed> packed{};
    const int32_t* used_q = nullptr;              // rows in use per sequence: 0..its length
    const int32_t* used_k = nullptr;              // keys in use per sequence: 0..its length
    float* lse = nullptr;                         // receives the log-sum-exp of each row
    std::optional<attune_strides> lse_strides{};  // contiguous (batch, head, row) if not given
    Device device{};
    void* workspace = nullptr;  // at least Context::workspace_bytes, 256-byte aligned
    uint64_t workspace_bytes = 0;
    bool overlap = false;   // ATTUNE_OVERLAP: may start while the kernel before it in the stream is still ending
    bool kv_ready = false;  // ATTUNE_KV_READY, with overlap: that kernel does not write k and v
    bool f32_high = false;  // ATTUNE_F32_HIGH: products of f32 may take 16 significant bits

    attune_forward_desc desc() const;
    attune_forward_args args() const;

   private:
    void check_extents() const;
  };

  // The gradients of a Forward call. `forward` is that call as it was: its o and lse, which are read now, and every
  // feature. Its workspace is not used.
  struct Backward {
    Forward forward{};
    View dout{};                                          // the gradient that arrives at o
    OutView dq{}, dk{}, dv{};                             // receive the gradients of q, k and v
    const float* dlse = nullptr;                          // the gradient that arrives at lse, if there is one
    float* dsink = nullptr;                               // receives the gradient of the sinks
    void* dbias = nullptr;                                // receives the gradient of the bias, in its shape and dtype
    std::optional<attune_strides> dlse_strides{};         // contiguous (batch, head, row) if not given
    std::optional<attune_score_strides> dbias_strides{};  // contiguous over what the bias does not broadcast
    bool any_order = false;                               // ATTUNE_ANY_ORDER: sums in an order that may change
    void* workspace = nullptr;                            // at least Context::workspace_bytes, 256-byte aligned
    uint64_t workspace_bytes = 0;

    attune_backward_desc desc() const;
    attune_backward_args args() const;

   private:
    void check_extents() const;
  };

  // Joins partial results over disjoint key sets.
  struct Merge {
    struct Part {
      View o{};
      const float* lse = nullptr;
    };
    std::vector<Part> parts{};  // all with the same shape, strides and dtype
    OutView o{};
    float* lse = nullptr;                              // may stay nullptr
    std::optional<attune_strides> lse_strides{};       // contiguous (batch, head, row) if not given
    std::optional<attune_strides> part_lse_strides{};  // likewise, of every part
    Device device{};
  };

  struct ContextOptions {
    int32_t threads = 0;                         // 0: one per CPU the process may use
    attune_parallel_for parallel_for = nullptr;  // lends the host's threads to the library
    void* parallel_for_user = nullptr;
    std::string kernel{};  // "", or the one kernel the context may use
    // Of the OpenMP runtime that the process computes with anyway: shares its threads with the library.
    attune_gomp_parallel gomp_parallel = nullptr;
    int (*omp_get_max_threads)() = nullptr;
  };

  // Owns an attune_context. May be used from many threads.
  class Context {
   public:
    Context() : Context(ContextOptions{}) {}
    explicit Context(const ContextOptions& options) {
      attune_options c_options{};
      c_options.struct_size = sizeof c_options;
      c_options.threads = options.threads;
      c_options.parallel_for = options.parallel_for;
      c_options.parallel_for_user = options.parallel_for_user;
      c_options.kernel = options.kernel.empty() ? nullptr : options.kernel.c_str();
      c_options.gomp_parallel = options.gomp_parallel;
      c_options.omp_get_max_threads = options.omp_get_max_threads;
      detail::check(attune_create(&c_options, &handle_));
    }
    Context(Context&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Context& operator=(Context&& other) noexcept {
      std::swap(handle_, other.handle_);
      return *this;
    }
    ~Context() { attune_destroy(handle_); }

    // stream: a CUstream for CUDA devices. On the CPU the call returns when it is done.
    void forward(const Forward& call, void* stream = nullptr) {
      const attune_forward_desc desc = call.desc();
      const attune_forward_args args = call.args();
      detail::check(attune_forward(handle_, &desc, &args, stream));
    }

    // Chooses, compiles and loads what forward() needs, so that it can be captured in a CUDA graph.
    void prepare(const Forward& call) {
      const attune_forward_desc desc = call.desc();
      detail::check(attune_prepare(handle_, &desc));
    }

    uint64_t workspace_bytes(const Forward& call) {
      const attune_forward_desc desc = call.desc();
      uint64_t bytes = 0;
      detail::check(attune_workspace_bytes(handle_, &desc, &bytes));
      return bytes;
    }

    // What would run, and why.
    std::string explain(const Forward& call) {
      const attune_forward_desc desc = call.desc();
      size_t length = 0;
      detail::check(attune_explain(handle_, &desc, nullptr, 0, &length));
      std::string text(length, '\0');
      detail::check(attune_explain(handle_, &desc, text.data(), length + 1, &length));
      return text;
    }

    // The same four for gradients.
    void backward(const Backward& call, void* stream = nullptr) {
      const attune_backward_desc desc = call.desc();
      const attune_backward_args args = call.args();
      detail::check(attune_backward(handle_, &desc, &args, stream));
    }
    void prepare(const Backward& call) {
      const attune_backward_desc desc = call.desc();
      detail::check(attune_backward_prepare(handle_, &desc));
    }
    uint64_t workspace_bytes(const Backward& call) {
      const attune_backward_desc desc = call.desc();
      uint64_t bytes = 0;
      detail::check(attune_backward_workspace_bytes(handle_, &desc, &bytes));
      return bytes;
    }
    std::string explain(const Backward& call) {
      const attune_backward_desc desc = call.desc();
      size_t length = 0;
      detail::check(attune_backward_explain(handle_, &desc, nullptr, 0, &length));
      std::string text(length, '\0');
      detail::check(attune_backward_explain(handle_, &desc, text.data(), length + 1, &length));
      return text;
    }

    void merge(const Merge& call, void* stream = nullptr);

    attune_context* handle() const noexcept { return handle_; }

   private:
    attune_context* handle_ = nullptr;
  };

  inline void Forward::check_extents() const {
    using detail::must_equal;
    const auto same_dtype = [this](const char* name, Dtype dtype) {
      must_equal(name, static_cast<int32_t>(dtype), "q.dtype", static_cast<int32_t>(q.dtype));
    };
    same_dtype("k.dtype", k.dtype);
    same_dtype("v.dtype", v.dtype);
    same_dtype("o.dtype", o.dtype);
    must_equal("k.batch", k.batch, "q.batch", q.batch);
    must_equal("v.batch", v.batch, "q.batch", q.batch);
    must_equal("o.batch", o.batch, "q.batch", q.batch);
    must_equal("v.rows", v.rows, "k.rows", k.rows);
    must_equal("o.rows", o.rows, "q.rows", q.rows);
    must_equal("v.heads", v.heads, "k.heads", k.heads);
    must_equal("o.heads", o.heads, "q.heads", q.heads);
    must_equal("k.dim", k.dim, "q.dim", q.dim);
    must_equal("o.dim", o.dim, "v.dim", v.dim);
    if (packed) must_equal("q.batch", q.batch, "the batch of packed tensors", 1);

    const auto check_scores = [this](const std::string& name, const auto& scores) {
      detail::must_equal_or_1((name + ".batch").c_str(), scores.batch, "the batch", packed ? packed->batch : q.batch);
      detail::must_equal_or_1((name + ".heads").c_str(), scores.heads, "q.heads", q.heads);
      detail::must_equal_or_1((name + ".queries").c_str(), scores.queries, "the rows of a sequence of q",
                              packed ? packed->max_q : q.rows);
      detail::must_equal_or_1((name + ".keys").c_str(), scores.keys, "the rows of a sequence of k",
                              packed ? packed->max_k : k.rows);
    };
    if (bias) check_scores("bias", *bias);
    if (mask) check_scores("mask", *mask);
  }

  inline attune_forward_desc Forward::desc() const {
    check_extents();
    attune_forward_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device_kind = device.kind;
    desc.device_index = device.index;
    desc.dtype = static_cast<attune_dtype>(q.dtype);
    desc.causal = static_cast<attune_causal>(causal);
    desc.batch = packed ? packed->batch : q.batch;
    desc.heads_q = q.heads;
    desc.heads_kv = k.heads;
    desc.seq_q = packed ? packed->max_q : q.rows;
    desc.seq_k = packed ? packed->max_k : k.rows;
    desc.dim_qk = q.dim;
    desc.dim_v = v.dim;
    desc.q = q.strides;
    desc.k = k.strides;
    desc.v = v.strides;
    desc.o = o.strides;
    const auto enable = [&desc](attune_features bit, bool on) {
      if (on) desc.features |= bit;
    };
    enable(ATTUNE_PACKED, packed.has_value());
    if (packed) {
      desc.total_q = q.rows;
      desc.total_k = k.rows;
    }
    enable(ATTUNE_WINDOW, window.has_value());
    if (window) {
      desc.window_left = window->left;
      desc.window_right = window->right;
    }
    enable(ATTUNE_SCALE, scale.has_value());
    desc.scale = scale.value_or(0);
    enable(ATTUNE_SOFTCAP, softcap.has_value());
    desc.softcap = softcap.value_or(0);
    enable(ATTUNE_BIAS, bias.has_value());
    if (bias) {
      desc.bias_dtype = static_cast<attune_dtype>(bias->dtype);
      desc.bias = bias->strides;
    }
    enable(ATTUNE_MASK, mask.has_value());
    if (mask) desc.mask = mask->strides;
    enable(ATTUNE_SINK, sink != nullptr);
    enable(ATTUNE_USED_Q, used_q != nullptr);
    enable(ATTUNE_USED_K, used_k != nullptr);
    enable(ATTUNE_LSE, lse != nullptr);
    if (lse != nullptr) desc.lse = lse_strides.value_or(attune_strides{q.heads * q.rows, 1, q.rows});
    enable(ATTUNE_OVERLAP, overlap);
    enable(ATTUNE_KV_READY, kv_ready);
    enable(ATTUNE_F32_HIGH, f32_high);
    return desc;
  }

  inline attune_forward_args Forward::args() const {
    attune_forward_args args{};
    args.struct_size = sizeof args;
    args.q = q.data;
    args.k = k.data;
    args.v = v.data;
    args.o = o.data;
    args.lse = lse;
    args.sink = sink;
    args.bias = bias ? bias->data : nullptr;
    args.mask = mask ? mask->data : nullptr;
    args.cu_seqlens_q = packed ? packed->cu_seqlens_q : nullptr;
    args.cu_seqlens_k = packed ? packed->cu_seqlens_k : nullptr;
    args.used_q = used_q;
    args.used_k = used_k;
    args.workspace = workspace;
    args.workspace_bytes = workspace_bytes;
    return args;
  }

  inline void Backward::check_extents() const {
    using detail::must_equal;
    const auto like = [](const std::string& name, const auto& gradient, const std::string& other, const auto& of) {
      must_equal((name + ".dtype").c_str(), static_cast<int32_t>(gradient.dtype), (other + ".dtype").c_str(),
                 static_cast<int32_t>(of.dtype));
      must_equal((name + ".batch").c_str(), gradient.batch, (other + ".batch").c_str(), of.batch);
      must_equal((name + ".rows").c_str(), gradient.rows, (other + ".rows").c_str(), of.rows);
      must_equal((name + ".heads").c_str(), gradient.heads, (other + ".heads").c_str(), of.heads);
      must_equal((name + ".dim").c_str(), gradient.dim, (other + ".dim").c_str(), of.dim);
    };
    like("dout", dout, "forward.o", forward.o);
    like("dq", dq, "forward.q", forward.q);
    like("dk", dk, "forward.k", forward.k);
    like("dv", dv, "forward.v", forward.v);
  }

  inline attune_backward_desc Backward::desc() const {
    check_extents();
    const attune_forward_desc of = forward.desc();
    attune_backward_desc desc{};
    desc.struct_size = sizeof desc;
    desc.features = of.features;
    desc.device_kind = of.device_kind;
    desc.device_index = of.device_index;
    desc.dtype = of.dtype;
    desc.bias_dtype = of.bias_dtype;
    desc.causal = of.causal;
    desc.batch = of.batch;
    desc.heads_q = of.heads_q;
    desc.heads_kv = of.heads_kv;
    desc.seq_q = of.seq_q;
    desc.seq_k = of.seq_k;
    desc.dim_qk = of.dim_qk;
    desc.dim_v = of.dim_v;
    desc.total_q = of.total_q;
    desc.total_k = of.total_k;
    desc.q = of.q;
    desc.k = of.k;
    desc.v = of.v;
    desc.o = of.o;
    desc.lse = of.lse;
    desc.bias = of.bias;
    desc.mask = of.mask;
    desc.window_left = of.window_left;
    desc.window_right = of.window_right;
    desc.scale = of.scale;
    desc.softcap = of.softcap;
    desc.dout = dout.strides;
    desc.dq = dq.strides;
    desc.dk = dk.strides;
    desc.dv = dv.strides;
    if (dlse != nullptr) {
      desc.features |= ATTUNE_DLSE;
      desc.dlse = dlse_strides.value_or(attune_strides{forward.q.heads * forward.q.rows, 1, forward.q.rows});
    }
    if (dsink != nullptr) desc.features |= ATTUNE_DSINK;
    if (dbias != nullptr) {
      desc.features |= ATTUNE_DBIAS;
      if (forward.bias)
        desc.dbias = dbias_strides.value_or(
            detail::score_strides(forward.bias->batch, forward.bias->heads, forward.bias->queries, forward.bias->keys));
    }
    if (any_order) desc.features |= ATTUNE_ANY_ORDER;
    return desc;
  }

  inline attune_backward_args Backward::args() const {
    const attune_forward_args of = forward.args();
    attune_backward_args args{};
    args.struct_size = sizeof args;
    args.q = of.q;
    args.k = of.k;
    args.v = of.v;
    args.o = of.o;
    args.lse = of.lse;
    args.sink = of.sink;
    args.bias = of.bias;
    args.mask = of.mask;
    args.cu_seqlens_q = of.cu_seqlens_q;
    args.cu_seqlens_k = of.cu_seqlens_k;
    args.used_q = of.used_q;
    args.used_k = of.used_k;
    args.dout = dout.data;
    args.dlse = dlse;
    args.dq = dq.data;
    args.dk = dk.data;
    args.dv = dv.data;
    args.dsink = dsink;
    args.dbias = dbias;
    args.workspace = workspace;
    args.workspace_bytes = workspace_bytes;
    return args;
  }

  inline void Context::merge(const Merge& call, void* stream) {
    using detail::must_equal;
    const View first = call.parts.empty() ? View{} : call.parts.front().o;
    std::vector<const void*> part_o;
    std::vector<const float*> part_lse;
    for (const auto& part : call.parts) {
      must_equal("a part's dtype", static_cast<int32_t>(part.o.dtype), "the first part's",
                 static_cast<int32_t>(first.dtype));
      must_equal("a part's batch", part.o.batch, "o.batch", call.o.batch);
      must_equal("a part's rows", part.o.rows, "o.rows", call.o.rows);
      must_equal("a part's heads", part.o.heads, "o.heads", call.o.heads);
      must_equal("a part's dim", part.o.dim, "o.dim", call.o.dim);
      must_equal("a part's batch stride", part.o.strides.batch, "the first part's", first.strides.batch);
      must_equal("a part's row stride", part.o.strides.row, "the first part's", first.strides.row);
      must_equal("a part's head stride", part.o.strides.head, "the first part's", first.strides.head);
      part_o.push_back(part.o.data);
      part_lse.push_back(part.lse);
    }
    const attune_strides contiguous{call.o.heads * call.o.rows, 1, call.o.rows};
    attune_merge_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device_kind = call.device.kind;
    desc.device_index = call.device.index;
    desc.part_dtype = static_cast<attune_dtype>(first.dtype);
    desc.dtype = static_cast<attune_dtype>(call.o.dtype);
    desc.parts = static_cast<int64_t>(call.parts.size());
    desc.batch = call.o.batch;
    desc.heads = call.o.heads;
    desc.rows = call.o.rows;
    desc.dim = call.o.dim;
    desc.part_o = first.strides;
    desc.part_lse = call.part_lse_strides.value_or(contiguous);
    desc.o = call.o.strides;
    desc.lse = call.lse_strides.value_or(contiguous);
    attune_merge_args args{};
    args.struct_size = sizeof args;
    args.part_o = part_o.data();
    args.part_lse = part_lse.data();
    args.o = call.o.data;
    args.lse = call.lse;
    detail::check(attune_merge(handle_, &desc, &args, stream));
  }

}  // namespace api
}  // namespace attune

#undef ATTUNE_CPP_INLINE
#endif
