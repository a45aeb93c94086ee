// DoRA's factors of a module's outputs: f[j] = m[j] / ‖W[j] + s·B[j]·A‖, with W as the base multiplies by it. They are computed
// once, when an adapter is loaded. Every weight of the module is read for them, which is most of that work.
#pragma once

#include <span>
#include <vector>

#include "base/cpu_level.h"
#include "base/thread_pool.h"
#include "lora/peft/lora_model.h"
#include "lora/target.h"

namespace choral::lora {

// `first_row` is where the module's rows begin in `target`. Rows are divided over the pool; the result is the same for any number
// of threads. A row whose length is zero or not finite has no factor: the error names module and row.
Result<std::vector<float>> dora_factors(ThreadPool& pool, CpuLevel level, const LoRATarget& target, int64_t first_row,
                                        const LoRALayerWeights& layer);

// The same of every DoRA module of `model`, for its errors alone; modules of targets without base_row are passed over.
Status check_dora(ThreadPool& pool, CpuLevel level, const LoRAModel& model, std::span<const LoRATarget> targets);

}  // namespace choral::lora
