// What an evaluation compares with, a few rows at a time: another model's logits, computed beside the measured one's, or those of
// a file. The calls follow the windows. One thread.
#pragma once

#include <memory>
#include <string>

#include "tools/eval/saved_logits.h"
#include "tools/eval/window_engine.h"
#include "tools/evaluation.h"

namespace choral::tools {

class ReferenceRows {
 public:
  virtual ~ReferenceRows() = default;
  virtual const std::string& model() const = 0;
  // As WindowEngine::begin().
  virtual Status begin(std::span<const int32_t> tokens) = 0;
  // Of the rows that WindowEngine::next() gave in turn, the last next.size() ones, which count; next[i] is the token that follows
  // row i of these in the text. Valid until the next call.
  struct Rows {
    MatrixView<const float> logits;
    std::span<const RowScore> scores;
  };
  virtual Result<Rows> take(const WindowEngine::Rows& beside, std::span<const int32_t> next) = 0;
  // After the last row.
  virtual Status finish() = 0;
};

// `windows` are of `text`, by the tokenizer of `measured`, whose steps the reference's will be as large as.
Result<std::unique_ptr<ReferenceRows>> load_reference(const EvaluatedModel& model, const TextWindows& windows,
                                                      const EvaluationOptions& text, const WindowEngine& measured);
// `measured` lends its threads.
Result<std::unique_ptr<ReferenceRows>> open_saved_reference(const std::string& path, const TextWindows& windows,
                                                            WindowEngine& measured);

// next[i] follows row i. An error: a row holds what is no number, or its next token cannot be.
Status score_rows(WindowEngine& engine, MatrixView<const float> logits, std::span<const int32_t> next,
                  std::vector<RowScore>& scores);
// The text's windows as this model's tokenizer has them.
Result<TextWindows> cut_text(const WindowEngine& engine, const EvaluationOptions& text);

}  // namespace choral::tools
