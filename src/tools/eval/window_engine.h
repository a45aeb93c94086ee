// A loaded model that gives the logits of every place of one window after another, by the steps, the scheduler and the adapters
// that requests are served with. How a window is divided over steps changes no bit. One thread makes and runs it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "choral/llm.h"
#include "engine/adapters/adapter_residency.h"
#include "engine/request_reader.h"
#include "engine/step_cycle.h"
#include "engine/uniproc_executor.h"

namespace choral::tools {

class WindowEngine {
 public:
  static constexpr int32_t kDefaultWindow = 512;

  // `adapters` answer, none: the base. `window_tokens` 0: kDefaultWindow, or the model's context where that is shorter.
  // `step_tokens` 0: options.max_num_batched_tokens, or fewer, so that their logits take no more than 64 MiB.
  static Result<std::unique_ptr<WindowEngine>> load(EngineOptions options, const std::vector<AdapterUse>& adapters,
                                                    int32_t window_tokens, int32_t step_tokens = 0);
  ~WindowEngine();

  const std::string& name() const { return files_.name; }
  int32_t window_tokens() const { return window_tokens_; }
  int32_t step_tokens() const { return step_tokens_; }
  const engine::ExecutorFacts& facts() const { return executor_->facts(); }
  int64_t vocab() const { return vocab_; }  // with the tokens that the adapters bring: a row's width
  // With the tokens that the adapters bring; null: the model has none.
  const text::Tokenizer* tokenizer() const;
  ThreadPool& pool() { return executor_->worker().context().kernel.pool; }

  // A window: its tokens but the last, for which there is nothing to predict. The one before is over.
  Status begin(std::span<const int32_t> tokens);
  // The logits that follow the window's next tokens, `first` being the place of the first of these; valid until the next call.
  struct Rows {
    int32_t first = 0;
    MatrixView<const float> logits;
  };
  Result<Rows> next();

 private:
  WindowEngine() = default;
  Status load_adapters(const EngineOptions& options, const std::vector<AdapterUse>& adapters);
  Status arrive(engine::EngineRequest& request);
  void wait_for_adapters();
  int32_t choose_step(int32_t most) const;
  void end(engine::EngineRequest& request, sched::FinishReason reason);

  engine::ModelFiles files_;
  int32_t window_tokens_ = 0, step_tokens_ = 0;
  int64_t vocab_ = 0;
  std::unique_ptr<engine::UniprocExecutor> executor_;
  std::shared_ptr<engine::AdapterRegistry> registry_;
  std::unique_ptr<engine::RequestReader> reader_;
  std::vector<engine::VersionUse> adapters_;
  engine::RequestTokens tokens_;
  std::unique_ptr<engine::AdapterResidency> residency_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::optional<engine::StepCycle> cycle_;
  engine::EngineRequest* request_ = nullptr;  // the scheduler's, of the present window

  std::mutex mutex_;  // guards the one below
  std::condition_variable changed_;
  bool adapters_changed_ = false;
};

}  // namespace choral::tools
