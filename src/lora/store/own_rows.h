// The embedding's or head's rows of an adapter's own tokens, collected from where the adapter's file has them. Pure but for the
// pool.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "lora/peft/lora_model.h"
#include "lora/target.h"

namespace choral::lora {

// Every value of a matrix or a vector as float.
std::vector<float> floats_of(const TensorView& tensor);

// 0: the adapter brings no tokens, or none that have a row in this target.
int64_t count_own_rows(const LoRAModel& model, const LoRATarget& target);

// [rows, width] in float32, since rows may come from two tensors, and a head's low-rank pair is put into them. (An embedding's
// pair acts where a token is looked up.)
Result<Tensor> make_own_rows(ThreadPool& pool, const LoRAModel& model, const LoRATarget& target);

}  // namespace choral::lora
