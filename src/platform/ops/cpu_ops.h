// The operators on the host's memory: this build's kernels ("cpu") and the plain loops that define what each means ("native").
// Both take pointers that the host can read. compose_fused_ops() knows no memory: it says fused operators by others of the table.
#pragma once

#include "platform/ops/op_table.h"

namespace choral::platform {

// Every entry is served; provider "cpu".
const OpTable& cpu_ops();
// The plain loops; provider "native". What is the CPU's alone is its.
const OpTable& native_ops();
// Sets the fused entries to what they say by other operators of the table they are called through; provider "composed".
void compose_fused_ops(OpTable& table);

// The same for a device whose memory the host can't read, on copies: matrices come before and go back after. What is the host's
// already — matrices it packed, a cache it keeps — is used in place. Providers "cpu, staged" and "native, staged".
const OpTable& staged_cpu_ops();
const OpTable& staged_native_ops();

// What rows of the host's memory are sampled by.
inline kernels::SampledRows lists_of(const SamplingBatch& batch) {
  return {batch.rows.host, batch.edits.host, batch.mask_words.host, batch.named.host, batch.choices, batch.top};
}

// What an epilogue does to a finished product, on the host.
void finish_product(const kernels::Epilogue& epilogue, MatrixView<float> product, MatrixView<float> y);

}  // namespace choral::platform
