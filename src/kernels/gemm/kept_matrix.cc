#include "kernels/gemm/kept_matrix.h"

#include "base/aligned_buffer.h"
#include "kernels/gemm/reordered_matrix.h"

namespace choral::kernels {
namespace {

Result<std::unique_ptr<PackedMatrix>> restore_panels(const KeptMatrix& kept, std::shared_ptr<const void> owner) {
  switch (kept.kind) {
    case KeptMatrix::Kind::kFloat: return restore_float(kept, std::move(owner));
    case KeptMatrix::Kind::kFp8: return restore_fp8(kept, std::move(owner));
    case KeptMatrix::Kind::kQuantised: return restore_quantised(kept, std::move(owner));
    case KeptMatrix::Kind::kInt8: return restore_int8(kept, std::move(owner));
  }
  return corrupt("panels of an unknown kind, {}", static_cast<int>(kept.kind));
}

}  // namespace

std::optional<KeptMatrix> PackedMatrix::kept() const { return std::nullopt; }

Result<std::unique_ptr<PackedMatrix>> restore_matrix(const KeptMatrix& kept, std::shared_ptr<const void> owner) {
  if (kept.n <= 0 || kept.k <= 0) return corrupt("a packed weight of [{}, {}]", kept.n, kept.k);
  CHORAL_TRY(auto matrix, restore_panels(kept, std::move(owner)));
  if (kept.k_order.empty()) return matrix;
  if (!matrix->quantised_input(CpuLevel::kBase)) return corrupt("an order of k for weights that meet x as it is");
  return reorder_input(std::move(matrix), kept.k_order);
}

Status check_panels(const KeptMatrix& kept, int64_t size_bytes) {
  if (std::ssize(kept.panels) != size_bytes) {
    return corrupt("the panels of a weight of [{}, {}] are {} bytes, not {}", kept.n, kept.k, kept.panels.size(), size_bytes);
  }
  if (reinterpret_cast<uintptr_t>(kept.panels.data()) % kCacheLineBytes != 0) {
    return corrupt("the panels of a weight of [{}, {}] begin within a cache line", kept.n, kept.k);
  }
  return {};
}

}  // namespace choral::kernels
