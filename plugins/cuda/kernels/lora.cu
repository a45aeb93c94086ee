// Adapters on stacks: which launches an operator is, and the factor. Shrinks and expands have a file each.
#include "lora_adapters.h"

namespace choral_cuda {
namespace {

constexpr int kScaleThreads = 128;

__global__ void __launch_bounds__(kScaleThreads) scale_kernel(const __grid_constant__ Adapters a) {
  wait_for_earlier_kernels();
  const Slice& s = a.slices[0];
  const int32_t slot = a.slot(s, blockIdx.x);
  const int64_t c = int64_t{blockIdx.y} * kScaleThreads + threadIdx.x;
  if (slot >= 0 && c < s.stack.cols)
    a.whole[blockIdx.x][c] *= reinterpret_cast<const float*>(s.stack.data)[slot * s.stack.cols + c];
}

using Launcher = cudaError_t(const Launch&, std::span<const choral_lora_args>, bool by_sequence);
using Part = choral_lora_args(const choral_lora_slices_args&, const choral_lora_slice&);

cudaError_t launch_slices(Launcher& launcher, Part& part, const Launch& launch, const choral_lora_slices_args& args) {
  choral_lora_args slices[CHORAL_LORA_SLICES];
  for (int64_t i = 0; i < args.slice_count; ++i) slices[i] = part(args, args.slices[i]);
  return launcher(launch, {slices, static_cast<size_t>(args.slice_count)}, args.starts != nullptr);
}

choral_lora_args part_of(const choral_lora_slices_args& args, const choral_lora_slice& slice) {
  choral_lora_args part{};
  part.header = CHORAL_HEADER(choral_lora_args);
  part.stack = slice.stack;
  part.slot_of = args.slot_of;
  part.starts = args.starts;
  part.lengths = args.lengths;
  part.sequence_count = args.sequence_count;
  part.max_length = args.max_length;
  part.scaling = args.scaling;
  part.add = args.add;
  part.ranks = slice.ranks;
  return part;
}

}  // namespace

choral_lora_args shrink_of(const choral_lora_slices_args& args, const choral_lora_slice& slice) {
  choral_lora_args part = part_of(args, slice);
  part.x = args.x;
  part.y = slice.middle;
  return part;
}

choral_lora_args expand_of(const choral_lora_slices_args& args, const choral_lora_slice& slice) {
  choral_lora_args part = part_of(args, slice);
  part.x = slice.middle;
  part.y = args.y;
  part.slice_begin = slice.y_begin;
  return part;
}

cudaError_t bgmv_shrink(const Launch& launch, const choral_lora_args& a) { return shrink(launch, {&a, 1}, false); }
cudaError_t bgmv_expand(const Launch& launch, const choral_lora_args& a) { return expand(launch, {&a, 1}, false); }
cudaError_t bgmv_expand_slice(const Launch& launch, const choral_lora_args& a) { return bgmv_expand(launch, a); }
cudaError_t sgmv_shrink(const Launch& launch, const choral_lora_args& a) { return shrink(launch, {&a, 1}, true); }
cudaError_t sgmv_expand(const Launch& launch, const choral_lora_args& a) { return expand(launch, {&a, 1}, true); }
cudaError_t sgmv_expand_slice(const Launch& launch, const choral_lora_args& a) { return sgmv_expand(launch, a); }
cudaError_t lora_shrink(const Launch& launch, const choral_lora_slices_args& args) {
  return launch_slices(shrink, shrink_of, launch, args);
}
cudaError_t lora_expand(const Launch& launch, const choral_lora_slices_args& args) {
  return launch_slices(expand, expand_of, launch, args);
}

cudaError_t bgmv_scale(const Launch& launch, const choral_lora_args& args) {
  if (args.y.rows == 0 || args.stack.cols == 0 || args.stack.slots == 0) return cudaSuccess;
  Adapters a(launch, args, Direction::kScale, false);
  a.append(args, Direction::kScale, kScaleThreads);
  const dim3 blocks(static_cast<unsigned>(a.rows), a.block_count);
  return launch_kernel(scale_kernel, {blocks, dim3(kScaleThreads)}, launch, a);
}

}  // namespace choral_cuda
