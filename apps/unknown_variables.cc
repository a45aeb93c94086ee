#include "unknown_variables.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "base/log.h"
#include "base/nearest_name.h"
#include "base/printable.h"
#include "settings.h"

namespace choral::apps {
namespace {

constexpr std::string_view kPrefix = "CHORAL_";
// The program's own, and those of ./dev and the tests, which run it.
constexpr std::array<std::string_view, 18> kOthers{"CPU_LEVEL",   "LOG_LEVEL",  "PLUGIN_PATH",    "PLUGINS",  "XGRAMMAR",
                                                   "HISTORY",     "CACHE",      "DEMO_MODEL",     "JOBS",     "SLOW",
                                                   "PEFT_PYTHON", "TEST_URL",   "CLIENTS_PYTHON", "PROMTOOL", "GEMMA_MODEL",
                                                   "PROXIES",     "RAY_PYTHON", "DYNAMO_PYTHON"};
constexpr std::array<std::string_view, 3> kOfOthers{"CUDA_", "REF_", "BENCH_"};  // plug-ins' and benches'

bool begins_known(std::string_view rest) {
  const auto is_start = [rest](std::string_view start) { return rest.starts_with(start); };
  return std::any_of(kOfOthers.begin(), kOfOthers.end(), is_start);
}

}  // namespace

void warn_of_unknown_variables(CLI::App& app) {
  std::vector<std::string> known(kOthers.begin(), kOthers.end());  // without the prefix, which would make all names near
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_lnames().empty()) known.push_back(variable_of(option->get_lnames().front()).substr(kPrefix.size()));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view name(*entry);
    name = name.substr(0, name.find('='));
    if (!name.starts_with(kPrefix)) continue;
    name.remove_prefix(kPrefix.size());
    if (begins_known(name) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    CHORAL_LOG(kWarn, "the variable {}{} is not known and has no effect{}", kPrefix, printable(name),
               nearest.empty() ? "" : fmt::format("; did you mean {}{}?", kPrefix, nearest));
  }
}

}  // namespace choral::apps
