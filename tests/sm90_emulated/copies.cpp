// The copy engine: boxes of tensors, blocks of bytes, stores into other CTAs, and the copies of ordinary threads.
#include <algorithm>
#include <cstring>

#include "tests/sm90_emulated/state.hpp"
#include "tests/sm90_emulated/tensor_map.hpp"

namespace attune::emulator {
namespace {

const BoxMap& map_of(const device::TensorMap& map) {
  const auto& box = reinterpret_cast<const BoxMap&>(map);
  if (box.magic != BoxMap::seal) fail("uses a tensor map that was not encoded");
  if (box.swizzle != 0 && box.box[0] * box.element_bytes != 16 << box.swizzle)
    fail("uses a tensor map whose rows are narrower than its swizzle, which is not emulated");
  return box;
}

size_t box_bytes(const BoxMap& map) {
  size_t bytes = map.element_bytes;
  for (const uint16_t extent : map.box) bytes *= extent;
  return bytes;
}

// Calls visit(shared offset, global pointer or null, bytes) for every 16 bytes of the box: null outside the tensor. Of
// 16 bytes that only begin inside, `bytes` are.
template <typename Visit>
void each_chunk(const BoxMap& map, const int (&at)[5], Visit visit) {
  const size_t row_bytes = size_t{map.box[0]} * map.element_bytes;
  size_t offset = 0;
  for (int i4 = 0; i4 < map.box[4]; ++i4)
    for (int i3 = 0; i3 < map.box[3]; ++i3)
      for (int i2 = 0; i2 < map.box[2]; ++i2)
        for (int i1 = 0; i1 < map.box[1]; ++i1) {
          const int64_t index[5] = {at[0], int64_t{at[1]} + i1, int64_t{at[2]} + i2, int64_t{at[3]} + i3,
                                    int64_t{at[4]} + i4};
          bool inside = true;
          char* row = map.base;
          for (int d = 1; d < 5; ++d) {
            inside = inside && index[d] >= 0 && index[d] < static_cast<int64_t>(map.dims[d]);
            if (inside) row += index[d] * static_cast<int64_t>(map.strides[d - 1]);
          }
          const int64_t end = static_cast<int64_t>(map.dims[0]) * map.element_bytes;
          for (size_t x = 0; x < row_bytes; x += 16, offset += 16) {
            const int64_t begin = index[0] * map.element_bytes + static_cast<int64_t>(x);
            const int64_t first = std::max<int64_t>(begin, 0), last = std::min<int64_t>(begin + 16, end);
            if (inside && first < last)
              visit(offset, static_cast<size_t>(first - begin), row + first, static_cast<size_t>(last - first));
            else
              visit(offset, size_t{0}, static_cast<char*>(nullptr), size_t{0});
          }
        }
}

// Where a chunk of a box that begins at `address` lies, as an offset into the box.
size_t swizzled(const BoxMap& map, uint32_t address, size_t offset) {
  constexpr uint32_t spans[] = {16, 32, 64, 128};
  const auto at = address + static_cast<uint32_t>(offset);
  return (at ^ ((at >> 3) & (spans[map.swizzle] - 16))) - address;
}

void begin(Transport transport) {
  for (const Range& range : transport.writes) {
    check_overwritten_products(range, transport.what);
    for (const Transport& other : machine->transports)
      for (const Range& written : other.writes)
        if (range.overlaps(written))
          note("written twice", fmt::format("started {} while {} was under way", transport.what, other.what));
  }
  machine->transports.push_back(std::move(transport));
  maybe_pause();
}

void spoil(const Range& range) {
  const std::vector<char> poison(range.end - range.begin, static_cast<char>(0xff));
  deliver(range, poison.data());
}

void add_floats(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 4) {
    float x, y;
    std::memcpy(&x, to + i, 4);
    std::memcpy(&y, from + i, 4);
    x += y;
    std::memcpy(to + i, &x, 4);
  }
}
void put(char* to, const char* from, size_t bytes, Transfer transfer) {
  if (transfer == Transfer::copy)
    std::memcpy(to, from, bytes);
  else
    add_floats(to, from, bytes);
}

void check_block(const void* destination, const void* source, uint32_t bytes) {
  if (reinterpret_cast<uintptr_t>(destination) % 16 != 0 || reinterpret_cast<uintptr_t>(source) % 16 != 0 ||
      bytes % 16 != 0 || bytes == 0)
    fail(fmt::format("copies {} bytes from {} to {}: not all are multiples of 16", bytes, source, destination));
}

void keep(std::shared_ptr<Store> store) {
  current->open_stores.push_back(store);
  machine->stores.push_back(std::move(store));
  maybe_pause();
}

}  // namespace

void check_map(const device::TensorMap& map) { map_of(map); }

void load_box(void* destination, const device::TensorMap& tensor_map, uint64_t* barrier, uint32_t cta_mask,
              const int (&coordinates)[5]) {
  const BoxMap& map = map_of(tensor_map);
  check_barrier(barrier);
  const size_t bytes = box_bytes(map);
  const uint32_t address = shared_address(destination);
  if (address % 128 != 0) fail("loads a box to an address that is no multiple of 128");
  Transport transport;
  const Range own = range_of(destination, bytes);
  transport.what = fmt::format("the load of a box at ({}, {}, {}, {}, {}) into {}", coordinates[0], coordinates[1],
                               coordinates[2], coordinates[3], coordinates[4], text_of(own));
  std::vector<uint64_t*> barriers;
  for (unsigned cta = 0; cta < machine->ctas.size(); ++cta) {
    if (cta_mask == 0 ? cta != cluster_rank() : (cta_mask >> cta & 1) == 0) continue;
    const auto* const there = static_cast<const char*>(shared_pointer(remote_address(address, cta), bytes));
    transport.writes.push_back(range_of(there, bytes));
    barriers.push_back(static_cast<uint64_t*>(shared_pointer(remote_address(shared_address(barrier), cta), 8)));
    spoil(transport.writes.back());
  }
  transport.perform = [map, barriers, writes = transport.writes, address, bytes, at = std::to_array(coordinates)] {
    int c[5];
    std::ranges::copy(at, c);
    std::vector<char> image(bytes);
    each_chunk(map, c, [&](size_t offset, size_t skipped, const char* from, size_t count) {
      if (from != nullptr) std::memcpy(&image[swizzled(map, address, offset)] + skipped, from, count);
    });
    for (size_t i = 0; i < writes.size(); ++i) {
      deliver(writes[i], image.data());
      complete_bytes(barriers[i], static_cast<uint32_t>(bytes));
    }
  };
  begin(std::move(transport));
}

void load_bytes(void* destination, const void* source, uint32_t bytes, uint64_t* barrier) {
  check_block(destination, source, bytes);
  check_barrier(barrier);
  const Range range = range_of(destination, bytes);
  spoil(range);
  begin({fmt::format("the load of a block into {}", text_of(range)), {range}, [=] {
           deliver(range, source);
           complete_bytes(barrier, bytes);
         }});
}

void copy_to_remote(uint32_t address, const void* source, uint32_t bytes, uint32_t barrier) {
  char* const to = static_cast<char*>(shared_pointer(address, bytes));
  auto* const full = static_cast<uint64_t*>(shared_pointer(barrier, 8));
  check_block(to, source, bytes);
  const char* const from = seen_by_async(range_of(source, bytes));
  const Range range = range_of(to, bytes);
  spoil(range);
  begin({fmt::format("a copy into {} of {}", text_of(range), range.cta->name()), {range}, [=] {
           deliver(range, from);
           complete_bytes(full, bytes);
         }});
}

void store_to_remote(uint32_t address, const void* value, uint32_t bytes, uint32_t barrier) {
  char* const to = static_cast<char*>(shared_pointer(address, bytes));
  auto* const full = static_cast<uint64_t*>(shared_pointer(barrier, 8));
  if (address % bytes != 0) fail(fmt::format("stores {} bytes at an address that is no multiple of it", bytes));
  std::array<char, 16> values{};
  std::memcpy(values.data(), value, bytes);
  const Range range = range_of(to, bytes);
  spoil(range);
  // These are many, and small: nobody looks for one that overlaps another.
  machine->transports.push_back({"a store into another CTA", {}, [=] {
                                   deliver(range, values.data());
                                   complete_bytes(full, bytes);
                                 }});
}

// Stores to global memory, in two steps.

void advance(Store& store) {
  if (!store.has_read)
    store.has_read = true, store.read();
  else if (!store.has_written)
    store.has_written = true, store.write();
}

void store_box(const device::TensorMap& tensor_map, const void* source, const int (&coordinates)[5],
               Transfer transfer) {
  const BoxMap map = map_of(tensor_map);
  const size_t bytes = box_bytes(map);
  const uint32_t address = shared_address(source);
  if (address % 128 != 0) fail("stores a box from an address that is no multiple of 128");
  if (transfer == Transfer::add_floats && map.element_bytes != 4) fail("adds a box whose elements are not float32");
  for (const int c : coordinates)
    if (c < 0) fail(fmt::format("stores a box at the negative coordinate {}", c));
  const char* const from = seen_by_async(range_of(source, bytes));
  auto image = std::make_shared<std::vector<char>>(bytes);
  auto store = std::make_shared<Store>();
  store->read = [=] { std::memcpy(image->data(), from, bytes); };
  store->write = [map, address, image, transfer, at = std::to_array(coordinates)] {
    int c[5];
    std::ranges::copy(at, c);
    each_chunk(map, c, [&](size_t offset, size_t skipped, char* to, size_t count) {
      if (to != nullptr) put(to, &(*image)[swizzled(map, address, offset)] + skipped, count, transfer);
    });
  };
  keep(std::move(store));
}

void store_bytes(void* destination, const void* source, uint32_t bytes, Transfer transfer) {
  check_block(destination, source, bytes);
  const char* const from = seen_by_async(range_of(source, bytes));
  auto image = std::make_shared<std::vector<char>>(bytes);
  auto store = std::make_shared<Store>();
  store->read = [=] { std::memcpy(image->data(), from, bytes); };
  store->write = [=] { put(static_cast<char*>(destination), image->data(), bytes, transfer); };
  keep(std::move(store));
}

void commit_stores() {
  current->store_groups.push_back(std::move(current->open_stores));
  current->open_stores.clear();
}

// Nothing is read or written before it must be.
void wait_for_stores(unsigned pending, bool reads_only) {
  maybe_pause();
  auto& groups = current->store_groups;
  for (size_t i = 0; i + pending < groups.size(); ++i)
    for (const std::shared_ptr<Store>& store : groups[i]) {
      if (!store->has_read) advance(*store);
      if (!reads_only && !store->has_written) advance(*store);
    }
  if (!reads_only && groups.size() > pending) groups.erase(groups.begin(), groups.end() - pending);
}

// cp.async
namespace {

void finish(OneCopy& copy) {
  if (!copy.done) copy.perform();
  copy.done = true;
}

}  // namespace

void copy_16_bytes(void* destination, const void* source, int bytes) {
  if (bytes < 0 || bytes > 16 || reinterpret_cast<uintptr_t>(source) % 16 != 0 || shared_address(destination) % 16 != 0)
    fail(fmt::format("copies {} of 16 bytes from {} to {}", bytes, source, destination));
  range_of(destination, 16);
  const auto perform = [=] {
    char image[16] = {};
    std::memcpy(image, source, static_cast<size_t>(bytes));
    std::memcpy(destination, image, sizeof image);
  };
  current->open_copies.push_back(std::make_shared<OneCopy>(OneCopy{perform}));
}

void commit_copies() {
  current->copy_groups.push_back(std::move(current->open_copies));
  current->open_copies.clear();
}

void wait_for_copies(unsigned pending) {
  maybe_pause();
  auto& groups = current->copy_groups;
  if (groups.size() <= pending) return;
  for (size_t i = 0; i + pending < groups.size(); ++i)
    for (const auto& copy : groups[i]) finish(*copy);
  groups.erase(groups.begin(), groups.end() - pending);
}

void arrive_after_copies(uint64_t* barrier) {
  check_barrier(barrier);
  std::vector<std::shared_ptr<OneCopy>> copies;
  const auto collect = [&](std::vector<std::shared_ptr<OneCopy>>& list) {
    std::erase_if(list, [](const std::shared_ptr<OneCopy>& copy) { return copy->done; });
    std::ranges::copy(list, std::back_inserter(copies));
  };
  std::ranges::for_each(current->copy_groups, collect);
  collect(current->open_copies);
  machine->transports.push_back({"copies of a thread", {}, [=] {
                                   for (const auto& copy : copies) finish(*copy);
                                   arrive_from_machine(barrier);
                                 }});
}

namespace {

uint8_t element_bytes_of(gpu::CUtensorMapDataType type) {
  switch (type) {
    case gpu::CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case gpu::CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case gpu::CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return 4;
    default:
      return 2;
  }
}

}  // namespace

gpu::Driver driver_for_maps() {
  gpu::Driver driver;
  driver.version = 13000;
  driver.cuTensorMapEncodeTiled = [](gpu::CUtensorMap* out, gpu::CUtensorMapDataType type, uint32_t rank, void* address,
                                     const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                                     const uint32_t*, gpu::CUtensorMapInterleave, gpu::CUtensorMapSwizzle swizzle,
                                     gpu::CUtensorMapL2promotion, gpu::CUtensorMapFloatOOBfill) {
    BoxMap map{};
    map.magic = BoxMap::seal;
    map.base = static_cast<char*>(address);
    std::ranges::fill(map.dims, 1);
    std::ranges::fill(map.box, uint16_t{1});
    for (uint32_t i = 0; i < std::min(rank, 5u); ++i) {
      map.dims[i] = dims[i];
      map.box[i] = static_cast<uint16_t>(box[i]);
      if (i > 0) map.strides[i - 1] = strides[i - 1];
    }
    map.rank = static_cast<uint8_t>(rank);
    map.element_bytes = element_bytes_of(type);
    map.swizzle = static_cast<uint8_t>(swizzle);
    *out = {};
    std::memcpy(out, &map, sizeof map);
    return gpu::CUDA_SUCCESS;
  };
  return driver;
}

}  // namespace attune::emulator
