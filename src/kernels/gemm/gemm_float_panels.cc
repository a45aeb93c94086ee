#include "kernels/gemm/gemm_float_panels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/checked_math.h"
#include "base/float8.h"
#include "kernels/gemm/gemm_float_pack.h"
#include "kernels/quant/dequantise.h"

namespace choral::kernels {
namespace {

constexpr int64_t kBlockK = 1024;  // k packed at once: 16 rows of floats stay in L2; a multiple of every block type
constexpr uint64_t kMaxBytes = uint64_t{1} << 42;  // far above any machine; keeps every later product of sizes in 63 bits

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

Status check_part(const WeightRows& part, size_t index, int64_t k) {
  const TensorView& t = part.tensor;
  if (t.shape.rank() != 2) return invalid_argument("part {} has shape {}; a weight is [rows, k]", index, t.shape.to_string());
  if (t.shape[0] <= 0 || t.shape[1] <= 0) return invalid_argument("part {} is empty: shape {}", index, t.shape.to_string());
  if (t.shape[1] != k) {
    return invalid_argument("part {} has k = {} but part 0 has {}; stacked parts share their input", index, t.shape[1], k);
  }
  if (!can_dequantise(t.dtype)) return unsupported("part {} is stored as {}, which is no float type", index, dtype_name(t.dtype));
  if (k % facts(t.dtype).block_elements != 0) {
    return corrupt("part {} has k = {}, not whole {} blocks of {}", index, k, dtype_name(t.dtype), facts(t.dtype).block_elements);
  }
  if (!t.device.host_accessible) return unsupported("part {} is in device memory, which the CPU cannot read", index);
  if (t.data == nullptr) return invalid_argument("part {} has no data", index);
  for (const int32_t row : part.order) {
    if (row < 0 || row >= t.shape[0]) {
      return invalid_argument("part {} orders row {}, but the tensor has {} rows", index, row, t.shape[0]);
    }
  }
  return {};
}

int64_t rows_of(const WeightRows& part) { return part.order.empty() ? part.tensor.shape[0] : std::ssize(part.order); }

// Where packed row i comes from.
class RowSource {
 public:
  explicit RowSource(std::span<const WeightRows> parts) : parts_(parts) {
    for (const auto& part : parts) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + rows_of(part));
  }
  int64_t rows() const { return ends_.back(); }

  struct Row {
    DType dtype;
    const std::byte* data;
  };
  Row row(int64_t i) const {
    const size_t p = std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin();
    const WeightRows& part = parts_[p];
    const int64_t local = i - (p == 0 ? 0 : ends_[p - 1]);
    return {part.tensor.dtype, part.tensor.row(part.order.empty() ? local : part.order[local])};
  }

 private:
  std::span<const WeightRows> parts_;
  std::vector<int64_t> ends_;
};

// One panel's rows as 16-bit or 32-bit numbers of the packed type, `kBlockK` k at a time.
struct PanelRows {
  std::array<RowSource::Row, kPanelRows> rows;
  int count;
};

int64_t source_bytes(DType type, int64_t elements) { return row_bytes(type, elements); }

void pack_panel(const PanelRows& panel, DType as, int64_t k, const PackKernels& kernels, std::byte* out, float* floats,
                std::byte* rounded) {
  const int64_t element_bytes = facts(as).block_bytes;
  for (int64_t k0 = 0; k0 < k; k0 += kBlockK) {
    const int64_t count = std::min(kBlockK, k - k0);
    std::array<const std::byte*, kPanelRows> source{};
    for (int r = 0; r < panel.count; ++r) {
      const auto& row = panel.rows[r];
      const std::byte* stored = row.data + source_bytes(row.dtype, k0);
      if (row.dtype == as) {
        source[r] = stored;
        continue;
      }
      std::byte* target = rounded + r * kBlockK * element_bytes;
      source[r] = target;
      float* wide = as == DType::kF32 ? reinterpret_cast<float*>(target) : floats;
      dequantise_row(row.dtype, stored, count, wide);
      if (as == DType::kBF16) kernels.to_bfloat16(wide, count, reinterpret_cast<BFloat16*>(target));
      if (as == DType::kF16) kernels.to_float16(wide, count, reinterpret_cast<Float16*>(target));
    }
    std::byte* target = out + k0 * kPanelRows * element_bytes;
    if (as == DType::kF32) {
      kernels.transpose32(source.data(), panel.count, count, target);
    } else if (as == DType::kBF16) {
      kernels.transpose32(source.data(), panel.count, count / 2, target);
      if (count % 2 != 0) {  // the last, unpaired k
        for (int r = 0; r < panel.count; ++r) {
          std::memcpy(target + (count / 2 * kPanelRows + r) * 4, source[r] + (count - 1) * 2, 2);
        }
      }
    } else {
      kernels.transpose16(source.data(), panel.count, count, target);
    }
  }
}

}  // namespace

int64_t float_panel_bytes(DType dtype, int64_t k) {
  // Of bf16, whole tiles of the tile unit (x86/gemm_float_amx.h).
  const int64_t padded_k = dtype == DType::kBF16 ? round_up(k, 32) : k;
  return round_up(padded_k * kPanelRows * facts(dtype).block_bytes, static_cast<int64_t>(kCacheLineBytes));
}

bool is_beyond_memory(int64_t n, int64_t k) {
  const auto elements = checked_mul(static_cast<uint64_t>(n) + kPanelRows, static_cast<uint64_t>(k) + 32);
  return !elements || *elements > kMaxBytes / 4;
}

int64_t float_panels_bytes(DType dtype, int64_t n, int64_t k) { return ceil_div(n, kPanelRows) * float_panel_bytes(dtype, k); }

Result<FloatPanels> pack_float_panels(std::span<const WeightRows> parts, DType as, ThreadPool& pool) {
  if (as != DType::kF32 && as != DType::kBF16 && as != DType::kF16) {
    return invalid_argument("float weights are packed as float32, bfloat16 or float16, not {}", dtype_name(as));
  }
  if (parts.empty()) return invalid_argument("a weight matrix needs at least one part");
  const int64_t k = parts[0].tensor.shape.rank() == 2 ? parts[0].tensor.shape[1] : 0;
  for (size_t i = 0; i < parts.size(); ++i) CHORAL_RETURN_IF_ERROR(check_part(parts[i], i, k));

  const RowSource source(parts);
  FloatPanels packed;
  packed.dtype = as;
  packed.n = source.rows();
  packed.k = k;
  if (is_beyond_memory(packed.n, k)) return too_large("a weight of [{}, {}] is beyond any memory", packed.n, k);
  packed.panel_bytes = float_panel_bytes(as, k);
  CHORAL_TRY(AlignedBuffer bytes, AlignedBuffer::allocate(float_panels_bytes(as, packed.n, k)));

  // Each thread's floats of one row, then its 16 rounded rows.
  constexpr int64_t kThreadBytes = kBlockK * 4 * (1 + kPanelRows);
  CHORAL_TRY(AlignedBuffer scratch, AlignedBuffer::allocate(kThreadBytes * pool.size()));
  const PackKernels& kernels = pack_kernels(cpu_level());
  pool.parallel_for(packed.panels(), 1, [&](int64_t begin, int64_t end, int thread) {
    std::byte* own = scratch.data() + thread * kThreadBytes;
    for (int64_t p = begin; p < end; ++p) {
      PanelRows rows;
      rows.count = static_cast<int>(std::min(kPanelRows, packed.n - p * kPanelRows));
      for (int r = 0; r < rows.count; ++r) rows.rows[r] = source.row(p * kPanelRows + r);
      pack_panel(rows, as, k, kernels, bytes.data() + p * packed.panel_bytes, reinterpret_cast<float*>(own), own + kBlockK * 4);
    }
  });
  packed.bytes = std::move(bytes);
  return packed;
}

void read_panel_row(const FloatPanels& panels, int64_t row, std::span<float> out) {
  CHORAL_CHECK(row >= 0 && row < panels.n && std::ssize(out) == panels.k, "read_row: a row of this matrix");
  const std::byte* panel = panels.panel(row / kPanelRows);
  const int64_t lane = row % kPanelRows;
  switch (panels.dtype) {
    case DType::kF32:
      for (int64_t i = 0; i < panels.k; ++i) out[i] = load<float>(panel + (i * kPanelRows + lane) * 4);
      break;
    case DType::kF16:
      for (int64_t i = 0; i < panels.k; ++i) {
        out[i] = to_float(Float16{load<uint16_t>(panel + (i * kPanelRows + lane) * 2)});
      }
      break;
    case DType::kF8E4M3:
      for (int64_t i = 0; i < panels.k; ++i) {
        const std::byte* group = panel + panels.offset(i / panels.group * panels.group);
        const int64_t local = i % panels.group;
        const Float8E4M3 code{load<uint8_t>(group + kPanelScaleBytes + (local / 2 * kPanelRows + lane) * 2 + local % 2)};
        out[i] = to_float(scaled_half(code)) * load<float>(group + lane * 4);
      }
      break;
    default:  // bf16, in pairs
      for (int64_t i = 0; i < panels.k; i += 2) {
        const auto pair = load<uint32_t>(panel + (i / 2 * kPanelRows + lane) * 4);
        out[i] = to_float(BFloat16{static_cast<uint16_t>(pair)});
        if (i + 1 < panels.k) out[i + 1] = to_float(BFloat16{static_cast<uint16_t>(pair >> 16)});
      }
      break;
  }
}

}  // namespace choral::kernels
