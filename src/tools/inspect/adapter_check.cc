#include "tools/adapter_check.h"

#include <array>

#include "engine/model_loader.h"
#include "kernels/quant/dequantise.h"

namespace choral::tools {
namespace {

constexpr std::array<float, 1> kSomeBias{};

// Rows of `target`'s weight as they lie in the file, which is what the layer reads when it is loaded; null when they lie
// otherwise.
std::function<Status(int64_t, std::span<float>)> rows_in_file(const io::Checkpoint& checkpoint, const lora::LoRATarget& target) {
  std::vector<io::SourceTensor> parts;
  for (const auto& member : target.members) {
    const auto found = checkpoint.find((target.tied_to.empty() ? member.name : target.tied_to) + ".weight");
    if (!found.ok() || found->view.shape != Shape{member.out, target.in} || found->transposed ||
        !kernels::can_dequantise(found->view.dtype)) {
      return {};
    }
    parts.push_back(*found);
  }
  return [parts = std::move(parts)](int64_t row, std::span<float> out) {
    auto part = parts.begin();
    for (; row >= part->view.rows(); ++part) row -= part->view.rows();
    const int64_t stored = part->row_order.empty() ? row : part->row_order[row];
    kernels::dequantise_row(part->view.dtype, part->view.row(stored), part->view.cols(), out.data());
    return Status();
  };
}

}  // namespace

Status AdapterChecker::set(const EngineOptions& options) {
  check_.config.max_lora_rank = options.max_lora_rank;
  check_.config.lora_extra_vocab_size = options.lora_extra_vocab_size;
  CHORAL_TRY(check_.config.lora_dtype, lora::parse_lora_dtype(options.lora_dtype));
  return check_.config.validate();
}

Status AdapterChecker::open_model(const EngineOptions& options) {
  CHORAL_TRY(auto files, engine::open_model_config(options));
  CHORAL_TRY(session_, platform::cpu_platform().open(pool_, {}));
  auto checkpoint = io::Checkpoint::open(files.location);
  if (!checkpoint.ok() && checkpoint.status().code() != Code::kNotFound) return checkpoint.status();
  if (checkpoint.ok()) checkpoint_ = *std::move(checkpoint);
  const auto contains = [this](const std::string& name) { return checkpoint_ != nullptr && checkpoint_->contains(name); };
  CHORAL_TRY(auto built, engine::build_model(files.config, *session_, {}, contains, /*max_model_len=*/1));  // it computes no text
  model_ = std::move(built.model);
  const auto targets = model_->lora_targets();
  targets_.assign(targets.begin(), targets.end());
  for (auto& target : targets_) {
    // Layers know their bias once it is packed; here it only matters whether there is one.
    const bool has = !target.members.empty() && contains(target.members[0].name + ".bias");
    target.base_bias = [has] { return has ? std::span<const float>(kSomeBias) : std::span<const float>(); };
    if (target.selection_bias) target.selection_bias = [] { return std::span<const float>(); };
    if (checkpoint_ != nullptr) target.base_row = rows_in_file(*checkpoint_, target);
  }
  check_.targets = targets_;
  check_.head_dim = model_->kv_shapes().front().key_dim;
  check_.base_class = engine::architecture_of(files.config);
  check_.base_names = std::move(files.base_names);
  check_.strict = options.strict;
  return {};
}

Result<std::unique_ptr<AdapterChecker>> AdapterChecker::make(const EngineOptions& options) {
  auto checker = std::make_unique<AdapterChecker>();
  CHORAL_RETURN_IF_ERROR(checker->set(options));
  if (!options.model.empty()) CHORAL_RETURN_IF_ERROR(checker->open_model(options).while_("--model"));
  return checker;
}

}  // namespace choral::tools
