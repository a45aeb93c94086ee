// Whatever passes between the engine's loop and its workers is values: the same engine, with every step turned to bytes and back
// on both ways, gives the same answers to the bit.
#include "engine/adapters/adapter_files_test.h"
#include "engine/bytes_executor_test.h"
#include "engine/step_cycle.h"

namespace choral::engine {
namespace {

// One of each thing that a request can ask of the worker.
std::vector<Request> requests_of_every_kind() {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    auto request = greedy_request(random_prompt(20 + static_cast<int>(i) * 3, i), 20);
    request.sampling.logprobs = static_cast<int>(i % 4);
    request.sampling.seed = 77 + i;
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    requests.push_back(std::move(request));
  }
  requests[1].sampling.prompt_logprobs = 2;
  requests[2].sampling.n = 2;
  requests[2].sampling.prompt_logprobs = 0;
  requests[3].sampling.top_k = 5;
  requests[4].sampling.top_p = 0.5F;
  requests[5].sampling.min_p = 0.1F;
  requests[6].sampling.repetition_penalty = 1.5F;
  requests[6].sampling.frequency_penalty = 0.5F;
  requests[6].sampling.presence_penalty = 0.5F;
  requests[6].sampling.penalty_last_n = 3;
  requests[6].sampling.allowed_token_ids = {5, 6, 7, 8, 9};  // which so come again
  requests[7].sampling.logit_bias = {{17, 50.0F}};
  requests[7].sampling.bad_words = {"the", "a"};
  requests[8].sampling.allowed_token_ids = {5, 6, 7, 8, 9};
  requests[9].sampling.stop_token_ids = {40, 41, 42};
  requests[9].sampling.min_tokens = 10;
  requests[9].sampling.allowed_token_ids = {40, 41, 42, 43};
  requests[10].sampling.logprobs.reset();
  requests[10].sampling.temperature = 0.9F;
  requests[10].sampling.xtc_probability = 0.5F;
  requests[10].sampling.xtc_threshold = 1e-4F;
  requests[11].sampling.dry_multiplier = 40.0F;
  requests[11].sampling.dry_allowed_length = 0;
  return requests;
}

void expect_same_answers(const std::vector<RequestOutput>& want, const std::vector<RequestOutput>& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_bits(want[i], got[i]);
    EXPECT_EQ(to_bytes(want[i].prompt_logprobs), to_bytes(got[i].prompt_logprobs));
    ASSERT_EQ(want[i].completions.size(), got[i].completions.size());
    for (size_t c = 0; c < want[i].completions.size(); ++c) {
      EXPECT_EQ(want[i].completions[c].token_ids, got[i].completions[c].token_ids);
      EXPECT_EQ(want[i].completions[c].text, got[i].completions[c].text);
      EXPECT_EQ(want[i].completions[c].finish_reason, got[i].completions[c].finish_reason);
      EXPECT_EQ(want[i].completions[c].stop_reason, got[i].completions[c].stop_reason);
      EXPECT_EQ(to_bytes(want[i].completions[c].logprobs), to_bytes(got[i].completions[c].logprobs));
    }
  }
}

TEST(StepBorder, AnswersAreTheSameOverBytes) {
  const auto options = tiny_options();
  const auto want = load_or_die(options)->generate(requests_of_every_kind());
  EXPECT_FALSE(want[1].prompt_logprobs.empty());
  AssembledEngine engine(options, over_bytes);
  expect_same_answers(want, engine.generate(requests_of_every_kind()));
  expect_same_answers(want, engine.generate(requests_of_every_kind()));  // from the prefix cache
}

TEST(StepBorder, AndThroughChunksAndPreemption) {
  auto options = tiny_options();
  options.max_model_len = 96;
  const auto roomy = load_or_die(options);
  const auto want = roomy->generate(requests_of_every_kind());
  for (const bool prefix_caching : {false, true}) {
    options.enable_prefix_caching = prefix_caching;
    options.max_num_batched_tokens = 40;
    options.max_num_seqs = 8;
    options.kv_cache_bytes = roomy->info().kv_cache_bytes / (roomy->info().kv_cache_tokens / 32) * 10;
    AssembledEngine engine(options, over_bytes);
    expect_same_answers(want, engine.generate(requests_of_every_kind()));
    EXPECT_GT(engine.stats().preemptions, 0);
  }
}

TEST(StepBorder, AndWithAdaptersAndMixes) {
  const AdapterFiles files;
  for (const char* name : {"a", "b", "c"}) files.write(name, 4 + (name[0] - 'a') * 4, static_cast<uint64_t>(name[0]));
  files.write_own_tokens("own", 7);
  auto options = tiny_options();
  options.adapter_root = files.root().string();
  auto requests = requests_of_every_kind();
  const std::vector<AdapterUse> uses[] = {{}, {{"a"}}, {{"b", 0.5F}}, {{"a"}, {"c", 2.0F}}, {{"own"}}};
  for (size_t i = 0; i < requests.size(); ++i) requests[i].adapters = uses[i % std::size(uses)];
  const auto want = load_or_die(options)->generate(requests);
  AssembledEngine engine(options, over_bytes);
  expect_same_answers(want, engine.generate(requests));
}

// All logits of each prompt but the second, computed together by steps of a few tokens; ids from `first_id` on.
std::vector<std::vector<float>> row_logits(Executor& executor, const std::vector<std::vector<int32_t>>& prompts,
                                           uint64_t first_id) {
  sched::SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 50;
  config.max_model_len = 128;
  sched::Scheduler scheduler(config, executor.facts().kv_pool);
  StepCycle cycle(executor, config.max_num_seqs, config.max_num_batched_tokens);
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto request = std::make_unique<EngineRequest>(SamplingParams(), OutputText(nullptr, {}, 0));
    request->id = first_id + i;
    request->tokens = prompts[i];
    request->max_tokens = 1;
    request->wants_row_logits = i != 1;
    CHORAL_CHECK(scheduler.add(std::move(request)).ok(), "the queue has room");
  }
  std::vector<std::vector<float>> all(prompts.size());
  std::vector<int32_t> next(prompts.size());
  while (scheduler.has_work()) {
    CHORAL_CHECK(cycle.plan(scheduler, [](EngineRequest&, const Status& why) { CHORAL_CHECK(false, why.message()); }), "a step");
    CHORAL_CHECK(cycle.compute().ok(), "a step is computed");
    cycle.take_output(scheduler, [&](const StepGain& gain) {
      const auto& rows = gain.row_logits;
      const size_t i = gain.request.id - first_id;
      EXPECT_EQ(rows.rows > 0, i != 1);
      if (rows.rows > 0) {
        EXPECT_EQ(gain.row_logits_begin, next[i]);
      }
      next[i] += static_cast<int32_t>(rows.rows);
      all[i].insert(all[i].end(), rows.data, rows.row(rows.rows));
      if (!gain.tokens.empty()) scheduler.finish(gain.request, sched::FinishReason::kLength);
    });
    cycle.take_finished(scheduler, [](EngineRequest&) {});
  }
  return all;
}

TEST(StepBorder, RowsOfLogitsPassItToo) {
  auto options = tiny_options();
  const auto files = open_model_files(options);
  ASSERT_TRUE(files.ok()) << files.status().message();
  auto near = UniprocExecutor::load(options, *files);
  ASSERT_TRUE(near.ok()) << near.status().message();
  std::vector<std::vector<int32_t>> prompts;
  for (const int length : {20, 9, 70, 12}) prompts.push_back(random_prompt(length, static_cast<uint32_t>(length)));
  const auto together = row_logits(**near, prompts, 1);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (i == 1) continue;
    EXPECT_EQ(std::ssize(together[i]), std::ssize(prompts[i]) * (*near)->facts().vocab_size);
    EXPECT_EQ(row_logits(**near, {prompts[i]}, 100 + i).front(), together[i]) << i;
  }
  const auto far = over_bytes(options, *files);
  EXPECT_EQ(row_logits(*far, prompts, 1), together);
}

// Loses the answer of one step, and keeps in mind what it is told to forget.
class FailingExecutor : public UniprocExecutor {
 public:
  struct Log {
    std::vector<uint64_t> failed, dropped;
  };
  FailingExecutor(UniprocExecutor&& executor, Log& log) : UniprocExecutor(std::move(executor)), log_(log) {}
  Status execute_model(const StepInput& input, StepOutput& out) override {
    log_.dropped.insert(log_.dropped.end(), input.dropped.begin(), input.dropped.end());
    const Status status = UniprocExecutor::execute_model(input, out);
    if (++steps_ != 3) return status;
    for (const auto& item : input.items) log_.failed.push_back(item.id);
    return unavailable("the device is gone for a moment");
  }

 private:
  Log& log_;
  int steps_ = 0;
};

TEST(StepBorder, WhatAFailedStepComputedIsForgotten) {
  const auto want = load_or_die(tiny_options())->generate(requests_of_every_kind());
  FailingExecutor::Log log;
  AssembledEngine engine(tiny_options(), [&](EngineOptions& options, const ModelFiles& files) {
    auto executor = UniprocExecutor::load(options, files);
    CHORAL_CHECK(executor.ok(), executor.status().message());
    return std::make_unique<FailingExecutor>(std::move(**executor), log);
  });
  for (const auto& output : engine.generate(requests_of_every_kind())) {
    EXPECT_EQ(output.status.code(), Code::kUnavailable) << output.status.to_string();
  }
  ASSERT_FALSE(log.failed.empty());
  expect_same_answers(want, engine.generate(requests_of_every_kind()));
  for (const auto id : log.failed) EXPECT_EQ(std::count(log.dropped.begin(), log.dropped.end(), id), 1) << id;
}

template <class Record>
void expect_to_end_where_it_ends(const Record& record) {
  const auto bytes = to_bytes(record);
  Record read;
  ASSERT_TRUE(from_bytes(bytes, read));
  EXPECT_EQ(to_bytes(read), bytes);
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(from_bytes(bytes.substr(0, size), read)) << size;
  EXPECT_FALSE(from_bytes(bytes + '\0', read));
}

TEST(StepBytes, EndWhereTheyEnd) {
  StepInput input;
  input.dropped = {3, 4};
  input.items.resize(2);
  expect_to_end_where_it_ends(input);
  NewRequest request;
  request.prompt = {1, 2, 3};
  request.rule.bad_words = {{1}, {2, 3}};
  expect_to_end_where_it_ends(request);
}

}  // namespace
}  // namespace choral::engine
