#include "tensor/dtype.h"

#include <array>

namespace choral {
namespace {

// In the order of DType.
constexpr std::array<DTypeFacts, 35> kFacts{{
    {"float32", 1, 4, true, false},      {"float16", 1, 2, true, false},      {"bfloat16", 1, 2, true, false},
    {"float64", 1, 8, true, false},      {"int8", 1, 1, false, false},        {"uint8", 1, 1, false, false},
    {"int16", 1, 2, false, false},       {"int32", 1, 4, false, false},       {"int64", 1, 8, false, false},
    {"bool", 1, 1, false, false},        {"float8_e4m3", 1, 1, false, false}, {"float8_e5m2", 1, 1, false, false},
    {"q8_0", 32, 34, false, true},       {"q4_0", 32, 18, false, true},       {"q4_1", 32, 20, false, true},
    {"q5_0", 32, 22, false, true},       {"q5_1", 32, 24, false, true},       {"q4_k", 256, 144, false, true},
    {"q5_k", 256, 176, false, true},     {"q6_k", 256, 210, false, true},     {"q2_k", 256, 84, false, true},
    {"q3_k", 256, 110, false, true},     {"iq4_nl", 32, 18, false, true},     {"iq4_xs", 256, 136, false, true},
    {"tq1_0", 256, 54, false, true},     {"tq2_0", 256, 66, false, true},     {"mxfp4", 32, 17, false, true},
    {"float8_e8m0", 1, 1, false, false}, {"iq1_s", 256, 50, false, true},     {"iq1_m", 256, 56, false, true},
    {"iq2_xxs", 256, 66, false, true},   {"iq2_xs", 256, 74, false, true},    {"iq2_s", 256, 82, false, true},
    {"iq3_xxs", 256, 98, false, true},   {"iq3_s", 256, 110, false, true},
}};

struct Alias {
  std::string_view name;
  DType type;
};
constexpr std::array<Alias, 9> kAliases{{{"fp32", DType::kF32},
                                         {"float", DType::kF32},
                                         {"f32", DType::kF32},
                                         {"fp16", DType::kF16},
                                         {"half", DType::kF16},
                                         {"f16", DType::kF16},
                                         {"bf16", DType::kBF16},
                                         {"i8", DType::kI8},
                                         {"f64", DType::kF64}}};

}  // namespace

const DTypeFacts& facts(DType type) { return kFacts.at(static_cast<size_t>(type)); }

Result<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].name == name) return static_cast<DType>(i);
  }
  for (const auto& alias : kAliases) {
    if (alias.name == name) return alias.type;
  }
  return invalid_argument("no data type is named '{}'", name);
}

}  // namespace choral
