// What the engine's thread does between a step's tokens and the next step, which a device waits for: by how answers are read, and
// by whether the device gives the host time while it computes. CHORAL_BENCH_TOKENIZER names a tokenizer.json.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/engine_core.h"
#include "text/tokenizer.h"

namespace choral::engine {
namespace {

constexpr int kSteps = 400;
constexpr std::chrono::milliseconds kDeviceTime{2};  // of a step: the host's caches are others' meanwhile

std::shared_ptr<const text::Tokenizer> tokenizer() {
  const char* path = std::getenv("CHORAL_BENCH_TOKENIZER");
  std::ifstream in(path == nullptr ? "" : path, std::ios::binary);
  std::stringstream json;
  json << in.rdbuf();
  auto loaded = text::Tokenizer::from_json(json.str());
  return loaded.ok() ? *loaded : nullptr;
}

// Gives every row some token after a while, and notes how long it had nothing to do.
class IdleDevice : public Executor {
 public:
  IdleDevice(int batch, bool gives_time, int32_t vocab) : batch_(batch), gives_time_(gives_time), vocab_(vocab) {
    facts_.vocab_size = vocab;
    facts_.max_model_len = 2 * kSteps;
    facts_.kv_pool = {.blocks = batch * 2 * kSteps / 32, .block_tokens = 32};
  }
  const ExecutorFacts& facts() const override { return facts_; }
  Result<lora::Readiness> add_adapter(lora::AdapterKey, lora::PackedVoice) override { return lora::Readiness::kReady; }
  void remove_adapter(lora::AdapterKey) override {}
  Status add_request(const NewRequest&) override { return {}; }
  std::vector<std::string> take_device_notes() override { return {}; }
  bool on_wait(std::function<void()> work) override {
    other_work_ = std::move(work);
    return gives_time_;
  }
  Status execute_model(const StepInput& input, StepOutput& out) override {
    if (!input.has_prefill && std::ssize(input.items) == batch_) idle_s_.push_back(now_s() - answered_s_);
    if (gives_time_) other_work_();
    std::this_thread::sleep_for(kDeviceTime);
    out.clear();
    for (const auto& item : input.items) {
      out.items.push_back({.token_count = item.logits_count});
      for (int i = 0; i < item.logits_count; ++i) out.tokens.emplace_back().token = next_token();
    }
    answered_s_ = now_s();
    return {};
  }
  std::vector<double>& idle_s() { return idle_s_; }

 private:
  int32_t next_token() {
    seed_ = seed_ * 1664525U + 1013904223U;
    return static_cast<int32_t>((seed_ >> 8) % static_cast<uint32_t>(vocab_));
  }

  const int batch_;
  const bool gives_time_;
  const int32_t vocab_;
  ExecutorFacts facts_;
  std::function<void()> other_work_;
  uint32_t seed_ = 1;
  double answered_s_ = 0;
  std::vector<double> idle_s_;
};

AdmittedRequest answer_of(int index, const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  auto request = std::make_unique<EngineRequest>(SamplingParams{}, OutputText(tokenizer, {}, kSteps));
  request->id = static_cast<sched::RequestId>(index) + 1;
  request->max_tokens = kSteps;
  request->tokens.assign(8, index + 1);
  request->response = std::make_shared<Response>("bench", request->tokens, ResponseForm{.expected_tokens = kSteps});
  AdmittedRequest admitted{{}, request->response};
  admitted.completions.push_back(std::move(request));
  return admitted;
}

enum Readers : int64_t { kNobody, kThreads };

// Arguments: the batch, who reads (a thread for each answer waits for its pieces), whether the device gives time.
void between_steps(benchmark::State& state) {
  const auto batch = static_cast<int>(state.range(0));
  const auto text = tokenizer();
  if (text == nullptr) return state.SkipWithError("set CHORAL_BENCH_TOKENIZER to a tokenizer.json");
  for (auto _ : state) {
    auto registry = AdapterRegistry::make(cpu_level(), {}, {});
    auto device = std::make_unique<IdleDevice>(batch, state.range(2) != 0, static_cast<int32_t>(text->vocab_size()));
    auto& idle_s = device->idle_s();
    EngineCore core(std::move(device), {.max_num_seqs = batch, .max_model_len = 2 * kSteps}, *registry, {});
    std::vector<AdmittedRequest> admitted;
    std::vector<std::thread> readers;
    std::vector<std::shared_ptr<Response>> responses;
    for (int i = 0; i < batch; ++i) {
      admitted.push_back(answer_of(i, text));
      responses.push_back(admitted.back().response);
      if (state.range(1) != kThreads) continue;
      readers.emplace_back([response = responses.back()] {
        for (StreamEvent event; response->next(event);) {
        }
      });
    }
    if (!core.add_requests(admitted).ok() || !core.start().ok()) return state.SkipWithError("the engine does not start");
    for (auto& reader : readers) reader.join();
    for (const auto& response : responses) response->wait();
    core.stop();
    std::sort(idle_s.begin(), idle_s.end());
    state.counters["idle_us_p10"] = idle_s[idle_s.size() / 10] * 1e6;
    state.counters["idle_us_p50"] = idle_s[idle_s.size() / 2] * 1e6;
  }
}
BENCHMARK(between_steps)
    ->ArgNames({"batch", "readers", "gives_time"})
    ->ArgsProduct({{1, 64}, {kNobody, kThreads}, {0, 1}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace choral::engine
