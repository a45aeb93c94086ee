// Element types of tensors: plain numbers and the block-quantised types of GGUF.
// A block type stores `block_elements` consecutive elements of a row in `block_bytes`; rows are whole blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace choral {

// The plug-in header has the same numbers: a new type comes last.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kF8E8M0,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
};

struct DTypeFacts {
  std::string_view name;   // "bfloat16", "q4_0"
  int32_t block_elements;  // 1 for plain types
  int32_t block_bytes;
  bool is_floating;  // plain float of 16 or more bits
  bool is_block;     // GGUF block type
};

const DTypeFacts& facts(DType type);
inline std::string_view dtype_name(DType type) { return facts(type).name; }

// Accepts float32|fp32|float|f32, float16|fp16|half|f16, bfloat16|bf16 and the block names.
Result<DType> parse_dtype(std::string_view name);

// Bytes of `elements` consecutive elements of one row; `elements` is a multiple of the block.
constexpr int64_t row_bytes(const DTypeFacts& f, int64_t elements) { return elements / f.block_elements * f.block_bytes; }
inline int64_t row_bytes(DType type, int64_t elements) { return row_bytes(facts(type), elements); }

}  // namespace choral
