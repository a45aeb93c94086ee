#include "lora/store/packed_adapter_loader.h"

#include <algorithm>
#include <utility>

#include "lora/peft/base_name.h"

namespace choral::lora {
namespace {

// Of files that were read, and of what is made ready; beside the budget, so a small share of it. Any adapter of a small model
// fits into the least.
uint64_t kept_bytes(int64_t budget_bytes) {
  constexpr int64_t kLeast = 8 << 20, kMost = 256 << 20, kShare = 16;
  return static_cast<uint64_t>(std::clamp(budget_bytes / kShare, kLeast, kMost));
}

}  // namespace

PackedAdapterLoader::PackedAdapterLoader(const platform::Context& ctx, std::span<const LoRATarget> targets,
                                         LoRALoadOptions options, int64_t budget_bytes)
    : ctx_(ctx),
      targets_(targets),
      options_(std::move(options)),
      budget_bytes_(budget_bytes),
      memory_(kept_bytes(budget_bytes)) {}

Result<int64_t> PackedAdapterLoader::measure(const LoRAModel& model) const {
  CHORAL_TRY(const int64_t bytes, PackedAdapter::packed_bytes(model, targets_, options_.config));
  CHORAL_RETURN_IF_ERROR(check_budget(bytes));
  return bytes;
}

Status PackedAdapterLoader::check_budget(int64_t bytes) const {
  if (budget_bytes_ > 0 && bytes > budget_bytes_) {
    return too_large("it needs {} bytes in memory, the budget for adapters has {}; raise --adapter-memory", bytes, budget_bytes_);
  }
  return {};
}

Result<std::shared_ptr<const PackedAdapter>> PackedAdapterLoader::load(const AdapterSource& source, AdapterDescription& described,
                                                                       FunctionRef<Status(int64_t)> admit) {
  CHORAL_TRY(const auto peft, source.read_config());
  described = {.kind = peft.kind(), .notes = {}};
  if (options_.strict) CHORAL_RETURN_IF_ERROR(check_lora_name(peft.base_model_name_or_path, options_.base_names));
  if (auto note = other_base_note(peft.base_model_name_or_path, options_.base_names); !note.empty()) {
    described.notes.push_back(std::move(note));
  }
  CHORAL_RETURN_IF_ERROR(peft.validate_legal(options_.config));
  {
    CHORAL_TRY(const auto shapes, source.read_shapes(options_.limits));
    CHORAL_TRY(const auto model, LoRAModel::from_adapter_file(shapes, peft, targets_, options_));
    CHORAL_TRY(const int64_t bytes, measure(model));
    CHORAL_RETURN_IF_ERROR(admit(bytes));
  }
  CHORAL_TRY(const auto file, source.read_file(options_.limits, memory_));
  CHORAL_TRY(const auto model, LoRAModel::from_adapter_file(file, peft, targets_, options_));
  CHORAL_RETURN_IF_ERROR(measure(model).status());  // the file may be another by now
  CHORAL_TRY(auto packed,
             PackedAdapter::pack(ctx_, model, targets_, options_.config, source, std::exchange(next_panels_, AlignedBuffer())));
  last_panel_bytes_ = packed->panel_bytes() <= kept_bytes(budget_bytes_) ? packed->panel_bytes() : 0;
  // A layer that its file has as a whole was taken to be the base's, which only its values tell.
  CHORAL_RETURN_IF_ERROR(check_budget(packed->size_bytes()));
  return packed;
}

Status PackedAdapterLoader::prepare_next() {
  if (next_panels_.size_bytes() == last_panel_bytes_) return {};
  next_panels_ = AlignedBuffer();
  CHORAL_TRY(next_panels_, AlignedBuffer::allocate(last_panel_bytes_));
  next_panels_.touch();
  return {};
}

}  // namespace choral::lora
