// The C++ interface, with nothing but its header: what a user's file sees.
#include <attune/attune.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

struct MyHalf {
  uint16_t bits;
};
template <>
inline constexpr attune::Dtype attune::dtype_of<MyHalf> = attune::Dtype::f16;

namespace {

using attune::bhsd;
using attune::bshd;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t batch = 2, rows = 3, keys = 5, heads = 4, kv_heads = 2, dim = 8;

std::vector<float> numbers(int64_t count, float phase) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(phase + 0.37f * static_cast<float>(i));
  return values;
}

struct Tensors {
  std::vector<float> q = numbers(batch * rows * heads * dim, 1), k = numbers(batch * keys * kv_heads * dim, 2),
                     v = numbers(batch * keys * kv_heads * dim, 3);
  std::vector<float> o = std::vector<float>(q.size(), NAN);
  std::vector<float> lse = std::vector<float>(batch * rows * heads, NAN);

  attune::Forward call() {
    return {.q = bshd(q.data(), batch, rows, heads, dim),
            .k = bshd(k.data(), batch, keys, kv_heads, dim),
            .v = bshd(v.data(), batch, keys, kv_heads, dim),
            .o = bshd(o.data(), batch, rows, heads, dim),
            .lse = lse.data()};
  }
};

struct Options {
  int64_t visible_keys = keys;  // of every row
  const float* bias = nullptr;  // (head, key)
};

// Attention by its definition, in double, for bshd tensors.
std::vector<float> expected(const Tensors& t, const Options& options = {}) {
  std::vector<float> o(t.o.size());
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t kv = h / (heads / kv_heads);
        std::vector<double> p(static_cast<size_t>(options.visible_keys));
        for (size_t j = 0; j < p.size(); ++j) {
          double s = 0;
          for (int64_t c = 0; c < dim; ++c)
            s += double{t.q[static_cast<size_t>(((b * rows + i) * heads + h) * dim + c)]} *
                 t.k[static_cast<size_t>(((b * keys + static_cast<int64_t>(j)) * kv_heads + kv) * dim + c)];
          s /= std::sqrt(double{dim});
          if (options.bias != nullptr) s += options.bias[h * keys + static_cast<int64_t>(j)];
          p[j] = std::exp(s);
        }
        const double sum = std::accumulate(p.begin(), p.end(), 0.0);
        for (int64_t c = 0; c < dim; ++c) {
          double value = 0;
          for (size_t j = 0; j < p.size(); ++j)
            value +=
                p[j] / sum * t.v[static_cast<size_t>(((b * keys + static_cast<int64_t>(j)) * kv_heads + kv) * dim + c)];
          o[static_cast<size_t>(((b * rows + i) * heads + h) * dim + c)] = static_cast<float>(value);
        }
      }
  return o;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& wanted) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], wanted[i], 2e-6) << i;
}

std::pair<attune_status, std::string> refusal(const attune::Forward& call) {
  attune::Context context;
  try {
    context.forward(call);
  } catch (const attune::Error& error) {
    return {error.status(), error.what()};
  }
  return {ATTUNE_OK, ""};
}

TEST(Cpp, PlainAttention) {
  Tensors t;
  attune::Context context;
  context.forward(t.call());
  expect_near(t.o, expected(t));
  for (const float lse : t.lse) EXPECT_TRUE(std::isfinite(lse));
}

TEST(Cpp, OptionsReachTheLibrary) {
  Tensors t;
  const std::vector<float> bias = numbers(heads * keys, 4);
  const std::vector<uint8_t> mask{1, 1, 1, 0, 0};
  attune::Forward call = t.call();
  call.bias = attune::bias(bias.data(), 1, heads, 1, keys);
  call.mask = attune::mask(mask.data(), 1, 1, 1, keys);
  attune::Context context({.threads = 1});
  context.forward(call);
  expect_near(t.o, expected(t, {.visible_keys = 3, .bias = bias.data()}));

  // The same by lengths in use.
  Tensors by_length;
  const std::vector<int32_t> used{3, 3};
  attune::Forward shorter = by_length.call();
  shorter.used_k = used.data();
  context.forward(shorter);
  expect_near(by_length.o, expected(by_length, {.visible_keys = 3}));
}

TEST(Cpp, EveryOptionIsInTheDescriptor) {
  Tensors t;
  const float sink[heads] = {};
  const int32_t cu[3] = {};
  attune::Forward call = t.call();
  call.causal = attune::Causal::top_left;
  call.window = {.left = 3};
  call.scale = 0;
  call.softcap = 30;
  call.sink = sink;
  call.used_q = cu;
  call.device = attune::Device::cuda(2);
  call.overlap = call.kv_ready = call.f32_high = true;
  const attune_forward_desc desc = call.desc();
  EXPECT_EQ(desc.struct_size, sizeof desc);
  EXPECT_EQ(desc.features, ATTUNE_WINDOW | ATTUNE_SCALE | ATTUNE_SOFTCAP | ATTUNE_SINK | ATTUNE_USED_Q | ATTUNE_LSE |
                               ATTUNE_OVERLAP | ATTUNE_KV_READY | ATTUNE_F32_HIGH);
  EXPECT_EQ(desc.causal, ATTUNE_CAUSAL_TOP_LEFT);
  EXPECT_EQ(desc.window_left, 3);
  EXPECT_EQ(desc.window_right, -1);
  EXPECT_EQ(desc.scale, 0);
  EXPECT_EQ(desc.softcap, 30);
  EXPECT_EQ(desc.device_kind, ATTUNE_CUDA);
  EXPECT_EQ(desc.device_index, 2);
  EXPECT_EQ(desc.lse.head, rows);
  EXPECT_EQ(call.args().sink, sink);

  attune::Forward packed{.q = bshd(t.q.data(), 1, batch * rows, heads, dim),
                         .k = bshd(t.k.data(), 1, batch * keys, kv_heads, dim),
                         .v = bshd(t.v.data(), 1, batch * keys, kv_heads, dim),
                         .o = bshd(t.o.data(), 1, batch * rows, heads, dim),
                         .packed = attune::Packed{cu, cu, batch, rows, keys},
                         .lse = t.lse.data()};
  const attune_forward_desc packed_desc = packed.desc();
  EXPECT_EQ(packed_desc.features, ATTUNE_PACKED | ATTUNE_LSE);
  EXPECT_EQ(packed_desc.batch, batch);
  EXPECT_EQ(packed_desc.seq_q, rows);
  EXPECT_EQ(packed_desc.total_k, batch * keys);
  EXPECT_EQ(packed_desc.lse.head, batch * rows);
}

TEST(Cpp, ViewsKnowTheirStrides) {
  float data[1];
  const attune::OutView a = bshd(data, 2, 3, 4, 8);
  EXPECT_EQ(a.strides.batch, 96);
  EXPECT_EQ(a.strides.row, 32);
  EXPECT_EQ(a.strides.head, 8);
  EXPECT_EQ(a.dtype, attune::Dtype::f32);
  const attune::View b = bhsd(static_cast<const float*>(data), 2, 4, 3, 8);
  EXPECT_EQ(b.rows, 3);
  EXPECT_EQ(b.heads, 4);
  EXPECT_EQ(b.strides.row, 8);
  EXPECT_EQ(b.strides.head, 24);
  const MyHalf half[1] = {};
  EXPECT_EQ(bshd(half, 1, 1, 1, 1).dtype, attune::Dtype::f16);
  EXPECT_EQ(bshd(static_cast<const void*>(data), attune::Dtype::bf16, 1, 1, 1, 1).dtype, attune::Dtype::bf16);
}

TEST(Cpp, TensorsThatDoNotFitAreRefused) {
  Tensors t;
  attune::Forward call = t.call();
  call.v.rows = 4;
  EXPECT_EQ(refusal(call).first, ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(refusal(call).second, "v.rows is 4; it must equal k.rows (5)");
  call = t.call();
  call.o.heads = 3;
  EXPECT_EQ(refusal(call).second, "o.heads is 3; it must equal q.heads (4)");
  call = t.call();
  call.k.dim = 4;
  EXPECT_EQ(refusal(call).second, "k.dim is 4; it must equal q.dim (8)");
  call = t.call();
  call.k.dtype = attune::Dtype::f16;
  EXPECT_EQ(refusal(call).second, "k.dtype is 0; it must equal q.dtype (2)");
  call = t.call();
  call.bias = attune::bias(t.q.data(), 1, 3, 1, keys);
  EXPECT_EQ(refusal(call).second, "bias.heads is 3; it must equal q.heads (4)");
  for (const float o : t.o) EXPECT_TRUE(std::isnan(o));
}

TEST(Cpp, ErrorsCarryStatusAndSentence) {
  Tensors t;
  attune::Forward call = t.call();
  call.softcap = -1;
  const auto [status, text] = refusal(call);
  EXPECT_EQ(status, ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(text, AllOf(HasSubstr("desc.softcap is -1"), HasSubstr("greater than 0")));
  EXPECT_EQ(text, attune_last_error());
  EXPECT_THROW(attune::Context({.kernel = "cpu/imaginary"}), attune::Error);
  EXPECT_THROW(attune::Context({.gomp_parallel = [](void (*)(void*), void*, unsigned, unsigned) {}}), attune::Error);
  EXPECT_THROW(attune::Context({.omp_get_max_threads = [] { return 1; }}), attune::Error);
}

TEST(Cpp, ContextsMove) {
  attune::Context first;
  attune_context* handle = first.handle();
  attune::Context second = std::move(first);
  EXPECT_EQ(second.handle(), handle);
  attune::Context third;
  third = std::move(second);
  EXPECT_EQ(third.handle(), handle);
  Tensors t;
  third.prepare(t.call());
  EXPECT_THAT(third.explain(t.call()), HasSubstr("problem: fwd b2 h4/2 q3 k5 d8 f32\n"));
  EXPECT_EQ(third.workspace_bytes(t.call()) % 256, 0u);
}

// Two halves of the keys, merged, are the whole.
TEST(Cpp, MergeJoinsHalves) {
  Tensors whole;
  attune::Context context;
  context.forward(whole.call());

  Tensors t;
  std::vector<float> first_o(t.o.size()), second_o(t.o.size()), first_lse(t.lse.size()), second_lse(t.lse.size());
  attune::Forward first = t.call(), second = t.call();
  first.k.rows = first.v.rows = 2;
  second.k.rows = second.v.rows = 3;
  second.k.data = t.k.data() + 2 * kv_heads * dim;
  second.v.data = t.v.data() + 2 * kv_heads * dim;
  first.o.data = first_o.data();
  first.lse = first_lse.data();
  second.o.data = second_o.data();
  second.lse = second_lse.data();
  context.forward(first);
  context.forward(second);
  context.merge({.parts = {{first.o, first.lse}, {second.o, second.lse}}, .o = t.call().o, .lse = t.lse.data()});
  expect_near(t.o, whole.o);
  expect_near(t.lse, whole.lse);

  attune::Merge wrong{.parts = {{first.o, first.lse}, {second.o, second.lse}}, .o = t.call().o};
  wrong.parts[1].o.rows = 2;
  EXPECT_THROW(context.merge(wrong), attune::Error);
  EXPECT_THROW(context.merge({.o = t.call().o}), attune::Error);
}

struct Gradients {
  std::vector<float> dout = numbers(batch * rows * heads * dim, 4);
  std::vector<float> dq = std::vector<float>(batch * rows * heads * dim, NAN);
  std::vector<float> dk = std::vector<float>(batch * keys * kv_heads * dim, NAN), dv = dk;

  attune::Backward call(const attune::Forward& forward) {
    return {.forward = forward,
            .dout = bshd(dout.data(), batch, rows, heads, dim),
            .dq = bshd(dq.data(), batch, rows, heads, dim),
            .dk = bshd(dk.data(), batch, keys, kv_heads, dim),
            .dv = bshd(dv.data(), batch, keys, kv_heads, dim)};
  }
};

// By the slope of the sum of dout * o.
double slope(Tensors& t, const Gradients& g, float& element) {
  const auto loss = [&] {
    const std::vector<float> o = expected(t);
    return std::inner_product(o.begin(), o.end(), g.dout.begin(), 0.0);
  };
  const float before = element;
  element = before + 0x1p-5f;
  const double high = loss();
  element = before - 0x1p-5f;
  const double low = loss();
  element = before;
  return (high - low) * 16;
}

TEST(CppBackward, GivesTheSlopes) {
  attune::Context context;
  Tensors t;
  Gradients g;
  const attune::Forward forward = t.call();
  context.forward(forward);
  const attune::Backward call = g.call(forward);
  context.prepare(call);
  EXPECT_EQ(context.workspace_bytes(call), 0u);
  EXPECT_THAT(context.explain(call), HasSubstr("cpu/bwd"));
  context.backward(call);
  for (size_t i = 0; i < t.q.size(); i += 17) EXPECT_NEAR(g.dq[i], slope(t, g, t.q[i]), 2e-3) << i;
  for (size_t i = 0; i < t.k.size(); i += 13) {
    EXPECT_NEAR(g.dk[i], slope(t, g, t.k[i]), 2e-3) << i;
    EXPECT_NEAR(g.dv[i], slope(t, g, t.v[i]), 2e-3) << i;
  }
}

TEST(CppBackward, GradientsOfSinkBiasAndLse) {
  attune::Context context;
  Tensors t;
  Gradients g;
  const std::vector<float> sink(heads, 0.5f), bias = numbers(heads * keys, 5), dlse(t.lse.size(), 1.0f);
  std::vector<float> dsink(heads, NAN), dbias(heads * keys, NAN);
  attune::Forward forward = t.call();
  forward.sink = sink.data();
  forward.bias = attune::bias(bias.data(), 1, heads, 1, keys);
  context.forward(forward);
  attune::Backward call = g.call(forward);
  std::fill(g.dout.begin(), g.dout.end(), 0.0f);
  call.dlse = dlse.data();
  call.dsink = dsink.data();
  call.dbias = dbias.data();
  context.backward(call);
  // What arrives at an LSE is shared out by weight among keys and sink: in all one for each row.
  for (int64_t h = 0; h < heads; ++h) {
    double sum = dsink[static_cast<size_t>(h)];
    for (int64_t j = 0; j < keys; ++j) sum += dbias[static_cast<size_t>(h * keys + j)];
    EXPECT_NEAR(sum, double{batch * rows}, 1e-5);
  }
}

TEST(CppBackward, TensorsThatDoNotFitAreRefused) {
  attune::Context context;
  Tensors t;
  Gradients g;
  attune::Backward call = g.call(t.call());
  call.dk.rows = keys - 1;
  try {
    context.backward(call);
    ADD_FAILURE() << "it was taken";
  } catch (const attune::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("dk.rows is 4; it must equal forward.k.rows (5)"));
  }
}

}  // namespace
