// An engine with a draft model: how many steps it saves, when it is asked, and that nothing it does is seen in an answer.
#include <gmock/gmock.h>

#include "engine/adapters/adapter_files_test.h"
#include "engine/guessing_engine_test.h"
#include "engine/speculation/draft_engine_test.h"
#include "engine/speculation/draft_loader.h"

namespace choral::engine {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

EngineOptions options_of(int seqs) {
  auto options = tiny_options();
  options.max_num_seqs = seqs;
  options.max_model_len = 400;
  options.enable_prefix_caching = false;
  return options;
}

// Texts of random weights repeat nothing, so that nothing is found by looking it up.
std::vector<Request> requests_of(int count, int max_tokens) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(greedy_request(random_prompt(20 + 7 * i, static_cast<uint32_t>(i)), max_tokens));
  }
  return requests;
}

void expect_same_answers(const std::vector<RequestOutput>& wanted, const std::vector<RequestOutput>& got) {
  ASSERT_EQ(wanted.size(), got.size());
  for (size_t i = 0; i < wanted.size(); ++i) expect_same_bits(wanted[i], got[i]);
}

TEST(DraftSpeculation, AModelThatAnswersAlikeIsRightAndSavesSteps) {
  const auto plain = load_or_die(options_of(4));
  auto drafting = drafting_engine(options_of(4));
  expect_same_answers(plain->generate(requests_of(4, 120)), drafting.generate(requests_of(4, 120)));
  const auto without = stats_at_rest(*plain), with = stats_at_rest(drafting);
  const auto& guessed = with.speculation;
  EXPECT_GT(guessed.draft_guessed, 200);
  EXPECT_GE(guessed.draft_right, guessed.draft_guessed - 12 * 4) << "but for those behind the end of an answer";
  EXPECT_LT(with.steps, without.steps / 2);
  EXPECT_FALSE(guessed.draft_failed);
}

TEST(DraftSpeculation, AModelThatIsNeverRightIsHardlyAsked) {
  const auto plain = load_or_die(options_of(4));
  auto drafting = drafting_engine(options_of(4), {.model = "tiny-qwen2", .step_s = 3e-4});
  expect_same_answers(plain->generate(requests_of(4, 300)), drafting.generate(requests_of(4, 300)));
  const auto& guessed = stats_at_rest(drafting).speculation;
  EXPECT_GT(guessed.draft_guessed, 0) << "it was tried";
  EXPECT_LE(guessed.draft_right, guessed.draft_guessed / 4);
  EXPECT_LT(guessed.draft_seconds, 0.1 * 300e-3) << "and took a small part of the time";
}

// Its step takes as long as one of the model's, or longer, so that it gains nothing although it is always right.
TEST(DraftSpeculation, WhereItCostsAsMuchAsItGainsItIsHardlyAsked) {
  for (const double step_s : {1.2e-3, 5e-3}) {
    auto drafting = drafting_engine(options_of(2), {.step_s = step_s});
    for (const auto& output : drafting.generate(requests_of(2, 300))) EXPECT_TRUE(output.status.ok());
    const auto stats = stats_at_rest(drafting);
    EXPECT_LT(stats.speculation.draft_guessed, 40) << step_s;
    EXPECT_LT(stats.speculation.draft_seconds, 0.15 * static_cast<double>(stats.steps) * 1e-3) << step_s;
  }
}

// A long prompt is read in pieces beside the steps, once it is known what a row costs.
TEST(DraftSpeculation, NoStepWaitsLongForWhatItReads) {
  struct Watching : FragileExecutor {
    Watching(FragileExecutor&& executor, std::atomic<double>& now_s, std::vector<int>& rows)
        : FragileExecutor(std::move(executor)), now_s_(now_s), rows_(rows) {}
    Status execute_model(const StepInput& input, StepOutput& out) override {
      rows_.push_back(input.total_tokens);
      now_s_ = now_s_ + 2e-5 * input.total_tokens;
      return FragileExecutor::execute_model(input, out);
    }
    std::atomic<double>& now_s_;
    std::vector<int>& rows_;
  };
  std::atomic<double> now_s{0};
  std::vector<int> rows;
  auto options = options_of(2);
  options.speculative = "ngram";
  AssembledEngine engine(
      options, AssembledEngine::one_worker, ticking_clock(1e-3), RequestReader::the_grammar_compiler, {},
      [&](const ExecutorFacts& target) {
        auto executor = std::make_unique<Watching>(std::move(*draft_executor(draft_options("tiny-llama3"))), now_s, rows);
        auto draft = std::make_unique<DraftModel>(std::move(executor), 2, kDraftRows, static_cast<int32_t>(target.vocab_size),
                                                  DraftModel::Adapters(), [&] { return now_s.load(); });
        draft->time_steps();
        return draft;
      });
  for (const auto& output : engine.generate({greedy_request(random_prompt(250, 1), 140)})) EXPECT_TRUE(output.status.ok());
  EXPECT_GT(stats_at_rest(engine).speculation.draft_guessed, 0);
  engine.core().stop();
  ASSERT_GT(rows.size(), 12U);
  EXPECT_LE(std::count_if(rows.begin(), rows.end(), [](int of_step) { return of_step * 2e-5 > 0.4e-3; }), 1);
}

// Rows cost so much that nothing is gained, however right the guesses are. The first steps took long for another reason: that is
// not held against steps without guesses for ever.
TEST(DraftSpeculation, WhatAStepCostOnceIsLookedAtAgain) {
  struct Slow : FragileExecutor {
    Slow(FragileExecutor&& executor, std::atomic<double>& now_s, bool is_draft)
        : FragileExecutor(std::move(executor)), now_s_(now_s), is_draft_(is_draft) {}
    Status execute_model(const StepInput& input, StepOutput& out) override {
      const double of_rows_s = input.total_tokens > 2 ? 2e-3 * input.total_tokens : 2e-3;
      now_s_ = now_s_ + (is_draft_ ? 1e-4 : ++steps_ <= 5 ? 60e-3 : of_rows_s);
      return FragileExecutor::execute_model(input, out);
    }
    std::atomic<double>& now_s_;
    const bool is_draft_;
    int steps_ = 0;
  };
  std::atomic<double> now_s{0};
  auto options = options_of(2);
  options.speculative = "ngram";
  options.most_guessed = 3;
  const auto own = [&](const EngineOptions& of, bool is_draft) {
    return std::make_unique<Slow>(std::move(*draft_executor(of)), now_s, is_draft);
  };
  AssembledEngine engine(
      options, [&](EngineOptions& of, const ModelFiles&) { return own(of, false); }, [&] { return now_s.load(); },
      RequestReader::the_grammar_compiler, {},
      [&](const ExecutorFacts& target) {
        auto draft = std::make_unique<DraftModel>(own(draft_options("tiny-llama3"), true), 2, kDraftRows,
                                                  static_cast<int32_t>(target.vocab_size), DraftModel::Adapters(),
                                                  [&] { return now_s.load(); });
        draft->time_steps();
        return draft;
      });
  for (const auto& output : engine.generate(requests_of(2, 300))) EXPECT_TRUE(output.status.ok());
  const auto& guessed = stats_at_rest(engine).speculation;
  EXPECT_GT(guessed.draft_guessed, 0) << "as long as that was all it knew";
  EXPECT_LT(guessed.draft_guessed, 250) << "of 600 tokens";
}

// What it was wrong about for long does not count for ever: of the time saved, new answers are tried.
TEST(DraftSpeculation, WhereItBecameRightItIsAskedAgain) {
  auto drafting = drafting_engine(options_of(2), {.step_s = 4e-4});
  auto requests = requests_of(2, 300);
  for (auto& request : requests) request.sampling.allowed_token_ids = {5, 6, 7};  // of which it knows nothing
  for (auto& request : requests) request.sampling.temperature = 5;
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(drafting.generate(requests).front().status.ok());
  const auto before = stats_at_rest(drafting).speculation;
  EXPECT_LT(before.draft_right, 20);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(drafting.generate(requests_of(2, 300)).front().status.ok());
  EXPECT_GT(stats_at_rest(drafting).speculation.draft_right - before.draft_right, 150);
}

TEST(DraftSpeculation, AnErrorOfItsDeviceIsSeenInNoAnswer) {
  const auto plain = load_or_die(options_of(4));
  const auto wanted = plain->generate(requests_of(4, 80));
  for (const int fails_at : {1, 2, 9, 30}) {
    auto drafting = drafting_engine(options_of(4), {.fails_at = fails_at});
    expect_same_answers(wanted, drafting.generate(requests_of(4, 80)));
    const auto stats = stats_at_rest(drafting);
    EXPECT_TRUE(stats.speculation.draft_failed);
    EXPECT_EQ(stats.speculation.draft_steps, fails_at);
    EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
  }
}

TEST(DraftSpeculation, ManyAnswersComeAndGo) {
  auto options = options_of(4);
  const auto plain = load_or_die(options);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 40; ++i)
    requests.push_back(greedy_request(random_prompt(1 + static_cast<int>(i * 5 % 70), i), 2 + static_cast<int>(i * 7 % 40)));
  auto drafting = drafting_engine(options, {.kv_blocks = 24});
  expect_same_answers(plain->generate(requests), drafting.generate(requests));
  EXPECT_GT(stats_at_rest(drafting).speculation.draft_right, 100) << "blocks of those that ended serve others";
}

TEST(DraftSpeculation, CancelledInTheMiddleItsTextIsForgotten) {
  DraftModel* draft = nullptr;
  auto options = options_of(4);
  options.speculative = "ngram";
  AssembledEngine engine(options, AssembledEngine::one_worker, ticking_clock(1e-3), RequestReader::the_grammar_compiler, {},
                         [&](const ExecutorFacts& target) {
                           auto made = std::make_unique<DraftModel>(draft_executor(draft_options("tiny-llama3")), 4, kDraftRows,
                                                                    static_cast<int32_t>(target.vocab_size),
                                                                    DraftModel::Adapters(), ticking_clock(1e-5));
                           draft = made.get();
                           return made;
                         });
  auto admitted = engine.read(greedy_request(random_prompt(20, 1), 370));
  const auto response = admitted.response;
  std::list<sched::RequestId> ids{admitted.completions[0]->id};
  ASSERT_TRUE(engine.core().add_requests({&admitted, 1}).ok());
  while (engine.stats().speculation.draft_guessed < 20 && !response->finished()) std::this_thread::yield();
  engine.core().cancel(ids);
  EXPECT_THAT(response->wait().completions.at(0).finish_reason, AnyOf(FinishReason::kCancelled, FinishReason::kLength));
  ASSERT_TRUE(engine.core().check_health(std::chrono::minutes(5)).ok());
  engine.core().stop();
  EXPECT_EQ(draft->known_texts(), 0);
  EXPECT_EQ(draft->cache().free_blocks(), draft->cache().block_count());
}

// --- as it is loaded ---

EngineOptions loaded_options() {
  auto options = options_of(4);
  options.speculative = "draft=" + options.model;
  return options;
}

TEST(DraftLoad, AnEngineLoadsItAndSaysWhatItTakes) {
  std::string memory;
  auto options = loaded_options();
  options.draft_quantization = "w8a16";
  options.on_progress = [&](const LoadProgress& progress) {
    if (progress.phase == "memory") memory += std::string(progress.detail) + "\n";
  };
  const auto plain = load_or_die(options_of(4)), llm = load_or_die(options);
  ASSERT_NE(llm, nullptr);
  EXPECT_THAT(memory, HasSubstr("draft model "));
  EXPECT_EQ(std::count(memory.begin(), memory.end(), '\n'), 1) << memory;
  EXPECT_THAT(llm->info().notes, ::testing::Contains(HasSubstr("draft model: tiny-llama3, ")));
  EXPECT_THAT(llm->info().notes,
              ::testing::Contains(AllOf(HasSubstr("draft model: "), HasSubstr("weights: "), HasSubstr("int8"))));
  expect_same_answers(plain->generate(requests_of(4, 40)), llm->generate(requests_of(4, 40)));
}

TEST(DraftLoad, OtherTokensAreRefusedByName) {
  auto options = options_of(4);
  options.speculative = "ngram";
  options.draft_model = tiny_options("tiny-gemma3").model;
  const auto llm = LLM::load(options);
  ASSERT_FALSE(llm.ok());
  EXPECT_EQ(llm.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(llm.status().to_string(),
              AllOf(HasSubstr("--draft-model "), HasSubstr("token 0 is "), HasSubstr("of the same family")));
}

TEST(DraftLoad, ModelsThatKeepStatesAreNone) {
  auto options = options_of(4);
  options.speculative = "ngram";
  options.draft_model = tiny_options("tiny-granite-h").model;
  auto llm = LLM::load(options);
  EXPECT_EQ(llm.status().code(), Code::kUnsupported);
  EXPECT_THAT(llm.status().to_string(), HasSubstr("no way back from a wrong guess"));
  std::swap(options.model, options.draft_model);
  EXPECT_TRUE(LLM::load(options).ok()) << "they may have one";
}

TEST(DraftLoad, WhatIsNotThereIsSaid) {
  auto options = options_of(4);
  options.speculative = "ngram";
  options.draft_model = "/nowhere/at/all";
  EXPECT_THAT(LLM::load(options).status().to_string(), HasSubstr("--draft-model /nowhere/at/all"));
  options.draft_model = options.model;
  options.draft_adapters = {{"a", "/nowhere/either"}};
  EXPECT_THAT(LLM::load(options).status().to_string(), HasSubstr("--draft-lora a"));
}

// Of the base's draft model nothing is right for this adapter, which turns its answers; with the adapter everything.
TEST(DraftLoad, AnAdapterIsGuessedForByItsDraftAdapter) {
  const AdapterFiles files;
  const std::string path = files.write("a", 8, 3);
  const auto right_share = [&](bool has_draft_adapter) {
    auto options = options_of(4);
    options.adapter_root = files.root().string();
    const auto plain = load_or_die(options);
    options.speculative = "ngram";
    options.draft_model = options.model;
    if (has_draft_adapter) options.draft_adapters = {{"a", path}};
    auto files_of = open_model_files(options);
    CHORAL_CHECK(files_of.ok(), "it opens");
    auto loaded = load_draft(options, *files_of);
    CHORAL_CHECK(loaded.ok(), loaded.status().message());
    AssembledEngine engine(options, AssembledEngine::one_worker, ticking_clock(1e-3), RequestReader::the_grammar_compiler, {},
                           [&](const ExecutorFacts& target) {
                             return std::make_unique<DraftModel>(std::move(loaded->executor), loaded->max_texts, loaded->max_rows,
                                                                 static_cast<int32_t>(target.vocab_size),
                                                                 std::move(loaded->adapters), ticking_clock(1e-5));
                           });
    std::vector<Request> requests = requests_of(4, 60);
    for (auto& request : requests) request.adapters = {{"a"}};
    expect_same_answers(plain->generate(requests), engine.generate(requests));
    const auto& stats = stats_at_rest(engine).speculation;
    return static_cast<double>(stats.draft_right) / std::max(1.0, static_cast<double>(stats.draft_guessed));
  };
  EXPECT_GT(right_share(true), 0.85);
  EXPECT_LT(right_share(false), 0.5);
}

}  // namespace
}  // namespace choral::engine
