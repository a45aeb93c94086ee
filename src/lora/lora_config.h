// The limits on adapters, under the fields and names of vLLM's LoRAConfig. Several of them reserve memory there and are only
// limits here: an adapter costs memory and work by its own ranks, never by max_lora_rank (invariant 4).
// A plain value. Call validate() once, before anything is built from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::lora {

// What an adapter's A and B are stored as once packed. kAuto keeps each tensor's own type.
enum class LoRADType : uint8_t { kAuto, kFloat16, kBFloat16, kFloat32, kInt8 };

// auto | float16, fp16, half | bfloat16, bf16 | float32, fp32, float | int8, i8.
Result<LoRADType> parse_lora_dtype(std::string_view name);

struct LoRAConfig {
  static constexpr int64_t kLargestRank = 512;
  static constexpr int64_t kMostExtraTokens = 65'536;

  int64_t max_loras = 8;       // distinct adapters in one step
  int64_t max_lora_rank = 64;  // 1 … 512; an adapter with a larger rank anywhere is refused
  LoRADType lora_dtype = LoRADType::kAuto;
  // Tokens that an adapter may bring: rows by which its embedding and head exceed the base's vocabulary. 0 … 65536
  int64_t lora_extra_vocab_size = 256;
  // Adapters in the host's memory at a time, those being loaded included; absent: as many as have room.
  std::optional<int64_t> max_cpu_loras;
  // Whether ranks of a divided model multiply by some rows of A each, and gather what they make; else each by all of A. Alone a
  // rank has nothing to share. The bits are the same.
  bool fully_sharded_loras = false;
  // Whether adapters may bring biases (lora_bias, trained biases of bias="all"). On, unlike vLLM, since they are supported.
  bool bias_enabled = true;
  // Rope scalings offered to long-context adapters. Only 1 is supported: the base's own context.
  std::vector<double> long_lora_scaling_factors;

  // What to do about an adapter of a rank above max_lora_rank, or with more tokens than lora_extra_vocab_size; only a limit that
  // validate() takes is advised.
  static std::string rank_advice(int64_t rank);
  static std::string extra_vocab_advice(int64_t tokens);

  // All that is wrong, in one error.
  Status validate() const;
};

}  // namespace choral::lora
