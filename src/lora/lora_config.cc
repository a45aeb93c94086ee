#include "lora/lora_config.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/printable.h"
#include "lora/problem_list.h"

namespace choral::lora {
namespace {

constexpr int64_t kMostAdapters = 1'000'000;

constexpr std::array<std::pair<std::string_view, LoRADType>, 14> kSpellings{{{"auto", LoRADType::kAuto},
                                                                             {"float16", LoRADType::kFloat16},
                                                                             {"bfloat16", LoRADType::kBFloat16},
                                                                             {"float32", LoRADType::kFloat32},
                                                                             {"int8", LoRADType::kInt8},
                                                                             {"fp16", LoRADType::kFloat16},
                                                                             {"f16", LoRADType::kFloat16},
                                                                             {"half", LoRADType::kFloat16},
                                                                             {"bf16", LoRADType::kBFloat16},
                                                                             {"fp32", LoRADType::kFloat32},
                                                                             {"f32", LoRADType::kFloat32},
                                                                             {"float", LoRADType::kFloat32},
                                                                             {"i8", LoRADType::kInt8},
                                                                             {"s8", LoRADType::kInt8}}};

}  // namespace

Result<LoRADType> parse_lora_dtype(std::string_view name) {
  for (const auto& [spelling, value] : kSpellings) {
    if (spelling == name) return value;
  }
  return invalid_argument("lora_dtype '{}' is unknown; it is one of auto, float16, bfloat16, float32, int8", printable(name));
}

std::string LoRAConfig::rank_advice(int64_t rank) {
  if (rank > kLargestRank) return fmt::format("no rank above {} is served", kLargestRank);
  return fmt::format("start with --max-lora-rank {}", rank);
}

std::string LoRAConfig::extra_vocab_advice(int64_t tokens) {
  if (tokens > kMostExtraTokens) return fmt::format("no more than {} are served", kMostExtraTokens);
  return fmt::format("start with --lora-extra-vocab-size {}", tokens);
}

Status LoRAConfig::validate() const {
  ProblemList problems;
  if (max_loras < 1 || max_loras > kMostAdapters) {
    problems.add(invalid_argument("max_loras is {}; it must be 1 to {}", max_loras, kMostAdapters));
  }
  if (max_lora_rank < 1 || max_lora_rank > kLargestRank) {
    problems.add(invalid_argument("max_lora_rank is {}; it must be 1 to {}", max_lora_rank, kLargestRank));
  }
  if (lora_extra_vocab_size < 0 || lora_extra_vocab_size > kMostExtraTokens) {
    problems.add(invalid_argument("lora_extra_vocab_size is {}; it must be 0 to {}", lora_extra_vocab_size, kMostExtraTokens));
  }
  if (max_cpu_loras && (*max_cpu_loras < max_loras || *max_cpu_loras > kMostAdapters)) {
    problems.add(
        invalid_argument("max_cpu_loras is {}; it must be at least max_loras ({}) and at most {}, because an adapter in use "
                         "stays in memory",
                         *max_cpu_loras, max_loras, kMostAdapters));
  }
  for (const double factor : long_lora_scaling_factors) {
    if (!std::isfinite(factor) || factor < 1.0) {
      problems.add(invalid_argument("long_lora_scaling_factors has {}; each factor is 1 or more", factor));
    } else if (factor != 1.0) {
      problems.add(
          unsupported("long_lora_scaling_factors has {}: adapters that stretch the base's context are not supported; "
                      "serve them on a base with that rope scaling",
                      factor));
    }
  }
  return problems.to_status("the LoRA configuration is wrong");
}

}  // namespace choral::lora
