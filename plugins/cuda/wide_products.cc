#include "wide_products.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "device.h"

namespace choral_cuda {
namespace {

// One block of the kernel, two blocks of columns; sums of four steps and more. A warpgroup's products have 32 rows of x, or two,
// four or eight times as many.
constexpr int64_t kRowsOfW = 64, kCols = 128, kLeastRows = 32, kRowsOfX = 256, kSums = kRowsOfX * kRowsOfW;

// One for each instruction.
struct Trial {
  int32_t stored_dtype, dtype, activations;
};
constexpr Trial kTrials[] = {{CHORAL_F32, CHORAL_BF16, CHORAL_X_FULL},
                             {CHORAL_F32, CHORAL_F16, CHORAL_X_FULL},
                             {CHORAL_I8, CHORAL_I8, CHORAL_X_INT8_ROWS}};

// Of both signs and of magnitudes that make sums lose bits.
std::vector<float> random_values(int64_t count, std::mt19937& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    const auto bits = static_cast<uint32_t>(random());
    value = std::ldexp(static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31F, static_cast<int>(bits % 23) - 11);
  }
  return values;
}

// W packed, and x behind it.
struct Operands {
  PackPlan plan;
  std::vector<unsigned char> bytes;

  Operands(const Trial& trial, std::mt19937& random) {
    const auto w = random_values(kRowsOfW * kCols, random), x = random_values(kRowsOfX * kCols, random);
    const std::vector<float> scales(kRowsOfW, 1.0F);
    const int64_t row_bytes = stored_row_bytes(trial.stored_dtype, kCols);  // of integers: any bytes will do
    const choral_weight_part part{w.data(), kRowsOfW, row_bytes, nullptr};
    choral_weight weight{};
    weight.stored_dtype = trial.stored_dtype;
    weight.dtype = trial.dtype;
    weight.cols = kCols;
    weight.parts = &part;
    weight.part_count = 1;
    weight.bits = 8;
    weight.activations = trial.activations;
    weight.scales = scales.data();
    weight.scale_count = trial.activations == CHORAL_X_INT8_ROWS ? kRowsOfW : 0;
    (void)plan_packing(weight, &plan);  // forms that it takes
    bytes.resize(static_cast<size_t>(plan.image_bytes) + x.size() * sizeof(float));
    pack_tiles(weight, plan, 0, plan.row_tiles, bytes.data());
    std::memcpy(bytes.data() + plan.image_bytes, x.data(), x.size() * sizeof(float));
  }
};

choral_matrix matrix(float* data, int64_t rows, int64_t cols) { return {data, rows, cols, cols, CHORAL_F32, 0}; }

choral_status* copy_bytes(choral_device* device, choral_stream* stream, int32_t kind, void* to, const void* from, size_t bytes) {
  const auto count = static_cast<int64_t>(bytes);
  const choral_copy whole{CHORAL_HEADER(choral_copy), kind, 0, to, count, from, count, count, 1};
  return copy(device, stream, &whole);
}

// Whether both give the same bits for so many rows of x. Memory: two results, the operands, scratch.
choral_status* compare(choral_device* device, choral_stream* stream, const Operands& operands, int64_t rows,
                       unsigned char* memory, bool* same) {
  auto* results = reinterpret_cast<float*>(memory);
  unsigned char* image = memory + 2 * kSums * sizeof(float);
  CUDA_TRY(copy_bytes(device, stream, CHORAL_HOST_TO_DEVICE, image, operands.bytes.data(), operands.bytes.size()));
  const PackedWeight weight = operands.plan.placed(image);
  Launch launch = device->launch_on(stream);
  launch.sm_count = 1;  // one block fills it
  launch.scratch = image + operands.bytes.size();
  for (const bool has_wgmma : {false, true}) {
    launch.has_wgmma = has_wgmma;
    choral_matmul_args args{};
    args.x = matrix(reinterpret_cast<float*>(image + operands.plan.image_bytes), rows, kCols);
    args.y = matrix(results + (has_wgmma ? kSums : 0), rows, kRowsOfW);
    CUDA_TRY(device->check(matmul(launch, weight, args), "try wgmma"));
  }
  std::vector<float> seen(2 * kSums);
  CUDA_TRY(copy_bytes(device, stream, CHORAL_DEVICE_TO_HOST, seen.data(), results, seen.size() * sizeof(float)));
  const auto bytes = static_cast<size_t>(rows * kRowsOfW) * sizeof(float);
  *same = *same && std::memcmp(seen.data(), seen.data() + kSums, bytes) == 0;
  return nullptr;
}

choral_status* try_wgmma(choral_device* device, choral_stream* stream, const Trial& trial, std::mt19937& random, bool* same) {
  const Operands operands(trial, random);
  const size_t scratch_bytes = matmul_scratch_bytes(operands.plan.weight, kRowsOfX);
  void* memory = nullptr;
  CUDA_TRY(device->allocate(2 * kSums * sizeof(float) + operands.bytes.size() + scratch_bytes, &memory));
  choral_status* failed = nullptr;
  for (int64_t rows = kLeastRows; rows <= kRowsOfX && failed == nullptr; rows *= 2) {
    failed = compare(device, stream, operands, rows, static_cast<unsigned char*>(memory), same);
  }
  device->release(memory);
  return failed;
}

}  // namespace

choral_status* choose_wide_products(choral_device* device, choral_stream* stream) {
  if (device->wide_products_chosen) [[likely]]
    return nullptr;
  bool same = device->is_sm_90;
  std::mt19937 random(1);
  for (const Trial& trial : kTrials) {
    if (same) CUDA_TRY(try_wgmma(device, stream, trial, random, &same));
  }
  device->has_wgmma = same;
  device->wide_products_chosen = true;
  if (same) log(CHORAL_LOG_INFO, "many rows are multiplied by wgmma, which gives the bits of mma.sync here");
  if (device->is_sm_90 && !same) {
    log(CHORAL_LOG_WARN,
        "many rows are multiplied by mma.sync: wgmma gives other bits on this device, and a row's may not depend on how many are "
        "with it");
  }
  return nullptr;
}

}  // namespace choral_cuda
