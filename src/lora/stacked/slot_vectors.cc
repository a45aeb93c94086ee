#include "lora/stacked/slot_vectors.h"

#include <span>

namespace choral::lora {

SlotVectors SlotVectors::of(const LoRATarget& target, const PackedVoice& voice, int index, int64_t out) {
  SlotVectors v;
  const auto base = target.base_bias ? target.base_bias() : std::span<const float>();
  const auto at_least = [out](std::vector<float>& values, float fill) {
    if (values.empty()) values.assign(out, fill);
  };
  // Calls visit(one of the layer's outputs, where it is here) for those of [begin, begin + count) that are here.
  const auto for_each_output = [&](int64_t begin, int64_t count, auto visit) {
    target.for_each_held(begin, count, [&](const HeldColumns& own) {
      for (int64_t i = 0; i < own.count; ++i) visit(static_cast<size_t>(own.of + i), static_cast<size_t>(own.at + i));
    });
  };
  for (const auto& [adapter, factor] : voice) {
    const PackedModule* module = adapter->module(index);
    if (module == nullptr || !module->delta) continue;
    const auto f = module->delta->output_factor();
    const auto o = module->delta->offset();
    if (!f.empty()) at_least(v.factors, 1.0F);
    if (!o.empty()) at_least(v.offsets, 0.0F);
    for_each_output(0, std::ssize(f), [&](size_t of, size_t at) { v.factors[at] += factor * (f[of] - 1.0F); });
    for_each_output(0, std::ssize(o), [&](size_t of, size_t at) { v.offsets[at] += factor * o[of]; });
  }
  if (!v.factors.empty() && !base.empty()) {
    at_least(v.offsets, 0.0F);
    for (size_t c = 0; c < base.size(); ++c) v.offsets[c] += (1.0F - v.factors[c]) * base[c];
  }
  // Replaced columns come without the base's bias. Who replaces is alone in its voice.
  const PackedModule* alone = voice.front().adapter->module(index);
  if (alone == nullptr) return v;
  for (const auto& part : alone->replaced) {
    if (base.empty() && part.bias_change.empty()) continue;
    at_least(v.offsets, 0.0F);
    for_each_output(part.out_begin, part.matrix->n(), [&](size_t of, size_t at) {
      const float f = v.factors.empty() ? 1.0F : v.factors[at];
      const float change = part.bias_change.empty() ? 0.0F : part.bias_change[of - static_cast<size_t>(part.out_begin)];
      v.offsets[at] += f * change + (base.empty() ? 0.0F : f * base[at]);
    });
  }
  return v;
}

}  // namespace choral::lora
