// attune report: the pages of docs/ that show measurements, made anew from evidence/.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "lab/cmd/commands.hpp"
#include "lab/ladder/ladder_text.hpp"
#include "lab/output.hpp"
#include "lab/report/pages.hpp"

namespace attune::lab {
namespace {

struct ReportOptions {
  std::string docs = "docs", evidence = "evidence";
  bool check = false;
};

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int report(const ReportOptions& options) {
  int status = exit_ok;
  std::map<std::string, std::string> pages = make_pages(options.docs, options.evidence);
  pages.merge(make_ladder_page(options.docs, options.evidence));
  for (const auto& [name, text] : pages) {
    const std::string path = options.docs + "/" + name;
    if (contents_of(path) == text) {
      fmt::print("{}: up to date\n", path);
    } else if (options.check) {
      fmt::print("{}: is not what the evidence gives; run `attune report`\n", path);
      status = exit_failed_check;
    } else {
      write_file(path, text);
      fmt::print("{}: written\n", path);
    }
  }
  return status;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "make the tables and charts of docs/ from the records in evidence/");
  command->add_option("--docs", options->docs, "folder of the pages")->capture_default_str();
  command->add_option("--evidence", options->evidence, "folder of the records")->capture_default_str();
  command->add_flag("--check", options->check, "write nothing; exit status 1 if a page is out of date");
  command->footer(
      "For every problem the newest record counts, and only if it speaks for the kernels of today: their code is\n"
      "compiled and compared with the stamps of the record.\n\n"
      "examples:\n"
      "  attune report\n"
      "  attune report --check");
  command->callback([options, &status] { status = report(*options); });
}

}  // namespace attune::lab
