#include "lab/ladder/ladder.hpp"

#include <toml++/toml.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "core/error.hpp"
#include "jit/embedded.hpp"
#include "lab/ladder/unfused.hpp"
#include "lab/output.hpp"
#include "lab/sets.hpp"

namespace attune::jit {
extern const EmbeddedFile ladder_table[];  // lab/CMakeLists.txt
}

namespace attune::lab {
namespace {

constexpr std::string_view library_rung = "attune";

class LadderReader {
 public:
  explicit LadderReader(std::string_view file) : file_(file) {}

  Ladder read(std::string_view text) {
    toml::table root;
    try {
      root = toml::parse(text);
    } catch (const toml::parse_error& error) {
      fail(ATTUNE_INVALID_ARGUMENT, "{}, line {}: {}", file_, error.source().begin.line, error.description());
    }
    only(root, {"rung", "without"}, "it");
    for (const toml::table* table : tables(root, "rung")) ladder_.rungs.push_back(rung(*table));
    for (const toml::table* table : tables(root, "without")) ladder_.without.push_back(without(*table));
    if (ladder_.rungs.empty()) fail(ATTUNE_INVALID_ARGUMENT, "{}: there is no [[rung]]", file_);
    return std::move(ladder_);
  }

 private:
  void only(const toml::table& table, std::initializer_list<std::string_view> known, std::string_view where) const {
    for (const auto& [key, value] : table)
      if (std::ranges::find(known, key.str()) == known.end())
        fail(ATTUNE_INVALID_ARGUMENT, "{}: {} has the key '{}'; {} are allowed", file_, where, key.str(),
             fmt::join(known, ", "));
  }

  std::vector<const toml::table*> tables(const toml::table& root, const char* name) const {
    std::vector<const toml::table*> all;
    const toml::node* node = root.get(name);
    if (node == nullptr) return all;
    if (!node->is_array_of_tables())
      fail(ATTUNE_INVALID_ARGUMENT, "{}: {} is no list of tables; write [[{}]]", file_, name, name);
    for (const toml::node& each : *node->as_array()) all.push_back(each.as_table());
    return all;
  }

  std::string text(const toml::table& table, std::string_view key, std::string_view where) const {
    const auto value = table[key].value<std::string>();
    if (!value || value->empty()) fail(ATTUNE_INVALID_ARGUMENT, "{}: {}: {} is missing or no text", file_, where, key);
    return *value;
  }

  double number(const toml::table& table, std::string_view key, std::string_view where, double most) const {
    const auto value = table[key].value<double>();
    if (!value || !(*value > 0 && *value < most))
      fail(ATTUNE_INVALID_ARGUMENT, "{}: {}: {} is {}; a number above 0 and below {:g} is allowed", file_, where, key,
           value ? fmt::format("{:g}", *value) : "missing or no number", most);
    return *value;
  }

  Rung rung(const toml::table& table) const {
    Rung made;
    made.name = text(table, "name", "a rung");
    const std::string& where = made.name;
    only(table, {"name", "title", "over", "registers", "shared_bytes", "reported_us", "reported", "predictions"},
         where);
    if (ladder_.find(made.name) != nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{}: {} is there twice", file_, where);
    made.title = text(table, "title", where);
    if (!ladder_.rungs.empty()) {
      made.over = text(table, "over", where);
      if (ladder_.find(made.over) == nullptr)
        fail(ATTUNE_INVALID_ARGUMENT, "{}: {}: over is '{}'; a rung before it is allowed", file_, where, made.over);
    }
    if (made.name != library_rung) {
      made.registers = static_cast<int>(number(table, "registers", where, 256));
      made.shared_bytes = static_cast<int>(number(table, "shared_bytes", where, 1 << 20));
    }
    if (table.contains("reported_us")) made.reported_us = number(table, "reported_us", where, 1e9);
    if (table.contains("reported")) made.reported = text(table, "reported", where);
    if (const toml::table* predictions = table["predictions"].as_table())
      for (const auto& [set, value] : *predictions) {
        const std::string of = fmt::format("{}, predictions.{}", where, set.str());
        const toml::table* prediction = value.as_table();
        if (prediction == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{}: {} is no table", file_, of);
        only(*prediction, {"gain", "probability"}, of);
        made.predictions.push_back({find_set(set.str()).name, number(*prediction, "gain", of, 1e6),
                                    number(*prediction, "probability", of, 1)});
      }
    return made;
  }

  Without without(const toml::table& table) const {
    Without made;
    made.what = text(table, "what", "[[without]]");
    const std::string& where = made.what;
    only(table, {"what", "of", "defines", "lines"}, where);
    made.of = text(table, "of", where);
    if (ladder_.find(made.of) == nullptr)
      fail(ATTUNE_INVALID_ARGUMENT, "{}: {}: of is '{}', which is no rung", file_, where, made.of);
    if (const toml::table* defines = table["defines"].as_table())
      for (const auto& [name, value] : *defines) {
        if (!value.is_integer())
          fail(ATTUNE_INVALID_ARGUMENT, "{}: {}: {} is no whole number", file_, where, name.str());
        made.defines[std::string(name.str())] = value.as_integer()->get();
      }
    if (const toml::table* lines = table["lines"].as_table())
      for (const auto& [key, value] : *lines) made.lines[std::string(key.str())] = text(*lines, key.str(), where);
    if (made.defines.empty() && made.lines.empty())
      fail(ATTUNE_INVALID_ARGUMENT, "{}: {}: defines or lines are missing", file_, where);
    return made;
  }

  std::string file_;
  Ladder ladder_;
};

std::string file_without(const Without& without) {
  std::string name = without.name();
  std::ranges::replace(name, ' ', '_');
  return name + ".cu";
}

std::string hash_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string read_if_there(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

const Rung* Ladder::find(std::string_view name) const {
  const auto found = std::ranges::find(rungs, name, &Rung::name);
  return found == rungs.end() ? nullptr : &*found;
}

Ladder parse_ladder(std::string_view toml, std::string_view file) { return LadderReader(file).read(toml); }

const std::map<std::string, std::string>& ladder_files() {
  static const std::map<std::string, std::string> files = [] {
    std::map<std::string, std::string> found;
    for (const jit::EmbeddedFile* file = jit::ladder_table; file->path != nullptr; ++file)
      found[std::filesystem::path(file->path).filename().string()] = file->text;
    return found;
  }();
  return files;
}

const Ladder& builtin_ladder() {
  static const Ladder ladder = parse_ladder(ladder_files().at("ladder.toml"), "ladder.toml");
  return ladder;
}

std::string text_without(std::string text, const Without& without) {
  for (const auto& [key, value] : without.lines) {
    const std::string beginning = fmt::format("// {}:", key);
    const size_t at = text.find(beginning);
    if (at == std::string::npos) fail(ATTUNE_INVALID_ARGUMENT, "{}: the comment has no line '{}'", without.name(), key);
    text.replace(at, text.find('\n', at) - at, fmt::format("{} {}", beginning, value));
  }
  std::string defines;
  for (const auto& [name, value] : without.defines) {
    // A macro that the file does not ask for would change nothing.
    if (text.find("#ifndef " + name + "\n") == std::string::npos)
      fail(ATTUNE_INVALID_ARGUMENT, "{}: the file has no '#ifndef {}'", without.name(), name);
    defines += fmt::format("#define {} {}\n", name, value);
  }
  return defines + text;
}

void write_ladder(const std::string& folder) {
  std::map<std::string, std::string> files = ladder_files();
  for (const Without& each : builtin_ladder().without)
    files[file_without(each)] = text_without(files.at(file_of_rung(each.of)), each);
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (std::filesystem::exists(path) && read_if_there(path) != text)
      fail(ATTUNE_INVALID_ARGUMENT, "{}: is there, and says something else", path.string());
  }
  for (const auto& [name, text] : files) write_file((std::filesystem::path(folder) / name).string(), text);
}

std::vector<Entrant> ladder_entrants(const Ladder& ladder, const std::string& folder) {
  std::vector<Entrant> entrants{{.name = std::string(library_rung)}};
  const auto add = [&](const std::string& name, const std::string& file) {
    entrants.push_back(
        {.name = name, .source = (std::filesystem::path(folder) / file).string(), .unfused = name == unfused_rung});
  };
  for (const Rung& rung : ladder.rungs)
    if (rung.name != library_rung) add(rung.name, file_of_rung(rung.name));
  for (const Without& each : ladder.without) add(each.name(), file_without(each));
  return entrants;
}

Stamps ladder_stamps() {
  Stamps stamps;
  const auto& files = ladder_files();
  for (const Rung& rung : builtin_ladder().rungs)
    if (rung.name != library_rung)
      stamps["ladder/" + rung.name] = hash_of(files.at(file_of_rung(rung.name)) + files.at("base.cuh"));
  return stamps;
}

}  // namespace attune::lab
