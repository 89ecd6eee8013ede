#include "jit/store.hpp"

#include <chrono>

#include "core/error.hpp"
#include "jit/embedded.hpp"
#include "jit/nvrtc.hpp"
#include "jit/paths.hpp"

namespace attune::jit {
namespace {

std::shared_ptr<Built> built_from(std::string cubin, BuildReport report, const Key& key, Origin origin,
                                  std::string_view compiler_version) {
  auto built = std::make_shared<Built>();
  built->info = read_cubin(cubin);
  built->cubin = std::move(cubin);
  built->report = std::move(report);
  built->key = key;
  built->origin = origin;
  built->compiler_version = compiler_version;
  built->measured = compiler_version == measured_nvrtc_version;
  return built;
}

// What came from a file is believed only if it reads as a kernel; nullptr otherwise.
std::shared_ptr<const Built> believed(CacheEntry entry, const Key& key, Origin origin,
                                      std::string_view compiler_version) {
  try {
    return built_from(std::move(entry.cubin), std::move(entry.report), key, origin, compiler_version);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

std::string_view name_of(Origin origin) {
  switch (origin) {
    case Origin::pack:
      return "pack";
    case Origin::cache:
      return "cache";
    case Origin::compiled:
      break;
  }
  return "compiled";
}

StoreOptions store_options_from_environment() {
  StoreOptions options;
  options.sources = Sources::from_environment();
  options.cache_directory = default_cache_directory();
  options.cache_bytes = default_cache_bytes();
  if (const std::string directory = environment("ATTUNE_PACK_DIR"); !directory.empty())
    options.pack_directories = {absolute(directory)};
  else
    options.pack_directories = {library_directory(), library_directory() + "/attune"};
  options.compile = environment("ATTUNE_JIT") != "0";
  options.find_compiler = find_nvrtc;
  return options;
}

Store::Store(StoreOptions options)
    : options_(std::move(options)), cache_(options_.cache_directory, options_.cache_bytes) {}

Key Store::content_of(const std::string& unit_text, const std::string& arch) {
  if (!options_.sources.constant()) return content_key(unit_text, options_.sources.closure(unit_text), arch);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = contents_.find({unit_text, arch}); known != contents_.end()) return known->second;
  }
  const Key content = content_key(unit_text, options_.sources.closure(unit_text), arch);
  const std::lock_guard lock(mutex_);
  return contents_.try_emplace({unit_text, arch}, content).first->second;
}

std::shared_ptr<const Built> Store::find(const DeviceUnit& unit, const std::string& arch, int newest_major) {
  const Key content = content_of(source_of(unit), arch);
  const std::lock_guard lock(mutex_);
  const auto entry = made_.find({content, newest_major});
  if (entry == made_.end() || entry->second.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return nullptr;
  return entry->second.get();
}

std::shared_ptr<const Built> Store::get(const DeviceUnit& unit, const std::string& arch, int newest_major) {
  const Key content = content_of(source_of(unit), arch);
  const std::pair memory_key(content, newest_major);

  std::promise<Result> promise;
  std::shared_future<Result> future;
  bool ours = false;
  {
    const std::lock_guard lock(mutex_);
    auto [entry, added] = made_.try_emplace(memory_key);
    if (added) entry->second = promise.get_future().share();
    future = entry->second;
    ours = added;
  }
  if (!ours) return future.get();

  try {
    promise.set_value(make(unit, arch, content, newest_major));
  } catch (...) {
    // Those who wait get the same error; the next call tries again.
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    made_.erase(memory_key);
  }
  return future.get();
}

std::shared_ptr<const Built> Store::make(const DeviceUnit& unit, const std::string& arch, const Key& content,
                                         int newest_major) {
  for (const Pack& pack : packs_for(arch)) {
    if (major_of(pack.compiler_version()) > newest_major) continue;
    const Key key = cubin_key(content, pack.compiler_version());
    if (auto cubin = pack.load(key))
      if (Result built = believed({std::move(*cubin), {}}, key, Origin::pack, pack.compiler_version())) return built;
  }

  const auto from_cache = [&](const std::string& version) -> Result {
    const Key key = cubin_key(content, version);
    auto entry = cache_.load(key);
    return entry ? believed(std::move(*entry), key, Origin::cache, version) : nullptr;
  };
  // What the measured compiler made is the better kernel, whatever compiler is here now, if any.
  if (major_of(measured_nvrtc_version) <= newest_major)
    if (Result built = from_cache(measured_nvrtc_version)) return built;

  if (!options_.compile)
    fail(ATTUNE_NOT_BUILT, "{} for {} is neither in a pack ({}) nor in the cache ({}), and ATTUNE_JIT=0",
         label_of(unit), arch, fmt::join(options_.pack_directories, ", "), cache_.describe());
  const Compiler& compiler = options_.find_compiler(newest_major);
  if (!compiler.measured())
    if (Result built = from_cache(compiler.version())) return built;
  return compile(unit, arch, content, compiler);
}

std::shared_ptr<const Built> Store::compile(const DeviceUnit& unit, const std::string& arch, const Key& content,
                                            const Compiler& compiler) {
  const std::string text = source_of(unit);
  Compiled compiled;
  try {
    compiled = compiler.compile(text, options_.sources.closure(text), arch);
  } catch (const Error& error) {
    fail(error.status, "{}: {}", label_of(unit), error.what());
  }
  const BuildReport& report = compiled.report;
  if (!compiler.measured() && !report.clean())
    fail(ATTUNE_COMPILE_ERROR,
         "{} for {}: NVRTC {} makes it spill {} bytes, use {} bytes of stack{}{}; kernels are measured with NVRTC {}, "
         "which "
         "does not: install that one or set ATTUNE_NVRTC",
         label_of(unit), arch, compiler.version(), report.spill_store_bytes, report.stack_bytes,
         report.ignored_setmaxnreg ? ", ignore setmaxnreg" : "", report.serialised_wgmma ? ", serialise wgmma" : "",
         measured_nvrtc_version);

  const Key key = cubin_key(content, compiler.version());
  auto built = built_from(std::move(compiled.cubin), report, key, Origin::compiled, compiler.version());
  cache_.save(key, built->cubin, report);
  built->cache_troubles = cache_.troubles();
  built->compile_seconds = compiled.seconds;
  return built;
}

const std::vector<Pack>& Store::packs_for(const std::string& arch) {
  const std::lock_guard lock(mutex_);
  const auto [entry, added] = packs_.try_emplace(arch);
  if (!added) return entry->second;
  for (const std::string& directory : options_.pack_directories) {
    const std::string file = fmt::format("{}/{}", directory, pack_file_name(arch));
    if (!exists(file)) continue;
    try {
      Pack pack(file);
      if (pack.arch() != arch) fail(ATTUNE_COMPILE_ERROR, "pack {}: it is for {}", file, pack.arch());
      entry->second.push_back(std::move(pack));
    } catch (const Error& error) {
      complaints_.emplace_back(error.what());
    }
  }
  return entry->second;
}

std::string Store::describe(int newest_major) {
  std::string text = fmt::format("device sources: {}\n", options_.sources.origin());
  text += fmt::format("kernel cache: {}\n", cache_.describe());
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [arch, packs] : packs_)
      for (const Pack& pack : packs)
        text += fmt::format("pack: {}, {} kernels, NVRTC {}\n", arch, pack.size(), pack.compiler_version());
    for (const std::string& complaint : complaints_) text += complaint + '\n';
  }
  if (!options_.compile) return text + "compiler: switched off (ATTUNE_JIT=0)\n";
  try {
    const Compiler& compiler = options_.find_compiler(newest_major);
    text += fmt::format("compiler: NVRTC {}{}, {}\n", compiler.version(), compiler.measured() ? "" : " (unmeasured)",
                        compiler.where());
  } catch (const Error& error) {
    text += fmt::format("compiler: {}\n", error.what());
  }
  return text;
}

}  // namespace attune::jit
