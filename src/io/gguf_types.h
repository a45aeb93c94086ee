// The numbers GGUF gives to tensor types and to metadata types. Internal to io.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "tensor/dtype.h"

namespace choral::io {

enum class GgufValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// kUnsupported, with the type's name where it has one ("IQ2_XS"), for types Choral cannot read.
Result<DType> dtype_from_ggml(uint32_t ggml_type);

// The number of `type`, for those who write GGUF. CHECK-fails for a type GGUF has not.
uint32_t ggml_from_dtype(DType type);

}  // namespace choral::io
