// How the hidden states of a text become its embedding, as the sentence-transformers files beside a model say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/config_map.h"

namespace choral::engine {

enum class Pooling : uint8_t {
  kNone,     // no embedding
  kLast,     // the last token's
  kFirst,    // the first token's
  kMean,     // the mean of all tokens'
  kMax,      // of each number the largest of all tokens'
  kClasses,  // no embedding either: what the model's head of classes makes of the last token's
};

// Whether a text's tokens must all be computed for it, or the last one alone.
constexpr bool is_of_all_tokens(Pooling pooling) {
  return pooling == Pooling::kFirst || pooling == Pooling::kMean || pooling == Pooling::kMax;
}

// What an embedding is by it, for people: "the mean of all tokens".
std::string_view pooling_name(Pooling pooling);

// What a model's files say of its embeddings.
struct PooledForm {
  Pooling pooling = Pooling::kLast;
  bool is_purpose = false;               // the model is one for embeddings
  bool may_be_cut = false;               // it was trained to give vectors whose beginnings are vectors (Matryoshka)
  std::vector<int64_t> dimensions = {};  // to which; empty: to any
};

// By modules.json and 1_Pooling/config.json in the model's folder, or by what a GGUF file says of it (`config`, as it was
// translated); kLast where nothing does. What such files say of is a model for embeddings, and may be cut unless its config names
// the sizes to which; another's vectors may be cut where its config says so. unsupported: another way, or layers of its own after
// it.
Result<PooledForm> read_pooling(const std::filesystem::path& model, const io::ConfigMap& config);

// The vector with length 1. internal: it has no direction (it is null, or holds a NaN or an infinity).
Result<std::vector<float>> normalized(std::span<const float> vector);

}  // namespace choral::engine
