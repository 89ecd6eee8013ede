// wgmma. A product is done at some moment between its issue by the last thread of the warpgroup and the wait for it.
// Until a thread has waited, its accumulators hold NaN, whenever the product was done.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/convert.hpp"
#include "tests/sm90_emulated/state.hpp"

namespace attune::emulator {
namespace {

constexpr int rows = 64, depth = 16;
constexpr uint32_t in_flight = 0x7fc0'f117;  // a NaN that no instruction makes

// The hardware's swizzle exchanges bits of the address: 4.. with 7.., as many as the span has 16-byte chunks.
uint32_t swizzled(uint32_t address, uint32_t span_bytes) { return address ^ ((address >> 3) & (span_bytes - 16)); }

// The shared-memory operand of a product, as its descriptor tells.
struct Operand16 {
  uint32_t start, leading, stride, span;

  explicit Operand16(uint64_t descriptor) {
    constexpr uint32_t spans[] = {16, 128, 64, 32};
    start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
    leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
    stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
    span = spans[descriptor >> 62];
    if ((descriptor >> 49 & 7) != 0) throw Failure("a product has a descriptor with a base offset");
  }

  // Eight elements that lie together: k-major of row r the half h of the sixteen; mn-major of index k rows 8h to 8h+7.
  uint32_t k_major(int r, int h) const {
    const uint32_t group = static_cast<uint32_t>(r / 8) * stride, inside = static_cast<uint32_t>(r % 8) * span;
    const uint32_t half = static_cast<uint32_t>(h) * (span == 16 ? leading : 16);
    return swizzled(start + group + inside + half, span);
  }
  uint32_t mn_major(int k, int h) const {
    const int chunks = static_cast<int>(span / 16);  // of a row of a panel
    const uint32_t panel = static_cast<uint32_t>(h / chunks) * (span == 16 ? stride : leading);
    const uint32_t group = static_cast<uint32_t>(k / 8) * (span == 16 ? leading : stride);
    const uint32_t inside = static_cast<uint32_t>(k % 8) * span + static_cast<uint32_t>(h % chunks) * 16;
    return swizzled(start + panel + group + inside, span);
  }

  template <typename Visit>
  void each_chunk(int count, bool mn_major_order, Visit visit) const {
    if (mn_major_order) {
      for (int k = 0; k < depth; ++k)
        for (int h = 0; h < count / 8; ++h) visit(mn_major(k, h), h * 8, k);
    } else {
      for (int r = 0; r < count; ++r)
        for (int h = 0; h < 2; ++h) visit(k_major(r, h), r, h * 8);
    }
  }

  Range range(const Cta& cta, int count, bool mn_major_order) const {
    Range range{&cta, ~0u, 0};
    each_chunk(count, mn_major_order, [&](uint32_t address, int, int) {
      range.begin = std::min(range.begin, address);
      range.end = std::max(range.end, address + 16);
    });
    return range;
  }
};

const float* f16_table() {
  static const std::vector<float> table = [] {
    std::vector<float> values(65536);
    for (size_t i = 0; i < values.size(); ++i) values[i] = f16_to_float(static_cast<uint16_t>(i));
    return values;
  }();
  return table.data();
}

float value_of(uint16_t bits, device::Dtype dtype, const float* table) {
  return dtype == device::Dtype::bf16 ? std::bit_cast<float>(uint32_t{bits} << 16) : table[bits];
}

// By k and then by row or column: out[k * count + i].
void unpack(const Cta& cta, const Operand16& operand, int count, bool mn_major, device::Dtype dtype, float* out) {
  const float* const table = f16_table();
  const Range all = operand.range(cta, count, mn_major);
  if (all.begin < first_address || all.end > first_address + cta.smem_bytes)
    throw Failure(
        fmt::format("a product of {} reads {}, outside its {} bytes", cta.name(), text_of(all), cta.smem_bytes));
  operand.each_chunk(count, mn_major, [&](uint32_t address, int first, int k) {
    uint16_t bits[8];
    std::memcpy(bits, memory_at(address, cta), sizeof bits);
    for (int i = 0; i < 8; ++i)
      if (mn_major)
        out[k * count + first + i] = value_of(bits[i], dtype, table);
      else
        out[(k + i) * count + first] = value_of(bits[i], dtype, table);
  });
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
void multiply(const float* __restrict a, const float* __restrict b, float* __restrict d, int n, bool accumulate) {
  constexpr int width = 8;  // accumulators that stay in registers
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < n; column += width) {
      float* const out = d + row * n + column;
      float sums[width];
      for (int i = 0; i < width; ++i) sums[i] = accumulate ? out[i] : 0;
      for (int k = 0; k < depth; ++k)
        for (int i = 0; i < width; ++i) sums[i] += a[k * rows + row] * b[k * n + column + i];
      for (int i = 0; i < width; ++i) out[i] = sums[i];
    }
}

// Where register i of a thread of the warpgroup lies in the 64 rows of n.
int place_of(unsigned thread, int register_index, int n) {
  const int warp = static_cast<int>(thread / 32), lane = static_cast<int>(thread % 32), i = register_index;
  return (16 * warp + lane / 4 + i / 2 % 2 * 8) * n + i / 4 * 8 + lane % 4 * 2 + i % 2;
}

std::string form_of(const ProductForm& form) {
  return fmt::format("64 x {} of {}, A {}, B {}", form.n, form.dtype == device::Dtype::bf16 ? "bf16" : "f16",
                     form.a_in_registers  ? "in registers"
                     : form.a_is_mn_major ? "mn-major"
                                          : "k-major",
                     form.b_is_mn_major ? "mn-major" : "k-major");
}

std::vector<Range> ranges_of(const Cta& cta, const Product& product) {
  std::vector<Range> ranges = {Operand16(product.b).range(cta, product.form.n, product.form.b_is_mn_major)};
  if (!product.form.a_in_registers) ranges.push_back(Operand16(product.a).range(cta, rows, product.form.a_is_mn_major));
  return ranges;
}

std::string name_of(const Warpgroup& warpgroup) {
  return fmt::format("{} warpgroup {}", warpgroup.cta->name(), warpgroup.first_thread / 128);
}

// The accumulators of the thread, which it gives away for now.
Chain& join_chain(Warpgroup& warpgroup, Product& product, float* accumulators) {
  Lane& lane = *current;
  const unsigned t = lane.thread - warpgroup.first_thread;
  const int count = product.form.n / 2;
  for (Chain* chain : lane.chains) {
    float* const begin = chain->registers[t];
    if (accumulators + count <= begin || begin + chain->n / 2 <= accumulators) continue;
    if (begin != accumulators || chain->n != product.form.n)
      fail(fmt::format("issues a product of n {} on some of the accumulators of one of n {} that it has not waited for",
                       product.form.n, chain->n));
    if (product.chain != nullptr && product.chain != chain) fail("issues a product on other accumulators than others");
    return *chain;
  }
  if (!lane.fenced) fail("issues a product on registers it has used since, without wgmma_fence");
  if (product.chain == nullptr) {
    Chain& chain = warpgroup.chains.emplace_back();
    chain.n = product.form.n;
    chain.values.resize(static_cast<size_t>(rows) * chain.n);
    product.chain = &chain;
  }
  Chain& chain = *product.chain;
  if (chain.registers[t] != nullptr) fail("issues a product on other accumulators than others");
  chain.registers[t] = accumulators;
  lane.chains.push_back(&chain);
  for (int i = 0; i < count; ++i) {
    chain.values[static_cast<size_t>(place_of(t, i, chain.n))] = accumulators[i];
    accumulators[i] = std::bit_cast<float>(in_flight);
  }
  return chain;
}

// Gives accumulators back whose products are all among the first `finished`.
void settle(Lane& lane, uint32_t finished) {
  Warpgroup& warpgroup = *lane.warp->warpgroup;
  const unsigned t = lane.thread - warpgroup.first_thread;
  for (const HeldRegisters& held : lane.held)
    if (held.product < finished && std::memcmp(held.registers, held.values.data(), sizeof held.values) != 0)
      fail("changed A registers of a product before it waited for it");
  std::erase_if(lane.held, [&](const HeldRegisters& held) { return held.product < finished; });
  std::erase_if(lane.chains, [&](Chain* chain) {
    if (chain->last_product[t] >= finished) return false;
    for (int i = 0; i < chain->n / 2; ++i) {
      float& accumulator = chain->registers[t][i];
      if (std::bit_cast<uint32_t>(accumulator) != in_flight)
        fail(fmt::format("changed accumulator {} of a product before it waited for it", i));
      accumulator = chain->values[static_cast<size_t>(place_of(t, i, chain->n))];
    }
    if (++chain->settled == 128) warpgroup.chains.remove_if([&](const Chain& other) { return &other == chain; });
    lane.fenced = false;
    return true;
  });
}

}  // namespace

void product_fence() {
  whole_warp("wgmma.fence");
  current->fenced = true;
}

void issue_product(const ProductForm& form, float* accumulators, const uint32_t* a_registers, uint64_t a, uint64_t b,
                   bool accumulate) {
  Lane& lane = *current;
  Warpgroup& warpgroup = *lane.warp->warpgroup;
  const unsigned t = lane.thread - warpgroup.first_thread;
  const uint32_t number = lane.products++;
  if (number < warpgroup.done) fail("issues a product that the rest of its warpgroup has done");
  if (number - warpgroup.done == warpgroup.products.size()) {
    Product& product = warpgroup.products.emplace_back();
    product.form = form;
    product.a = a, product.b = b;
    product.accumulate = accumulate;
    for (const Range& range : ranges_of(*warpgroup.cta, product))
      for (const Transport& transport : machine->transports)
        for (const Range& written : transport.writes)
          if (range.overlaps(written))
            note("read early",
                 fmt::format("issued a product that reads {} while {} was under way", text_of(range), transport.what));
  }
  Product& product = warpgroup.products[number - warpgroup.done];
  if (!(product.form == form) || product.a != a || product.b != b || product.accumulate != accumulate)
    fail(fmt::format("issues a product ({}) that differs from that of other threads of its warpgroup ({})",
                     form_of(form), form_of(product.form)));
  Chain& chain = join_chain(warpgroup, product, accumulators);
  chain.last_product[t] = number;
  product.chain = &chain;
  if (form.a_in_registers) {
    std::copy_n(a_registers, 4, product.a_registers[t].begin());
    lane.held.push_back({number, a_registers, product.a_registers[t]});
  }
  ++product.issued;
}

void commit_products() {
  whole_warp("wgmma.commit_group");
  current->groups.push_back(current->products);
  maybe_pause();
}

void wait_for_products(unsigned pending) {
  whole_warp("wgmma.wait_group");
  Lane& lane = *current;
  if (lane.groups.size() <= pending) return;
  const uint32_t finished = lane.groups[lane.groups.size() - 1 - pending];
  lane.groups.erase(lane.groups.begin(), lane.groups.end() - pending);
  Warpgroup& warpgroup = *lane.warp->warpgroup;
  if (warpgroup.done < finished) {
    warpgroup.waiting.emplace_back(&lane, finished);
    machine->wait([&warpgroup, finished] {
      const unsigned issued = warpgroup.products.empty() ? 0 : warpgroup.products.front().issued;
      return fmt::format("products up to number {}: {} are done, and {} of 128 threads have issued the next", finished,
                         warpgroup.done, issued);
    });
  }
  settle(lane, finished);
}

void perform_product(Warpgroup& warpgroup) {
  const Product& product = warpgroup.products.front();
  const ProductForm& form = product.form;
  thread_local std::vector<float> a(rows * depth), b(256 * depth);
  if (form.a_in_registers) {
    const float* const table = f16_table();
    for (int t = 0; t < 128; ++t)
      for (int i = 0; i < 8; ++i) {
        const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, k = t % 4 * 2 + i % 2 + i / 4 * 8;
        const auto bits = static_cast<uint16_t>(product.a_registers[static_cast<size_t>(t)][i / 2] >> (i % 2 * 16));
        a[static_cast<size_t>(k * rows + row)] = value_of(bits, form.dtype, table);
      }
  } else {
    unpack(*warpgroup.cta, Operand16(product.a), rows, form.a_is_mn_major, form.dtype, a.data());
  }
  unpack(*warpgroup.cta, Operand16(product.b), form.n, form.b_is_mn_major, form.dtype, b.data());
  multiply(a.data(), b.data(), product.chain->values.data(), form.n, product.accumulate);
  warpgroup.products.pop_front();
  ++warpgroup.done;
  ++machine->progress;
  std::erase_if(warpgroup.waiting, [&](const std::pair<Lane*, uint32_t>& wait) {
    if (warpgroup.done < wait.second) return false;
    machine->wake(*wait.first);
    return true;
  });
}

void check_overwritten_products(const Range& written, const std::string& by) {
  for (const Cta& cta : machine->ctas)
    if (&cta == written.cta)
      for (const Warpgroup& warpgroup : cta.warpgroups)
        for (const Product& product : warpgroup.products)
          for (const Range& read : ranges_of(cta, product))
            if (read.overlaps(written))
              return note("overwritten", fmt::format("started {} while a product of {} that reads {} was not done", by,
                                                     name_of(warpgroup), text_of(read)));
}

void note_unsettled(const Lane& lane) {
  if (!lane.chains.empty()) note("unsettled", "ended without having waited for its products");
}

}  // namespace attune::emulator
