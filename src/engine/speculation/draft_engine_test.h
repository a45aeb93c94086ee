// Draft models for the engine's tests: tiny models as executors, an executor that fails when it is told to, and an engine that
// has one beside it, whose clock says what a step of either takes. Tests only.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "engine/assembled_engine_test.h"
#include "engine/speculation/draft_model.h"

namespace choral::engine {

// Adds the same to the time whenever it is asked.
inline Clock ticking_clock(double tick_s) {
  const auto ticks = std::make_shared<std::atomic<int64_t>>(0);
  return [ticks, tick_s] { return tick_s * static_cast<double>(++*ticks); };
}

// Fails at its nth step; 0: never.
class FragileExecutor : public UniprocExecutor {
 public:
  FragileExecutor(UniprocExecutor&& executor, int fails_at) : UniprocExecutor(std::move(executor)), fails_at_(fails_at) {}
  Status execute_model(const StepInput& input, StepOutput& out) override {
    if (++steps_ == fails_at_) return unavailable("the device is gone");
    return UniprocExecutor::execute_model(input, out);
  }

 private:
  const int fails_at_;
  int steps_ = 0;
};

inline constexpr int kDraftTexts = 8, kDraftRows = 128;

inline EngineOptions draft_options(const std::string& model, int64_t kv_blocks = 0) {
  auto options = tiny_options(model);
  options.max_num_seqs = kDraftTexts;
  options.max_num_batched_tokens = kDraftRows;
  if (kv_blocks > 0) {
    const auto probe = load_or_die(options);
    options.kv_cache_bytes = probe->info().kv_cache_bytes / probe->stats().kv_blocks_total * kv_blocks;
  }
  return options;
}

inline std::unique_ptr<FragileExecutor> draft_executor(EngineOptions options, int fails_at = 0) {
  const auto files = open_model_files(options);
  CHORAL_CHECK(files.ok(), files.status().message());
  auto executor = UniprocExecutor::load(options, *files);
  CHORAL_CHECK(executor.ok(), executor.status().message());
  return std::make_unique<FragileExecutor>(std::move(**executor), fails_at);
}

struct DraftSetup {
  std::string model = "tiny-llama3";
  double step_s = 1e-5;  // of its own; the engine's take a hundred times as much
  int64_t kv_blocks = 0;
  int fails_at = 0;
};

// With lookups beside, as everywhere.
inline AssembledEngine drafting_engine(EngineOptions options, const DraftSetup& setup = {}) {
  options.speculative = "ngram";
  const int texts = options.max_num_seqs;
  return {std::move(options),
          AssembledEngine::one_worker,
          ticking_clock(1e-3),
          RequestReader::the_grammar_compiler,
          {},
          [setup, texts](const ExecutorFacts& target) {
            auto own = draft_options(setup.model, setup.kv_blocks);
            own.max_num_seqs = texts;
            auto draft = std::make_unique<DraftModel>(draft_executor(own, setup.fails_at), texts, kDraftRows,
                                                      static_cast<int32_t>(target.vocab_size), DraftModel::Adapters(),
                                                      ticking_clock(setup.step_s));
            draft->time_steps();
            return draft;
          }};
}

}  // namespace choral::engine
