// The part of sampling.h that changes logits: bias, bans, masks and penalties.
#include <algorithm>
#include <limits>

#include "kernels/sampling/sampling.h"

namespace choral::kernels {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

bool names_logit(int32_t token, std::span<const float> logits) {
  return static_cast<uint64_t>(token) < logits.size() && token >= 0;
}

}  // namespace

void add_logit_bias(std::span<float> logits, std::span<const TokenBias> biases) {
  for (const TokenBias& b : biases) {
    if (names_logit(b.token, logits)) logits[b.token] += b.bias;
  }
}

void ban_tokens(std::span<float> logits, std::span<const int32_t> banned) {
  for (const int32_t t : banned) {
    if (names_logit(t, logits)) logits[t] = kRemoved;
  }
}

void allow_only_tokens(std::span<float> logits, std::span<const int32_t> allowed, Arena& scratch) {
  const Arena::Mark mark(scratch);
  const auto kept = scratch.make<float>(allowed.size());
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (names_logit(allowed[i], logits)) kept[i] = logits[allowed[i]];
  }
  std::fill(logits.begin(), logits.end(), kRemoved);
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (names_logit(allowed[i], logits)) logits[allowed[i]] = kept[i];
  }
}

void apply_token_mask(std::span<float> logits, std::span<const uint32_t> mask) {
  for (size_t begin = 0; begin < logits.size(); begin += 32) {
    const uint32_t word = begin / 32 < mask.size() ? mask[begin / 32] : 0;
    if (word == 0xFFFFFFFFu) continue;
    const size_t count = std::min<size_t>(32, logits.size() - begin);
    for (size_t bit = 0; bit < count; ++bit) {
      if ((word >> bit & 1u) == 0) logits[begin + bit] = kRemoved;
    }
  }
}

void apply_penalties(std::span<float> logits, std::span<const int32_t> prompt, std::span<const int32_t> output,
                     const Penalties& penalties, Arena& scratch) {
  const bool repetition = penalties.repetition != 1.0f;
  const bool output_only = penalties.frequency != 0.0f || penalties.presence != 0.0f;
  if (!repetition && !output_only) return;
  if (!repetition) prompt = {};
  // counts[t] is defined only for tokens of the two lists: clearing those costs less than clearing a vocabulary.
  constexpr int32_t kDone = -1;
  const Arena::Mark mark(scratch);
  const auto counts = scratch.make<int32_t>(logits.size());
  for (const auto list : {prompt, output}) {
    for (const int32_t t : list) {
      if (names_logit(t, logits)) counts[t] = 0;
    }
  }
  for (const int32_t t : output) {
    if (names_logit(t, logits)) ++counts[t];
  }
  for (const auto list : {prompt, output}) {
    for (const int32_t t : list) {
      if (!names_logit(t, logits) || counts[t] == kDone) continue;
      float& l = logits[t];
      if (repetition) l = l > 0.0f ? l / penalties.repetition : l * penalties.repetition;
      l -= penalties.frequency * static_cast<float>(counts[t]);
      if (counts[t] > 0) l -= penalties.presence;
      counts[t] = kDone;
    }
  }
}

}  // namespace choral::kernels
