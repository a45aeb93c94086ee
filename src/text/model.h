// The model stage: one piece of text to token ids. Two kinds: BPE (bpe_model.h) and Unigram (unigram_model.h).
// Thread-safety: immutable; scratch space belongs to the caller.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/encode_budget.h"

namespace choral::text {

// Work space of encode_piece, kept between pieces so that a text allocates a few times, not a few times a word.
struct ModelScratch {
  std::vector<int32_t> ids, previous, next;
  std::vector<uint64_t> heap;
  std::vector<double> scores;
  std::vector<int32_t> starts;
};

// Of one word, for which the scratch space is several times as large.
constexpr size_t kMaxWordBytes = size_t{8} << 20;

class Model {
 public:
  virtual ~Model() = default;
  // `piece` is not empty. Ids are appended. Fails as the budget does.
  virtual Status encode_piece(std::string_view piece, EncodeBudget& budget, ModelScratch& scratch,
                              std::vector<int32_t>& ids) const = 0;
  // Whether all text becomes tokens: neither left out nor joined to one unknown token.
  virtual bool keeps_all_text() const = 0;
};

}  // namespace choral::text
