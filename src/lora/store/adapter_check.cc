#include "lora/store/adapter_check.h"

#include <algorithm>

#include "lora/peft/fused_experts.h"
#include "lora/peft/lora_model.h"
#include "lora/peft/module_names.h"
#include "lora/store/dora_factors.h"

namespace choral::lora {
namespace {

constexpr std::array<float, 1> kSomeBias{0.0F};

void add_problems(const Status& status, AdapterReport& report) {
  if (report.code == Code::kOk) report.code = status.code();
  std::string_view text = status.message();
  // Of several problems the first line only counts them.
  if (const size_t line = text.find('\n'); line != std::string_view::npos) text.remove_prefix(line + 1);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!line.empty()) report.problems.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

TargetKind kind_of(std::string_view module, bool is_vector) {
  if (is_vector) return TargetKind::kNorm;
  if (module.ends_with("lm_head")) return TargetKind::kHead;
  return module.ends_with("embed_tokens") ? TargetKind::kEmbedding : TargetKind::kLinear;
}

// A module whose tokens the config names, whose rows are not in the file, and which has the same tokens as one whose rows are: as
// PEFT saves a tied head.
void add_tied_heads(const PEFTHelper& peft, std::map<std::string, LoRATarget>& found) {
  for (const auto& [name, ids] : peft.trainable_token_indices) {
    if (found.contains(name)) continue;
    for (const auto& [other, other_ids] : peft.trainable_token_indices) {
      const auto embedding = std::find_if(found.begin(), found.end(), [&other = other](const auto& module) {
        return module.second.kind == TargetKind::kEmbedding && module.first.ends_with(other);
      });
      if (other_ids != ids || embedding == found.end()) continue;
      LoRATarget head = embedding->second;
      head.kind = TargetKind::kHead;
      head.tied_to = head.name;
      head.name = head.members[0].name = name;
      found.emplace(name, std::move(head));
      break;
    }
  }
}

// A model in which the file's own shapes are right, as far as they agree with each other.
std::vector<LoRATarget> targets_from(std::span<const NamedTensor> tensors, const PEFTHelper& peft) {
  std::map<std::string, LoRATarget> found;
  const auto count_experts = [&](std::string_view experts, std::string_view parameter, int64_t a_rows) -> int64_t {
    constexpr int64_t kMostExperts = 4096;
    const auto rank = peft.rank_for(fmt::format("{}.0.{}", experts, parameter));
    return rank.ok() && *rank > 0 && a_rows / *rank <= kMostExperts ? a_rows / *rank : 0;
  };
  ProblemList of_no_model;  // found again by whoever has the targets
  for (const auto& [name, tensor] :
       split_fused_experts(tensors, peft.target_parameters, count_experts, /*shapes_only=*/true, of_no_model)) {
    const auto parsed = parse_tensor_name(name);
    if (!parsed || tensor.view.shape.rank() < 1) continue;
    const Shape& shape = tensor.view.shape;
    const int64_t rows = shape[0], cols = shape.rank() > 1 ? shape[1] : shape[0];
    LoRATarget& target = found[parsed->module];
    if (target.members.empty()) {
      target.name = parsed->module;
      target.kind = kind_of(parsed->module, false);
      target.members.push_back({parsed->module, 0});
      target.base_bias = [] { return std::span<const float>(kSomeBias); };
    }
    int64_t& out = target.members[0].out;
    switch (parsed->part) {
      case TensorPart::kLoraA: target.in = cols; break;
      case TensorPart::kLoraB: out = rows; break;
      case TensorPart::kEmbeddingA: target.kind = TargetKind::kEmbedding, out = cols; break;
      case TensorPart::kEmbeddingB: target.in = rows; break;
      case TensorPart::kWeight:
      case TensorPart::kBaseWeight:
        if (shape.rank() == 1) target.kind = TargetKind::kNorm;
        if (target.in == 0) target.in = cols;
        if (out == 0) out = rows;
        break;
      case TensorPart::kBaseBias:
      case TensorPart::kBias:
      case TensorPart::kLoraBias:
      case TensorPart::kMagnitude:
        if (out == 0) out = rows;
        break;
      case TensorPart::kNewRows: break;   // has a name of its own
      case TensorPart::kIdleBias: break;  // says nothing that others do not
      case TensorPart::kChoiceBias: target.selection_bias = [] { return std::span<const float>(); }; break;
      case TensorPart::kTokenRows:
        if (target.in == 0) target.in = cols;
        for (const auto& entry : peft.trainable_token_indices) {
          for (const int32_t id : entry.second) out = std::max<int64_t>(out, int64_t{id} + 1);
        }
        break;
    }
  }
  for (const auto& [file_name, module] : {std::pair(kInputEmbeddings, "model.embed_tokens"), {kOutputEmbeddings, "lm_head"}}) {
    const auto rows = std::find_if(tensors.begin(), tensors.end(), [&name = file_name](const auto& t) { return t.name == name; });
    if (rows == tensors.end() || rows->tensor.view.shape.rank() != 2 || found.contains(module)) continue;
    found[module] = {.kind = kind_of(module, false), .name = module, .members = {{module, 0}}, .in = rows->tensor.view.shape[1]};
  }
  add_tied_heads(peft, found);
  std::vector<LoRATarget> out;
  for (auto& [name, target] : found) out.push_back(std::move(target));
  return out;
}

void describe_config(const PEFTHelper& peft, const AdapterCheckOptions& options, AdapterReport& report) {
  report.kinds.push_back(peft.first_kind());
  if (peft.use_rslora) report.kinds.emplace_back("rsLoRA");
  if (!peft.alora_invocation_tokens.empty()) report.kinds.emplace_back("aLoRA");
  if (!peft.rank_pattern.empty()) report.kinds.emplace_back("rank_pattern");
  if (!peft.alpha_pattern.empty()) report.kinds.emplace_back("alpha_pattern");
  if (peft.lora_bias) report.kinds.emplace_back("lora_bias");
  report.lora_alpha = peft.lora_alpha;
  report.base_model = peft.base_model_name_or_path;
  report.base_architecture = peft.gguf_architecture.value_or("");
  report.task_type = peft.task_type;
  report.peft_version = peft.peft_version;
  report.invocation_tokens = peft.alora_invocation_tokens;
  report.ignored = peft.notes;
  report.base_match = match_base(report.base_model, options.base_names);
  if (options.strict) add_problems(check_lora_name(report.base_model, options.base_names), report);
}

void describe_model(const LoRAModel& model, AdapterReport& report) {
  bool first = true, embedding = false, head = false;
  for (const auto& [name, layer] : model.loras()) {
    ++report.ranks[layer.rank];
    ++report.reached[name.substr(name.rfind('.') + 1)];
    report.smallest_scaling = first ? layer.scaling : std::min(report.smallest_scaling, layer.scaling);
    report.largest_scaling = first ? layer.scaling : std::max(report.largest_scaling, layer.scaling);
    first = false;
    embedding |= layer.is_embedding;
    head |= kind_of(name, false) == TargetKind::kHead;
    // A module does nothing when B (or A, or the scale) is zero and no magnitude or bias stands beside it.
    const bool zero = layer.scaling == 0 || is_all_zero(layer.lora_b.view) || is_all_zero(layer.lora_a.view);
    if (zero && !layer.is_dora() && (layer.bias.empty() || is_all_zero(layer.bias.view))) ++report.zero_modules;
  }
  if (embedding) report.kinds.emplace_back("embedding");
  if (head) report.kinds.emplace_back("head");
  if (!model.replaced_weights().empty()) report.kinds.emplace_back("modules_to_save");
  if (!model.replaced_biases().empty()) report.kinds.emplace_back("bias");
  if (!model.trainable_tokens().empty()) report.kinds.emplace_back("trainable tokens");
  if (model.extra_vocab_size() > 0) report.kinds.push_back(fmt::format("{} tokens of its own", model.extra_vocab_size()));
  report.modules = model.loras().size();
  report.replaced = model.replaced_weights().size() + model.replaced_biases().size();
  report.zero_effect = report.zero_modules == report.modules && report.replaced == 0 && model.trainable_tokens().empty() &&
                       model.extra_vocab_size() == 0;
  report.tensor_bytes = model.size_bytes();
  report.ignored.assign(model.notes().begin(), model.notes().end());
}

bool is_checked_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || type == DType::kQ8_0;
}

LoRALoadOptions load_options(const AdapterCheckOptions& options) {
  LoRALoadOptions load;
  load.config = options.config;
  load.limits = options.limits;
  load.head_dim = options.head_dim;
  load.base_class = options.base_class;
  return load;
}

}  // namespace

Status check_fit(const std::filesystem::path& path, const AdapterCheckOptions& options) {
  CHORAL_TRY(const auto peft, PEFTHelper::from_local_dir(path));
  CHORAL_RETURN_IF_ERROR(peft.validate_legal(options.config));
  CHORAL_TRY(const auto shapes, read_adapter_shapes(path, options.limits));
  return LoRAModel::from_adapter_file(shapes, peft, options.targets, load_options(options)).status();
}

AdapterReport check_adapter(const std::filesystem::path& path, const AdapterCheckOptions& options) {
  AdapterReport report;
  report.path = path.string();
  const auto peft = PEFTHelper::from_local_dir(path);
  if (peft.ok()) {
    describe_config(*peft, options, report);
    if (Status legal = peft->validate_legal(options.config); !legal.ok()) add_problems(legal, report);
  } else {
    add_problems(peft.status(), report);
  }
  const auto file = read_adapter_file(path, options.limits);
  if (!file.ok()) {
    add_problems(file.status(), report);
    return report;
  }
  report.path = file->path.string();
  report.format = file->format;
  report.file_bytes = file->size_bytes;
  report.tensors = file->tensors.size();
  for (const auto& [name, tensor] : file->tensors) {
    report.tensor_bytes += tensor.size_bytes();
    if (is_checked_float(tensor.view.dtype) && first_non_finite(tensor.view)) report.non_finite.push_back(name);
  }
  if (!peft.ok() || !report.usable()) return report;

  const bool with_model = !options.targets.empty();
  const LoRALoadOptions load = load_options(options);
  const std::vector<LoRATarget> own = with_model ? std::vector<LoRATarget>{} : targets_from(file->tensors, *peft);
  const auto model = with_model ? LoRAModel::from_adapter_file(*file, *peft, options.targets, load)
                                : LoRAModel::from_lora_tensors(file->tensors, *peft, own, load);
  if (model.ok()) {
    describe_model(*model, report);
    if (with_model) {
      report.digest = model->digest();  // fused modules are split only where the model is known
      const auto pool = ThreadPool::make(peft->use_dora ? ThreadPool::default_size() : 1);
      const Status dora = pool.ok() ? check_dora(**pool, cpu_level(), *model, options.targets) : pool.status();
      if (!dora.ok()) add_problems(dora, report);
    }
  } else {
    add_problems(model.status(), report);
  }
  return report;
}

}  // namespace choral::lora
