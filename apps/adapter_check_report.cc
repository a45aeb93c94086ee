#include "adapter_check_report.h"

#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/status.h"
#include "io/hub_cache.h"
#include "output_file.h"
#include "terminal_text.h"
#include "tools/adapter_check.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;
using lora::AdapterReport;

constexpr size_t kShown = 8;  // entries of a list in the text; JSON has all

std::string some_of(const std::vector<std::string>& all) {
  const auto shown = static_cast<ptrdiff_t>(std::min(all.size(), kShown));
  std::string text = fmt::format("{}", fmt::join(all.begin(), all.begin() + shown, "\n"));
  if (all.size() > kShown) text += fmt::format("\nand {} more", all.size() - kShown);
  return text;
}

std::string ranks_text(const AdapterReport& report) {
  if (report.ranks.size() == 1) return fmt::format("{}", report.ranks.begin()->first);
  std::string text;
  for (const auto& [rank, modules] : report.ranks) {
    text += fmt::format("{}{} ({} module{})", text.empty() ? "" : ", ", rank, modules, modules == 1 ? "" : "s");
  }
  return text;
}

std::string reached_text(const AdapterReport& report) {
  std::string text;
  for (const auto& [module, count] : report.reached) {
    text += fmt::format("{}{} {}", text.empty() ? ": " : ", ", count, printable(module, 100));
  }
  return text;
}

std::string base_text(const AdapterReport& report, const std::string& model) {
  const std::string base = report.base_model.empty() ? "not named" : printable(report.base_model);
  switch (report.base_match) {
    case lora::BaseMatch::kSame: return base + ", the model's name";
    case lora::BaseMatch::kDifferent: return fmt::format("{}; the model is called {}", base, model);
    case lora::BaseMatch::kUnknown: break;
  }
  if (!report.base_architecture.empty()) return fmt::format("{}, of the architecture {}", base, report.base_architecture);
  return base;
}

std::string report_text(const std::string& path, const AdapterReport& report, const std::string& model, bool config_alone) {
  const bool other_base = report.base_match == lora::BaseMatch::kDifferent;
  const bool doubtful = report.zero_effect || other_base;
  const tools::Verdict verdict = !report.usable() ? tools::Verdict::kWrong
                                 : doubtful       ? tools::Verdict::kNotice
                                                  : tools::Verdict::kFine;
  std::string out = fmt::format("{} {}\n", mark_of(verdict), terminal_line(path));
  const auto line = [&out](std::string_view subject, std::string_view text) {
    for (bool first = true; first || !text.empty(); first = false) {
      const size_t end = std::min(text.find('\n'), text.size());
      out += fmt::format("  {:<10} {}\n", first ? subject : "", terminal_line(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  };
  if (!report.kinds.empty()) line("kind", fmt::format("{}", fmt::join(report.kinds, ", ")));
  if (!report.ranks.empty()) {
    line("rank", ranks_text(report));
    const bool one = report.smallest_scaling == report.largest_scaling;
    line("scale", one ? fmt::format("{:g}", report.largest_scaling)
                      : fmt::format("{:g} to {:g}", report.smallest_scaling, report.largest_scaling));
  }
  if (report.modules + report.replaced > 0) {
    line("targets", fmt::format("{} modules{}{}", report.modules, reached_text(report),
                                report.replaced > 0 ? fmt::format(", {} weights or biases replaced", report.replaced) : ""));
  }
  if (report.tensors > 0) {
    line("size", fmt::format("{} in {} tensors ({})", size_text(report.tensor_bytes), report.tensors, report.format));
  }
  line("base", base_text(report, model));
  if (!report.invocation_tokens.empty()) line("acts from", fmt::format("token ids {}", fmt::join(report.invocation_tokens, " ")));
  if (!report.ignored.empty()) line("ignored", some_of(report.ignored));
  if (!report.non_finite.empty()) line("NaN or Inf", some_of(report.non_finite));
  if (report.zero_effect) {
    line("no effect", "nothing in it changes anything: it was saved before training, or by a broken run");
  } else if (report.zero_modules > 0) {
    line("no effect", fmt::format("{} of its modules are zero", report.zero_modules));
  }
  if (report.usable() && other_base)
    line("doubtful", fmt::format("it was made for another model than {}; its shapes fit, so it is served, with a warning,\n"
                                 "and its answers may be nonsense; --strict refuses it",
                                 model));
  if (config_alone) {
    line("checked",
         "against the model's config.json alone, since its weights are not here; what DoRA makes of them was not computed");
  }
  if (!report.usable()) line("refused", some_of(report.problems));
  return out;
}

std::string report_json(const std::string& path, const AdapterReport& report) {
  constexpr std::array<const char*, 3> kMatch{"unknown", "same", "different"};
  Json ranks = Json::object();
  for (const auto& [rank, modules] : report.ranks) ranks[fmt::format("{}", rank)] = modules;
  Json out{{"path", path},
           {"usable", report.usable()},
           {"kinds", report.kinds},
           {"ranks", std::move(ranks)},
           {"lora_alpha", report.lora_alpha},
           {"scale", {report.smallest_scaling, report.largest_scaling}},
           {"modules", report.modules},
           {"reached", report.reached},
           {"replaced", report.replaced},
           {"tensors", report.tensors},
           {"tensor_bytes", report.tensor_bytes},
           {"file", report.path},
           {"file_bytes", report.file_bytes},
           {"format", report.format},
           {"base_model", report.base_model},
           {"base_architecture", report.base_architecture},
           {"base_match", kMatch.at(static_cast<size_t>(report.base_match))},
           {"task_type", report.task_type},
           {"peft_version", report.peft_version},
           {"invocation_tokens", report.invocation_tokens},
           {"ignored", report.ignored},
           {"non_finite", report.non_finite},
           {"zero_modules", report.zero_modules},
           {"zero_effect", report.zero_effect},
           {"problems", report.problems}};
  if (report.digest) out["digest"] = to_hex(*report.digest);
  if (!report.usable()) out["code"] = code_name(report.code);
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

AdapterReport report_of(const Status& missing) {
  AdapterReport report;
  report.code = missing.code();
  report.problems = {std::string(missing.message())};
  return report;
}

}  // namespace

Status check_adapters(const AdapterCheckFlags& flags) {
  CHORAL_TRY(const auto options, engine_options(flags.engine));
  CHORAL_TRY(const auto checker, tools::AdapterChecker::make(options));
  const std::string model = checker->base_names().empty() ? "" : checker->base_names().front();
  Status first_error;
  size_t refused = 0;
  for (const auto& path : flags.paths) {
    const auto found = io::resolve_adapter(path);
    const AdapterReport report = found.ok() ? checker->check(*found) : report_of(found.status());
    CHORAL_RETURN_IF_ERROR(
        print_out(flags.json ? report_json(path, report) : report_text(path, report, model, checker->knows_config_alone())));
    if (report.usable()) continue;
    ++refused;
    if (first_error.ok()) first_error = Status(report.code, "the adapter is refused; the report says why");
  }
  if (refused == 0 || flags.paths.size() == 1) return first_error;
  return Status(first_error.code(),
                fmt::format("{} of {} adapters are refused; the report says why", refused, flags.paths.size()));
}

}  // namespace choral::apps
