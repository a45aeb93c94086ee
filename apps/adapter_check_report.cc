#include "adapter_check_report.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/status.h"
#include "engine/model_loader.h"
#include "io/checkpoint.h"
#include "kernels/quant/dequantise.h"
#include "lora/store/adapter_check.h"
#include "models/registry.h"
#include "output_file.h"
#include "platform/custom_op.h"
#include "platform/platform.h"
#include "quant/quant_config.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;
using lora::AdapterReport;

constexpr size_t kShown = 8;  // entries of a list in the text; JSON has all
constexpr std::array<float, 1> kSomeBias{};

// What a model offers to adapters, from its headers: weights are read only where a target is asked for a row.
struct ModelTargets {
  ThreadPool pool{1};
  std::unique_ptr<platform::Session> session;
  engine::ModelForms forms;
  std::string base_class;
  std::vector<std::string> base_names;
  std::unique_ptr<quant::QuantConfig> quant_config;
  std::unique_ptr<models::Model> model;
  std::shared_ptr<const io::Checkpoint> checkpoint;
  std::vector<lora::LoRATarget> targets;
};

// Rows of `target`'s weight as they lie in the file, which is what the layer reads when it is loaded; null when they lie
// otherwise.
std::function<Status(int64_t, std::span<float>)> rows_in_file(const io::Checkpoint& checkpoint, const lora::LoRATarget& target) {
  std::vector<io::SourceTensor> parts;
  for (const auto& member : target.members) {
    const auto found = checkpoint.find((target.tied_to.empty() ? member.name : target.tied_to) + ".weight");
    if (!found.ok() || found->view.shape != Shape{member.out, target.in} || !kernels::can_dequantise(found->view.dtype))
      return {};
    parts.push_back(*found);
  }
  return [parts = std::move(parts)](int64_t row, std::span<float> out) {
    auto part = parts.begin();
    for (; row >= part->view.rows(); ++part) row -= part->view.rows();
    const int64_t stored = part->row_order.empty() ? row : part->row_order[static_cast<size_t>(row)];
    kernels::dequantise_row(part->view.dtype, part->view.row(stored), part->view.cols(), out.data());
    return Status();
  };
}

Result<std::unique_ptr<ModelTargets>> open_model(const EngineOptions& options) {
  CHORAL_TRY(const auto files, engine::open_model_files(options));
  auto opened = std::make_unique<ModelTargets>();
  CHORAL_TRY(opened->session, platform::cpu_platform().open(opened->pool, {}));
  opened->base_names = files.base_names;
  opened->base_class = engine::architecture_of(files.config);
  CHORAL_TRY(opened->quant_config, quant::make_quant_config("none"));
  CHORAL_TRY(opened->checkpoint, io::Checkpoint::open(files.path));
  CHORAL_TRY(opened->model, models::make_model(files.config, {*opened->session, *opened->quant_config, opened->forms.custom_ops,
                                                              opened->forms.overrides, 0}));
  const auto targets = opened->model->lora_targets();
  opened->targets.assign(targets.begin(), targets.end());
  for (auto& target : opened->targets) {
    // Layers know their bias once it is packed; here it only matters whether there is one.
    const bool has = !target.members.empty() && opened->checkpoint->contains(target.members[0].name + ".bias");
    target.base_bias = [has] { return has ? std::span<const float>(kSomeBias) : std::span<const float>(); };
    target.base_row = rows_in_file(*opened->checkpoint, target);
  }
  return opened;
}

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

std::string report_text(const std::string& path, const AdapterReport& report, const std::string& model) {
  std::string out = fmt::format("{} {}\n", report.usable() ? report.zero_effect ? "!" : "✓" : "✗", terminal_line(path));
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
    line("targets", fmt::format("{} modules{}", report.modules,
                                report.replaced > 0 ? fmt::format(", {} weights or biases replaced", report.replaced) : ""));
  }
  if (report.tensors > 0) {
    line("size", fmt::format("{} in {} tensors ({})", size_text(static_cast<double>(report.tensor_bytes)), report.tensors,
                             report.format));
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

}  // namespace

Status check_adapters(const AdapterCheckFlags& flags) {
  CHORAL_TRY(const auto options, engine_options(flags.engine));
  lora::AdapterCheckOptions check;
  check.config.max_lora_rank = options.max_lora_rank;
  CHORAL_TRY(check.config.lora_dtype, lora::parse_lora_dtype(options.lora_dtype));
  CHORAL_RETURN_IF_ERROR(check.config.validate());
  std::unique_ptr<ModelTargets> model;
  if (!options.model.empty()) {
    CHORAL_TRY(model, open_model(options).while_("--model"));
    check.targets = model->targets;
    check.head_dim = model->model->kv_cache_shape().head_dim;
    check.base_class = model->base_class;
    check.base_names = model->base_names;
    check.strict = options.strict;
  }
  Status first_error;
  size_t refused = 0;
  for (const auto& path : flags.paths) {
    const AdapterReport report = lora::check_adapter(path, check);
    CHORAL_RETURN_IF_ERROR(print_out(flags.json
                                         ? report_json(path, report)
                                         : report_text(path, report, check.base_names.empty() ? "" : check.base_names.front())));
    if (report.usable()) continue;
    ++refused;
    if (first_error.ok()) first_error = Status(report.code, fmt::format("{}: {}", path, report.problems.front()));
  }
  if (refused == 0 || flags.paths.size() == 1) return first_error;
  return std::move(first_error).while_(fmt::format("{} of {} adapters are refused", refused, flags.paths.size()));
}

}  // namespace choral::apps
