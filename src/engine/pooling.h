// How the hidden states of a text become its embedding, as sentence-transformers' files beside a model say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/status.h"

namespace choral::engine {

enum class Pooling : uint8_t {
  kNone,  // no embedding
  kLast,  // the last token's
  kMean,  // the mean of all tokens'
};

// By 1_Pooling/config.json in the model's folder; kLast where there is none. unsupported: another way.
Result<Pooling> read_pooling(const std::filesystem::path& model);

// The vector with length 1. internal: it has no direction (it is null, or holds a NaN or an infinity).
Result<std::vector<float>> normalized(std::span<const float> vector);

}  // namespace choral::engine
