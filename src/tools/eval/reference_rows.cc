#include "tools/eval/reference_rows.h"

#include <cmath>

#include "io/mapped_file.h"

namespace choral::tools {
namespace {

class ModelReference : public ReferenceRows {
 public:
  explicit ModelReference(std::unique_ptr<WindowEngine> engine) : engine_(std::move(engine)) {}

  const std::string& model() const override { return engine_->name(); }
  Status begin(std::span<const int32_t> tokens) override { return engine_->begin(tokens); }
  Result<Rows> take(const WindowEngine::Rows& beside, std::span<const int32_t> next) override {
    CHORAL_TRY(const auto rows, engine_->next());
    CHORAL_CHECK(rows.first == beside.first && rows.logits.rows == beside.logits.rows,
                 "windows of one size are divided over steps of one size");
    const auto counting = static_cast<int64_t>(next.size());
    const auto logits = rows.logits.sub_rows(rows.logits.rows - counting, counting);
    CHORAL_RETURN_IF_ERROR(score_rows(*engine_, logits, next, scores_));
    return Rows{logits, scores_};
  }
  Status finish() override { return {}; }

 private:
  std::unique_ptr<WindowEngine> engine_;
  std::vector<RowScore> scores_;
};

class SavedReference : public ReferenceRows {
 public:
  SavedReference(std::shared_ptr<const io::MappedFile> file, SavedLogits saved, WindowEngine& measured)
      : file_(std::move(file)), saved_(std::move(saved)), measured_(measured) {}

  const std::string& model() const override { return saved_.header().name; }
  Status begin(std::span<const int32_t>) override { return {}; }
  Result<Rows> take(const WindowEngine::Rows&, std::span<const int32_t> next) override {
    const auto count = static_cast<int64_t>(next.size());
    const int64_t vocab = saved_.header().vocab;
    logits_.resize(static_cast<size_t>(count * vocab));
    scores_.resize(next.size());
    std::vector<Status> read(next.size());
    const MatrixView<float> logits(logits_.data(), count, vocab);
    measured_.pool().parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        auto score = saved_.read_row(row_ + i, logits.row_span(i));
        if (score.ok())
          scores_[i] = *score;
        else
          read[i] = std::move(score).status();
      }
    });
    for (auto& status : read) CHORAL_RETURN_IF_ERROR(std::move(status));
    file_->release(saved_.bytes_of(row_, count));
    row_ += count;
    return Rows{logits, scores_};
  }
  Status finish() override { return file_->check_unchanged(); }

 private:
  std::shared_ptr<const io::MappedFile> file_;
  SavedLogits saved_;
  WindowEngine& measured_;
  int64_t row_ = 0;
  std::vector<float> logits_;
  std::vector<RowScore> scores_;
};

}  // namespace

Result<std::unique_ptr<ReferenceRows>> load_reference(const EvaluatedModel& model, const TextWindows& windows,
                                                      const EvaluationOptions& text, const WindowEngine& measured) {
  CHORAL_TRY(auto engine, WindowEngine::load(model.engine, model.adapters, windows.window_tokens, measured.step_tokens()));
  if (engine->vocab() != measured.vocab()) {
    return invalid_argument("{} has a vocabulary of {} tokens, the measured model has {}: they cannot be compared",
                            engine->name(), engine->vocab(), measured.vocab());
  }
  CHORAL_TRY(const auto own, cut_text(*engine, text));
  if (own.prefix != windows.prefix || own.tokens != windows.tokens) {
    return invalid_argument(
        "{} has another tokenizer than the measured model: they read other tokens in the text, and cannot be "
        "compared",
        engine->name());
  }
  return std::unique_ptr<ReferenceRows>(new ModelReference(std::move(engine)));
}

Result<std::unique_ptr<ReferenceRows>> open_saved_reference(const std::string& path, const TextWindows& windows,
                                                            WindowEngine& measured) {
  CHORAL_TRY(auto file, io::MappedFile::open(path));
  CHORAL_TRY(auto saved, SavedLogits::parse(file->bytes(), path));
  CHORAL_RETURN_IF_ERROR(saved.check_same(measured.vocab(), windows));
  return std::unique_ptr<ReferenceRows>(new SavedReference(std::move(file), std::move(saved), measured));
}

Status score_rows(WindowEngine& engine, MatrixView<const float> logits, std::span<const int32_t> next,
                  std::vector<RowScore>& scores) {
  CHORAL_CHECK(static_cast<size_t>(logits.rows) == next.size(), "each row has a token that follows");
  scores.resize(next.size());
  engine.pool().parallel_for(logits.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) scores[i] = score_row(engine.facts().cpu_level, logits.row_span(i), next[i]);
  });
  for (size_t i = 0; i < next.size(); ++i) {
    if (scores[i].top < 0) return internal_error("{}: the logits hold what is no number: the model broke down", engine.name());
    if (!std::isfinite(scores[i].logprob)) {
      return unsupported("{} holds token {} for impossible where it stands in the text: there is no perplexity", engine.name(),
                         next[i]);
    }
  }
  return {};
}

Result<TextWindows> cut_text(const WindowEngine& engine, const EvaluationOptions& text) {
  const auto* tokenizer = engine.tokenizer();
  if (tokenizer == nullptr) return unsupported("{} has no tokenizer: give --tokenizer PATH", engine.name());
  TextWindows windows{.window_tokens = engine.window_tokens(), .min_context = text.min_context};
  CHORAL_TRY(windows.prefix, tokens_before_text(*tokenizer));
  CHORAL_TRY(windows.tokens, tokenizer->encode(text.text, {.add_special_tokens = false}).while_(text.text_name));
  if (text.max_tokens > 0 && std::ssize(windows.tokens) > text.max_tokens) windows.tokens.resize(text.max_tokens);
  if (windows.window_tokens <= windows.first_scored()) {
    return invalid_argument("no token counts: of {} tokens in a window, the first {} do not; raise --ctx-size{}",
                            windows.window_tokens, windows.first_scored(), text.min_context > 1 ? " or lower --min-context" : "");
  }
  if (windows.scored() == 0) {
    return invalid_argument("{} has {} token{}, of which none counts: at least {} must stand before one; give a longer text",
                            text.text_name, windows.tokens.size(), windows.tokens.size() == 1 ? "" : "s", windows.first_scored());
  }
  return windows;
}

}  // namespace choral::tools
