// A packed matrix as what can be written down and made again: its kind, its numbers, and its panels byte for byte. Who keeps
// them beyond the process (engine/packed_cache.h) keeps kPackedLayout with them, which changes whenever equal weights become
// other bytes: then no older ones are read (kept_matrix_test.cc says so of a change). A matrix that is made again multiplies to
// the same bits.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/gemm/packed_matrix.h"
#include "kernels/quant/quant_panels.h"

namespace choral::kernels {

inline constexpr int kPackedLayout = 1;

struct KeptMatrix {
  enum class Kind : uint8_t { kFloat, kFp8, kQuantised, kInt8 };

  Kind kind = Kind::kFloat;
  int64_t n = 0, k = 0;
  DType dtype = DType::kF32;                    // of floats
  int64_t group_size = 0;                       // of fp8 and int8: k of a scale; 0: all
  QuantForm form{8, QuantScales::kD};           // of quantised ones, as planes and name
  Planes planes = Planes::kTwo;                 // of x
  std::string_view name = {};                   // PackedMatrix::format()
  std::optional<StaticQuant> fixed_input = {};  // of int8
  std::span<const int32_t> k_order = {};        // [k], or none: x is gathered first (reordered_matrix.h)
  std::span<const std::byte> panels = {};
};

// The matrix, whose panels stay where they are; `owner` keeps them. Numbers that no packed matrix has, or panels of another size
// than these numbers say, are an error: what was kept may come from a file. Values are not looked at.
Result<std::unique_ptr<PackedMatrix>> restore_matrix(const KeptMatrix& kept, std::shared_ptr<const void> owner);

// Of each kind; restore_matrix() has checked n and k.
Result<std::unique_ptr<PackedMatrix>> restore_float(const KeptMatrix& kept, std::shared_ptr<const void> owner);
Result<std::unique_ptr<PackedMatrix>> restore_fp8(const KeptMatrix& kept, std::shared_ptr<const void> owner);
Result<std::unique_ptr<PackedMatrix>> restore_quantised(const KeptMatrix& kept, std::shared_ptr<const void> owner);
Result<std::unique_ptr<PackedMatrix>> restore_int8(const KeptMatrix& kept, std::shared_ptr<const void> owner);
// That the panels are so many bytes, at an address where kernels may read them.
Status check_panels(const KeptMatrix& kept, int64_t size_bytes);

}  // namespace choral::kernels
