// The file of `choral eval --save-logits`: of each token that counts, what the model gave all tokens in its place, so that
// another run can be compared without the model. Little-endian, in this order:
//   "CHORALKL" · u32 version (1) · u32 vocabulary · u32 window_tokens · u32 min_context · u32 bytes of the name · u32 tokens of
//   the prefix · u64 tokens of the text · u64 rows · the model's name · the prefix · the text's tokens (u32 each) · the rows.
// A row: f32 log-probability of the token that follows · u32 the most likely token · a u16 for each token of the vocabulary: how
// far its logit is below the row's largest, in steps of 1/2048, rounded, 65535 (32 nats) at most. Half the bytes of the logits;
// a row and its rounded self are 3e-8 nats apart at most. Perplexity and the most likely token are exact. Reading trusts nothing:
// every size is checked against the file's before anything is made of it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "io/file_bytes.h"
#include "tools/eval/row_scores.h"
#include "tools/eval/text_windows.h"

namespace choral::tools {

struct SavedHeader {
  std::string name = {};  // of the model, for reports; cut when it is long
  int64_t vocab = 0;
  TextWindows windows = {};
};

std::string write_saved_header(const SavedHeader& header);
int64_t saved_row_bytes(int64_t vocab);
// `out`: saved_row_bytes(logits.size()).
void write_saved_row(std::span<const float> logits, const RowScore& score, std::span<char> out);

// The file's bytes outlive it.
class SavedLogits {
 public:
  static Result<SavedLogits> parse(std::span<const std::byte> bytes, std::string_view file);

  const SavedHeader& header() const { return header_; }
  int64_t rows() const { return header_.windows.scored(); }
  // The text has been scored in the same windows, as far as it goes; an error says what differs and what to do.
  Status check_same(int64_t vocab, const TextWindows& windows) const;
  // Logits that make the same probabilities, into `logits` (as wide as the vocabulary). Any thread.
  Result<RowScore> read_row(int64_t row, std::span<float> logits) const;
  // The file's range with these rows.
  std::span<const std::byte> bytes_of(int64_t first_row, int64_t count) const;

 private:
  std::string file_;
  SavedHeader header_;
  std::span<const std::byte> rows_;
};

}  // namespace choral::tools
