// The evaluation: window by window, step by step.
#include <cmath>

#include "base/clock.h"
#include "base/out_of_memory.h"
#include "tools/eval/reference_rows.h"
#include "tools/evaluation.h"

namespace choral::tools {
namespace {

class Evaluation {
 public:
  explicit Evaluation(const EvaluationOptions& options) : options_(options) {}
  Result<EvaluationReport> run();

 private:
  Status prepare();
  Status score_window(int64_t index);
  Status compare(MatrixView<const float> logits, const ReferenceRows::Rows& reference);
  Status save(MatrixView<const float> logits);

  const EvaluationOptions& options_;
  std::unique_ptr<WindowEngine> engine_;
  std::unique_ptr<ReferenceRows> reference_;  // null: none
  TextWindows windows_;
  EvaluationReport report_;
  double nll_sum_ = 0;
  std::vector<RowScore> scores_;  // of the step's rows that count
  std::string saved_rows_;
};

Status check_options(const EvaluationOptions& o) {
  if (o.window_tokens < 0 || o.window_tokens == 1)
    return invalid_argument("--ctx-size {}: give 2 or more, of which the first token predicts the next", o.window_tokens);
  if (o.min_context < 1) return invalid_argument("--min-context {}: give 1 or more", o.min_context);
  if (o.max_tokens < 0) return invalid_argument("--tokens {}: give 1 or more, or 0 for all", o.max_tokens);
  if (o.reference && !o.saved_reference.empty()) return invalid_argument("give either a reference model or saved logits");
  return check_text(o.text, o.text_name);
}

Status Evaluation::prepare() {
  CHORAL_RETURN_IF_ERROR(check_options(options_));
  const auto& measured = options_.measured;
  CHORAL_TRY(engine_, WindowEngine::load(measured.engine, measured.adapters, options_.window_tokens));
  CHORAL_TRY(windows_, cut_text(*engine_, options_));
  if (options_.reference) {
    CHORAL_TRY(reference_, load_reference(*options_.reference, windows_, options_, *engine_).while_("the reference"));
  }
  if (!options_.saved_reference.empty()) {
    CHORAL_TRY(reference_, open_saved_reference(options_.saved_reference, windows_, *engine_));
  }
  report_.model = engine_->name();
  report_.notes = engine_->facts().notes;
  report_.window_tokens = windows_.window_tokens;
  report_.windows = windows_.count();
  report_.text_tokens = std::ssize(windows_.tokens);
  report_.logprobs.reserve(windows_.scored());
  if (reference_ != nullptr) {
    report_.reference = {.model = reference_->model(), .logprobs = {}, .divergences = {}};
    report_.reference->logprobs.reserve(windows_.scored());
    report_.reference->divergences.reserve(windows_.scored());
  }
  if (!options_.save) return {};
  return options_.save(write_saved_header({.name = engine_->name(), .vocab = engine_->vocab(), .windows = windows_}));
}

Status Evaluation::score_window(int64_t index) {
  const auto window = windows_.window(index);
  const auto given = std::span(window).first(window.size() - 1);
  double begin = now_s();
  CHORAL_RETURN_IF_ERROR(engine_->begin(given));
  if (reference_ != nullptr) CHORAL_RETURN_IF_ERROR(reference_->begin(given));
  for (size_t done = 0; done < given.size();) {
    CHORAL_TRY(const auto rows, engine_->next());
    report_.compute_s += now_s() - begin;
    report_.computed_tokens += rows.logits.rows;
    CHORAL_CHECK(static_cast<size_t>(rows.first) == done && rows.logits.rows > 0, "a window's rows follow each other");
    done += static_cast<size_t>(rows.logits.rows);
    // The row in place r speaks of the token in place r + 1.
    const int64_t counting = std::clamp<int64_t>(static_cast<int64_t>(done) + 1 - windows_.first_scored(), 0, rows.logits.rows);
    const auto next = std::span(window).subspan(done + 1 - static_cast<size_t>(counting), counting);
    const auto logits = rows.logits.sub_rows(rows.logits.rows - counting, counting);
    CHORAL_RETURN_IF_ERROR(score_rows(*engine_, logits, next, scores_));
    for (const auto& score : scores_) {
      report_.logprobs.push_back(score.logprob);
      nll_sum_ -= static_cast<double>(score.logprob);
    }
    if (reference_ != nullptr) {
      CHORAL_TRY(const auto beside, reference_->take(rows, next));
      CHORAL_RETURN_IF_ERROR(compare(logits, beside));
    }
    if (options_.save) CHORAL_RETURN_IF_ERROR(save(logits));
    if (options_.on_progress) {
      const auto scored = std::ssize(report_.logprobs);
      options_.on_progress({scored, windows_.scored(), scored > 0 ? nll_sum_ / static_cast<double>(scored) : 0});
    }
    begin = now_s();
  }
  return {};
}

Status Evaluation::compare(MatrixView<const float> logits, const ReferenceRows::Rows& reference) {
  auto& found = *report_.reference;
  const size_t before = found.divergences.size();
  found.divergences.resize(before + scores_.size());
  engine_->pool().parallel_for(logits.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      found.divergences[before + i] = kl_divergence(reference.logits.row_span(i), logits.row_span(i));
    }
  });
  for (size_t i = 0; i < scores_.size(); ++i) {
    found.logprobs.push_back(reference.scores[i].logprob);
    found.same_top += int64_t{reference.scores[i].top == scores_[i].top};
  }
  return {};
}

Status Evaluation::save(MatrixView<const float> logits) {
  const auto row_bytes = static_cast<size_t>(saved_row_bytes(logits.cols));
  saved_rows_.resize(row_bytes * scores_.size());
  engine_->pool().parallel_for(logits.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      write_saved_row(logits.row_span(i), scores_[i], std::span(saved_rows_).subspan(row_bytes * i, row_bytes));
  });
  return options_.save(saved_rows_);
}

Result<EvaluationReport> Evaluation::run() {
  CHORAL_RETURN_IF_ERROR(prepare());
  for (int64_t i = 0; i < windows_.count(); ++i) {
    if (windows_.scored_in(i) > 0) CHORAL_RETURN_IF_ERROR(score_window(i));
  }
  if (reference_ != nullptr) CHORAL_RETURN_IF_ERROR(reference_->finish());
  return std::move(report_);
}

}  // namespace

Result<EvaluationReport> evaluate(const EvaluationOptions& options) {
  return or_out_of_memory("the evaluation cannot go on", [&] { return Evaluation(options).run(); });
}

}  // namespace choral::tools
