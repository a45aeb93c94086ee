// Unigram (SentencePiece): the way through the piece with the best sum of scores, by Viterbi over a trie of the vocabulary.
// A character no token covers costs the lowest score minus 10 and becomes byte tokens or the unknown token; neighbours fuse.
// Thread-safety: immutable.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "text/model.h"
#include "text/vocabulary.h"

namespace choral::text {

class UnigramModel final : public Model {
 public:
  // scores[id]; `vocabulary` must outlive the model. Where a token comes twice, its last id counts.
  static Result<std::unique_ptr<UnigramModel>> create(const Vocabulary& vocabulary, std::vector<double> scores,
                                                      std::optional<int32_t> unk_id, bool byte_fallback);

  Status encode_piece(std::string_view piece, EncodeBudget& budget, ModelScratch& scratch,
                      std::vector<int32_t>& ids) const override;
  bool keeps_all_text() const override;

 private:
  explicit UnigramModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  Status emit(std::string_view text, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  FlatMap64 edges_;             // node << 8 | byte -> node
  std::vector<int32_t> token_;  // by node: id or -1
  std::optional<int32_t> unk_id_;
  double unk_score_ = 0;
  std::array<int32_t, 256> byte_tokens_{};
  bool byte_fallback_ = false;
};

}  // namespace choral::text
