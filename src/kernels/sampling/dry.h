// DRY ("don't repeat yourself"), as llama.cpp has it: what each token that would go on with a repetition loses. Where the last
// tokens stand earlier too, `length` of them, the token behind that earlier place loses multiplier · base^(length − allowed).
// Linear in the tokens, but for sorting what is penalised. Pure; scratch is given back on return, but for what is returned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"

namespace choral::kernels {

struct DrySettings {
  float multiplier = 0.0f;  // 0: off
  float base = 1.75f;       // >= 1
  int32_t allowed_length = 2;
  int32_t last_n = -1;  // of the tokens; -1: all, 0: off
};
inline bool is_on(const DrySettings& dry) { return dry.multiplier != 0.0f && dry.last_n != 0; }

// A sequence over which no repetition goes: this token and those behind it.
struct DryBreaker {
  int32_t token = 0;
  std::vector<int32_t> rest = {};
};

struct TokenPenalty {
  int32_t token = 0;
  float penalty = 0;  // finite; subtracted from the logit
};

// `breakers`: by their tokens, ascending. Each token once, ascending. A breaker of one token is never penalised.
std::span<const TokenPenalty> dry_penalties(std::span<const int32_t> tokens, const DrySettings& settings,
                                            std::span<const DryBreaker> breakers, Arena& scratch);

}  // namespace choral::kernels
