// Byte-pair encoding: a piece starts as its characters (or bytes) and the neighbours whose merge has the lowest rank join,
// leftmost first, until none can. What cannot be spelled becomes byte tokens, the unknown token, or nothing, as HF does.
//
// Speed comes from three exact short cuts: (1) a word that came out as the token of its own text is noted, and looked up whole
// from then on; (2) a piece is cut where no merge reaches across, so a text without pre-tokenizer falls into words; (3) short
// words merge in plain arrays and only long ones in a heap, which keeps a megabyte of one letter at n log n. Thread-safety:
// immutable, but for those notes, which any thread may make and which change no answer.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/model.h"
#include "text/vocabulary.h"

namespace choral::text {

struct BpeMerge {
  int32_t left = -1, right = -1, result = -1;

  bool operator==(const BpeMerge&) const = default;
};

using TextPair = std::pair<std::string_view, std::string_view>;
// The ids of merges that files spell. Refuses tokens that the vocabulary lacks. What joins is `right` without `prefix`
// (continuing_subword_prefix).
Result<std::vector<BpeMerge>> find_merges(const Vocabulary& vocabulary, std::span<const TextPair> merges,
                                          std::string_view prefix = "");

struct BpeConfig {
  std::vector<BpeMerge> merges;  // of the vocabulary, by rank; a pair that comes twice has its last rank
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix, end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool bytes = false;  // pieces are raw bytes and the vocabulary is spelled in byte_level.h's characters
};

class BpeModel final : public Model {
 public:
  // `vocabulary` holds the model's own tokens and must outlive the model.
  static Result<std::unique_ptr<BpeModel>> create(const Vocabulary& vocabulary, const BpeConfig& config);

  Status encode_piece(std::string_view piece, EncodeBudget& budget, ModelScratch& scratch,
                      std::vector<int32_t>& ids) const override;
  bool keeps_all_text() const override;

 private:
  explicit BpeModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  void add_merges(const BpeConfig& config);
  void index_symbols(const BpeConfig& config);
  void index_joints(const BpeConfig& config);
  void index_bytes();
  int32_t token_of(std::string_view text) const { return bytes_ ? by_bytes_.find(text) : vocabulary_.find(text); }  // or -1
  Status encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& ids) const;
  Status spell(std::string_view word, std::vector<int32_t>& symbols) const;
  int32_t symbol_of(std::string_view character, uint32_t code_point) const;
  int32_t affixed_symbol(std::string_view character, bool first, bool last) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(ModelScratch& scratch) const;
  uint64_t merge_of(int32_t left, int32_t right) const {  // rank << 32 | new id, or FlatMap64::kNone
    return merges_.find(static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right));
  }

  const Vocabulary& vocabulary_;
  FlatMap64 merges_;
  std::array<int32_t, 256> byte_symbols_{};  // bytes mode: id of the byte's character, or -1
  std::array<int32_t, 256> byte_tokens_{};   // byte_fallback: id of "<0xXX>", or -1
  FlatMap64 char_symbols_;                   // code point -> id
  FlatMap64 joints_;  // characters that stand side by side inside some merge's result, where the right may be cut off
  bool can_cut_ = false;
  StringTable by_bytes_;                             // bytes mode: text -> id
  std::string bytes_arena_;                          // its texts
  mutable std::vector<std::atomic<bool>> is_whole_;  // by id: the token's own text is known to come out as it; empty with affixes
  std::optional<std::string> unk_token_;
  int32_t unk_id_ = -1;
  std::string prefix_, suffix_;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false, bytes_ = false;
};

}  // namespace choral::text
