// The engine put together by hand, so that a test can stand between its loop and its workers. Tests only.
#pragma once

#include <functional>

#include "engine/adapters/registry_test.h"
#include "engine/engine_core.h"
#include "engine/request_reader.h"
#include "engine/tiny_model_test.h"
#include "engine/uniproc_executor.h"

namespace choral::engine {

class AssembledEngine {
 public:
  using MakeExecutor = std::function<std::unique_ptr<Executor>(EngineOptions& options, const ModelFiles& files)>;

  using MakeDraft = std::function<std::unique_ptr<DraftModel>(const ExecutorFacts& target)>;

  AssembledEngine(EngineOptions options, const MakeExecutor& make_executor, Clock clock = now_s,
                  MakeGrammarCompiler make_grammar_compiler = RequestReader::the_grammar_compiler,
                  const MaskLimits& mask_limits = {}, const MakeDraft& make_draft = {}) {
    auto files = open_model_files(options);
    CHORAL_CHECK(files.ok(), files.status().message());
    auto executor = make_executor(options, *files);
    const ExecutorFacts& facts = executor->facts();
    auto reader = RequestReader::make(*files,
                                      {.vocab = static_cast<int32_t>(facts.vocab_size),
                                       .max_model_len = static_cast<int32_t>(facts.max_model_len),
                                       .seed = options.seed,
                                       .timeout_s = options.request_timeout_s,
                                       .queue_timeout_s = options.queue_timeout_s,
                                       .guesses = options.speculative != "off"},
                                      std::move(make_grammar_compiler));
    CHORAL_CHECK(reader.ok(), reader.status().message());
    reader_ = std::move(*reader);
    sched::SchedulerConfig config;
    config.max_num_seqs = options.max_num_seqs;
    config.max_num_batched_tokens = options.max_num_batched_tokens;
    config.max_model_len = static_cast<int32_t>(facts.max_model_len);
    config.enable_prefix_caching = options.enable_prefix_caching;
    registry_ = make_registry(facts.lora_targets, {.load = {.config = facts.lora_config, .head_dim = facts.head_dim},
                                                   .tokenizer = files->tokenizer,
                                                   .root = options.adapter_root});
    config.max_waiting = options.max_waiting;
    const EngineLimits limits{
        .adapter_budget_bytes = options.adapter_memory_bytes > 0 ? options.adapter_memory_bytes : int64_t{1} << 30,
        .max_waiting_tokens = options.max_waiting_tokens,
        .most_guessed = options.speculative == "off" ? 0 : options.most_guessed,
        .traffic_bytes = options.speculative == "traffic" ? options.traffic_memory_bytes : 0};
    auto draft = make_draft ? make_draft(facts) : nullptr;
    core_ = std::make_unique<EngineCore>(std::move(executor), config, registry_, limits, std::move(clock), mask_limits,
                                         std::move(draft));
    CHORAL_CHECK(core_->start().ok(), "the engine's thread starts");
  }

  static std::unique_ptr<Executor> one_worker(EngineOptions& options, const ModelFiles& files) {
    auto executor = UniprocExecutor::load(options, files);
    CHORAL_CHECK(executor.ok(), executor.status().message());
    return std::move(*executor);
  }

  AdmittedRequest read(Request request) {
    auto adapters = registry_->resolve(request.adapters);
    CHORAL_CHECK(adapters.ok(), adapters.status().message());
    auto read = reader_->read(std::move(request), *tokens_of(*adapters));
    CHORAL_CHECK(read.ok(), read.status().message());
    for (const auto& completion : read->completions) completion->adapters = *adapters;
    return std::move(*read);
  }
  std::vector<AdmittedRequest> read_each(Request request, std::vector<Prompt> prompts) {
    auto read = reader_->read_each(std::move(request), std::move(prompts));
    CHORAL_CHECK(read.ok(), read.status().message());
    return std::move(*read);
  }
  std::vector<RequestOutput> generate(std::vector<Request> requests) {
    std::vector<AdmittedRequest> admitted;
    std::vector<std::shared_ptr<Response>> responses;
    for (auto& request : requests) {
      admitted.push_back(read(std::move(request)));
      responses.push_back(admitted.back().response);
    }
    const auto taken = core_->add_requests(admitted);
    CHORAL_CHECK(taken.ok() && *taken == responses.size(), "the queue has room");
    std::vector<RequestOutput> outputs;
    for (const auto& response : responses) outputs.push_back(response->wait());
    return outputs;
  }
  EngineStats stats() const { return core_->stats(); }
  std::vector<AdapterInfo> adapters() const { return registry_->list(); }
  EngineCore& core() { return *core_; }

 private:
  std::unique_ptr<RequestReader> reader_;
  std::unique_ptr<EngineCore> core_;
  std::shared_ptr<AdapterRegistry> registry_;  // the core keeps it too, and the executor whose targets its loader needs
};

}  // namespace choral::engine
