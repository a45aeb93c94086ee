// What the linear layers of a model are given while it reads a text: what W8A8 takes its scales of x from. The model runs as it
// is served, in float on the CPU, window by window; classes that stand in for its linear layers' own (platform/layer_overrides.h)
// look at their inputs. One thread.
#pragma once

#include <map>
#include <string>

#include "choral/llm.h"
#include "quant/written/fixed_input.h"
#include "tools/quantize.h"

namespace choral::tools {

struct ActivationRanges {
  std::map<std::string, quant::InputRange, std::less<>> by_layer;  // as the checkpoint calls it, members of fused layers too
  int64_t tokens = 0;                                              // that were read
};

Result<ActivationRanges> observe_activations(const std::string& model, const CalibrationText& text, int threads,
                                             const std::function<void(const LoadProgress&)>& on_progress);

}  // namespace choral::tools
