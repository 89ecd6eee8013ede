#include "lab/pack/manifest.hpp"

#include <toml++/toml.h>
#include <fstream>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "gpu/kernel.hpp"

namespace attune::lab {
namespace {

[[noreturn]] void wrong(const toml::node& node, const std::string& what) {
  fail(ATTUNE_INVALID_ARGUMENT, "manifest line {}: {}", node.source().begin.line, what);
}

std::vector<std::string> strings_of(const toml::table& row, const toml::node* node, std::string_view name) {
  const toml::array* array = node == nullptr ? nullptr : node->as_array();
  if (array == nullptr) wrong(row, fmt::format("{} must be a list of strings", name));
  std::vector<std::string> values;
  for (const toml::node& item : *array) {
    const auto value = item.value<std::string>();
    if (!value) wrong(item, fmt::format("{} must be a list of strings", name));
    values.push_back(*value);
  }
  return values;
}

int number_of(const toml::table& row, std::string_view name) {
  const auto value = row[name].value<int64_t>();
  if (!value || *value < 1) wrong(row, fmt::format("{} must be a number above 0", name));
  return static_cast<int>(*value);
}

// The texts that result when every word in braces is replaced by each of its values.
std::vector<std::string> expand(const toml::table& row) {
  std::vector<std::string> texts = {row["problem"].value_or(std::string())};
  const toml::table* each = row["each"].as_table();
  if (each == nullptr) return texts;
  for (const auto& [name, values] : *each) {
    const std::string placeholder = fmt::format("{{{}}}", name.str());
    std::vector<std::string> replaced;
    for (const std::string& text : texts) {
      const size_t at = text.find(placeholder);
      if (at == std::string::npos) wrong(row, fmt::format("the problem has no {}", placeholder));
      for (const std::string& value : strings_of(row, &values, name.str()))
        replaced.push_back(std::string(text).replace(at, placeholder.size(), value));
    }
    texts = std::move(replaced);
  }
  return texts;
}

bool all_configs(const toml::table& row) {
  const std::string configs = row["configs"].value_or(std::string("best"));
  if (configs != "best" && configs != "all") wrong(row, fmt::format("configs is '{}', not best or all", configs));
  return configs == "all";
}

struct ConfiguredUnit {
  std::string config;
  jit::DeviceUnit unit;
};

std::vector<ConfiguredUnit> units_of(const toml::table& row, const std::string& kernel, const std::string& text,
                                     const gpu::DeviceProperties& device) {
  const gpu::GpuKernel& found = gpu::find_gpu_kernel(kernel);
  Problem problem = parse_problem(text);
  problem.device_kind = DeviceKind::cuda;
  if (const std::string refusal = found.refusal_on(problem, device); !refusal.empty())
    wrong(row, fmt::format("{} does not take '{}' on {}: {}", kernel, text, device.arch(), refusal));
  std::vector<ConfiguredUnit> units;
  std::vector<std::string> configs = found.space(problem, device);
  if (!all_configs(row)) configs.resize(1);
  for (const std::string& config : configs)
    for (gpu::Step& step : found.recipe(problem, device, config).steps) units.push_back({config, std::move(step.unit)});
  return units;
}

}  // namespace

std::vector<Promise> read_manifest(std::string_view text) {
  toml::table manifest;
  try {
    manifest = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(ATTUNE_INVALID_ARGUMENT, "manifest line {}: {}", error.source().begin.line, error.description());
  }
  static const std::set<std::string_view> known = {"kernel",     "problem",       "each",    "archs", "registers",
                                                   "smem_bytes", "blocks_per_sm", "configs", "packed"};
  std::vector<Promise> promises;
  std::set<std::pair<std::string, std::string>> seen;  // unit, arch
  const toml::array* rows = manifest["kernel"].as_array();
  if (rows == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "the manifest has no [[kernel]]");
  for (const toml::node& node : *rows) {
    const toml::table* row = node.as_table();
    if (row == nullptr) wrong(node, "[[kernel]] must be a table");
    for (const auto& [name, value] : *row)
      if (!known.contains(name.str())) wrong(value, fmt::format("there is no '{}'", name.str()));
    const auto kernel = (*row)["kernel"].value<std::string>();
    if (!kernel) wrong(*row, "kernel must be a name");
    const Ceilings ceilings{number_of(*row, "registers"), number_of(*row, "smem_bytes"),
                            number_of(*row, "blocks_per_sm")};
    for (const std::string& arch : strings_of(*row, row->get("archs"), "archs"))
      for (const std::string& problem : expand(*row))
        for (auto& [config, unit] : units_of(*row, *kernel, problem, gpu::typical_device(arch)))
          if (seen.emplace(source_of(unit), arch).second)
            promises.push_back(
                {*kernel, problem, arch, (*row)["packed"].value_or(true), ceilings, config, std::move(unit)});
  }
  return promises;
}

std::vector<Promise> read_manifest_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ATTUNE_INVALID_ARGUMENT, "cannot read the manifest {}", path);
  std::ostringstream text;
  text << file.rdbuf();
  return read_manifest(text.str());
}

}  // namespace attune::lab
