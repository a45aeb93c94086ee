#include "io/gguf_types.h"

#include <array>
#include <string_view>

#include "base/check.h"

namespace choral::io {
namespace {

struct Known {
  uint32_t number;
  DType type;
};
constexpr std::array<Known, 30> kKnown{
    {{0, DType::kF32},    {1, DType::kF16},     {2, DType::kQ4_0},     {3, DType::kQ4_1},    {6, DType::kQ5_0},
     {7, DType::kQ5_1},   {8, DType::kQ8_0},    {10, DType::kQ2_K},    {11, DType::kQ3_K},   {12, DType::kQ4_K},
     {13, DType::kQ5_K},  {14, DType::kQ6_K},   {16, DType::kIQ2_XXS}, {17, DType::kIQ2_XS}, {18, DType::kIQ3_XXS},
     {19, DType::kIQ1_S}, {20, DType::kIQ4_NL}, {21, DType::kIQ3_S},   {22, DType::kIQ2_S},  {23, DType::kIQ4_XS},
     {24, DType::kI8},    {25, DType::kI16},    {26, DType::kI32},     {27, DType::kI64},    {28, DType::kF64},
     {29, DType::kIQ1_M}, {30, DType::kBF16},   {34, DType::kTQ1_0},   {35, DType::kTQ2_0},  {39, DType::kMXFP4}}};

// Names of all numbers, for messages; an empty one was never given or was withdrawn.
constexpr std::array<std::string_view, 41> kNames{
    "F32",      "F16",    "Q4_0",  "Q4_1",       "Q4_2",       "Q4_3",       "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",     "Q2_K",
    "Q3_K",     "Q4_K",   "Q5_K",  "Q6_K",       "Q8_K",       "IQ2_XXS",    "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL",   "IQ3_S",
    "IQ2_S",    "IQ4_XS", "I8",    "I16",        "I32",        "I64",        "F64",    "IQ1_M",   "BF16",  "Q4_0_4_4", "Q4_0_4_8",
    "Q4_0_8_8", "TQ1_0",  "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",  "NVFP4"};

// "Q4_0, Q4_1, …, " of those that are read.
std::string block_types() {
  std::string names;
  for (const auto& known : kKnown) {
    if (facts(known.type).is_block) names += std::string(kNames[known.number]) + ", ";
  }
  return names;
}

}  // namespace

Result<DType> dtype_from_ggml(uint32_t ggml_type) {
  for (const auto& known : kKnown) {
    if (known.number == ggml_type) return known.type;
  }
  if (ggml_type >= kNames.size()) return corrupt("{} is no tensor type of GGUF", ggml_type);
  return unsupported("the type {} is not supported; use a file of {}F16 or BF16", kNames[ggml_type], block_types());
}

uint32_t ggml_from_dtype(DType type) {
  for (const auto& known : kKnown) {
    if (known.type == type) return known.number;
  }
  CHORAL_CHECK(false, "GGUF has no such type");
  return 0;
}

}  // namespace choral::io
