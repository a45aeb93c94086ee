// Searches as the engine runs them, many beside each other and beside other answers, against plain loops over one token at a
// time: the same lists to the last bit, whatever is shared, forked, given up and computed again.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/adapters/adapter_files_test.h"
#include "engine/beam_search/beam_oracle_test.h"
#include "engine/guessing_engine_test.h"
#include "support/tiny_models.h"

namespace choral::engine {
namespace {

constexpr int kLongest = 160;
constexpr int kWidest = 4, kLongestSearch = 96;  // beams, and tokens of each with the prompt's
const std::vector<int32_t> kInvocation{1001, 1002};

// Each case searches several times. RC_PARAMS of the caller wins.
[[maybe_unused]] const int kParams = setenv("RC_PARAMS", "max_success=12", 0);

class BeamAnswersTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam()) != "tiny-llama3") return;
    const auto plain = files_.write("plain", 4, 3), other = files_.write("other", 2, 4),
               activated = files_.write("activated", 8, 5);
    const auto file = std::filesystem::path(activated) / "adapter_config.json";
    auto config = nlohmann::json::parse(std::ifstream(file));
    config["alora_invocation_tokens"] = kInvocation;
    std::ofstream(file) << config;
    adapters_ = {{.name = "plain", .path = plain}, {.name = "other", .path = other}, {.name = "activated", .path = activated}};
  }
  EngineOptions options() const {
    auto options = tiny_options(GetParam());
    options.adapters = adapters_;
    options.max_model_len = kLongest;
    options.max_num_seqs = 12;
    return options;
  }
  EngineOptions plain_loops() const {
    auto alone = options();
    alone.enable_prefix_caching = false;
    alone.max_num_seqs = 64;
    return alone;
  }
  // Room for the widest and longest search by itself, its beams having nothing in common, and not for two; in small chunks.
  EngineOptions tight(bool prefix_caching) const {
    auto changed = options();
    changed.enable_prefix_caching = prefix_caching;
    changed.max_num_batched_tokens = 40;
    const auto probe = load_or_die(changed);
    const int groups = std::string_view(GetParam()) == "tiny-gemma3" ? 3 : 1;  // of layers: two see a window
    const int blocks = kWidest * groups * (kLongestSearch / probe->info().kv_block_tokens);
    changed.kv_cache_bytes = probe->info().kv_cache_bytes / probe->stats().kv_blocks_total * blocks;
    return changed;
  }
  Request drawn_search(uint32_t seed) const {
    const int length = *rc::gen::inRange(3, 50);
    auto request = beam_request(random_prompt(length, seed), *rc::gen::inRange(1, kWidest + 1), *rc::gen::inRange(2, 40));
    request.sampling.n = *rc::gen::inRange(1, request.sampling.beams.width + 1);
    request.sampling.beams.length_penalty = *rc::gen::element(0.0F, 0.5F, 1.0F, 2.0F, -1.0F);
    request.sampling.beams.early_stopping = *rc::gen::element(EarlyStopping::kNo, EarlyStopping::kYes, EarlyStopping::kNever);
    if (adapters_.empty()) return request;
    switch (*rc::gen::inRange(0, 4)) {
      case 0: request.adapters = {{"plain"}}; break;
      case 1: request.adapters = {{"activated"}}; break;
      case 2: request.adapters = {{"plain", 0.5F}, {"other", -0.25F}}; break;
      default: break;
    }
    if (*rc::gen::arbitrary<bool>())
      request.prompt_token_ids.insert(request.prompt_token_ids.begin() + length / 2, kInvocation.begin(), kInvocation.end());
    return request;
  }
  // Tokens that answers come by end the others.
  static std::set<int32_t> add_stops(LLM& llm, Request& request) {
    const auto free = oracle_answers(llm, request, {});
    std::set<int32_t> stops;
    for (const auto& answer : free) stops.insert(answer.tokens[answer.tokens.size() / 2]);
    request.sampling.stop_token_ids.assign(stops.begin(), stops.end());
    request.sampling.min_tokens = *rc::gen::inRange(0, request.sampling.max_tokens / 2 + 1);
    return stops;
  }
  void expect_as_plain_loops(LLM& llm, LLM& alone) const {
    std::vector<Request> requests;
    std::vector<std::vector<OracleAnswer>> wanted;
    for (uint32_t i = 0, count = *rc::gen::inRange<uint32_t>(2, 5); i < count; ++i) {
      auto request = drawn_search(100 + i);
      const auto stops = *rc::gen::arbitrary<bool>() ? add_stops(alone, request) : std::set<int32_t>();
      wanted.push_back(oracle_answers(alone, request, stops));
      requests.push_back(std::move(request));
    }
    auto other = greedy_request(random_prompt(30, 7), 60);
    requests.push_back(other);
    const auto outputs = llm.generate(requests);
    for (size_t i = 0; i < wanted.size(); ++i) expect_answers(wanted[i], outputs[i]);
    expect_same_bits(alone.generate({other}).front(), outputs.back());
    RC_ASSERT(!HasFailure());
    const auto stats = stats_at_rest(llm);
    RC_ASSERT(stats.kv_blocks_free == stats.kv_blocks_total);
  }

  // Some that grow take the blocks of a search that came later.
  static void expect_a_search_gives_way(LLM& llm, LLM& alone) {
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 3; ++i) requests.push_back(greedy_request(random_prompt(28, i), 120));
    const auto search = beam_request(random_prompt(50, 3), kWidest, 45);
    requests.push_back(search);
    const auto outputs = llm.generate(requests);
    for (size_t i = 0; i < 3; ++i) expect_same_bits(alone.generate({requests[i]}).front(), outputs[i]);
    expect_answers(oracle_answers(alone, search, {}), outputs.back());
    EXPECT_GT(outputs.back().metrics.preemptions, 0);
  }

  AdapterFiles files_;
  std::vector<AdapterSpec> adapters_;
};

TEST_P(BeamAnswersTest, AnySearchesAnswerAsPlainLoops) {
  const auto alone = load_or_die(plain_loops());
  const auto llm = load_or_die(options());
  EXPECT_TRUE(rc::check([&] { expect_as_plain_loops(*llm, *alone); }));
}

TEST_P(BeamAnswersTest, SearchesThatGiveWayAnswerAsPlainLoops) {
  const auto alone = load_or_die(plain_loops());
  for (const bool prefix_caching : {false, true}) {
    const auto llm = load_or_die(tight(prefix_caching));
    expect_a_search_gives_way(*llm, *alone);
    EXPECT_TRUE(rc::check([&] { expect_as_plain_loops(*llm, *alone); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BeamAnswersTest, ::testing::Values("tiny-llama3", "tiny-gemma3"),
                         [](const ::testing::TestParamInfo<const char*>& model) { return testing::family_of(model.param); });

// Beams are not guessed for; who is beside them is.
TEST(BeamsBesideGuesses, AnswerAsAlone) {
  const auto options = tiny_options();
  const auto alone = load_or_die(options);
  const auto search = beam_request(random_prompt(20, 3), 4, 40);
  const auto wanted = oracle_answers(*alone, search, {});
  auto repeats = greedy_request(random_prompt(30, 5), 120);
  repeats.sampling.allowed_token_ids = {100, 101, 102};
  const auto other = alone->generate({repeats}).front();
  auto guessing = guessing_engine(options);
  const auto guessed = [&] { return stats_at_rest(guessing).speculation.guessed; };
  expect_same_bits(other, guessing.generate({repeats}).front());
  const auto before = guessed();
  const auto outputs = guessing.generate({repeats, search, repeats});
  expect_answers(wanted, outputs[1]);
  expect_same_bits(other, outputs[0]);
  expect_same_bits(other, outputs[2]);
  EXPECT_GT(guessed(), before);
  const auto admitted = guessing.read(search);
  const EngineRequest& leader = *admitted.completions.front();
  EXPECT_EQ(leader.guesser.most(), 0);
  ASSERT_EQ(leader.followers.size(), 3u);
  for (const auto& beam : leader.followers) EXPECT_EQ(static_cast<const EngineRequest&>(*beam).guesser.most(), 0);
}

TEST(BeamAnswers, AreGivenAtOnceAtTheEndInOrder) {
  const auto llm = load_or_die(tiny_options());
  auto request = beam_request(random_prompt(9, 1), 4, 12);
  request.sampling.n = 3;
  const auto whole = llm->generate({request}).front();
  ASSERT_TRUE(whole.status.ok());
  ASSERT_EQ(whole.completions.size(), 3u);
  EXPECT_GE(*whole.completions[0].beam_score, *whole.completions[1].beam_score);
  EXPECT_FALSE(whole.completions[0].text.empty());
  auto stream = llm->submit(request);
  ASSERT_TRUE(stream.ok());
  std::vector<StreamEvent> events;
  for (StreamEvent event; (*stream)->next(event);) events.push_back(event);
  ASSERT_EQ(events.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].index, i);
    EXPECT_EQ(events[i].text, whole.completions[i].text);
    EXPECT_EQ(events[i].token_ids, whole.completions[i].token_ids);
    EXPECT_EQ(events[i].finish_reason, FinishReason::kLength);
  }
  EXPECT_EQ((*stream)->facts().made_tokens, 4 * 12) << "of all beams";
}

TEST(BeamAnswers, EndWithTheModelsOwnEndAndLeaveItsTextOut) {
  const auto llm = load_or_die(tiny_options());
  auto request = beam_request(random_prompt(9, 1), 4, 12);
  const auto free = llm->generate({request}).front();
  const int32_t stop = free.completions[0].token_ids[4];
  request.sampling.stop_token_ids = {stop};
  const auto hidden = llm->generate({request}).front();
  request.sampling.include_stop_str_in_output = true;
  const auto shown = llm->generate({request}).front();
  bool found = false;
  for (size_t i = 0; i < 4; ++i) {
    const Completion &a = hidden.completions.at(i), &b = shown.completions.at(i);
    ASSERT_EQ(a.token_ids, b.token_ids);
    if (a.finish_reason != FinishReason::kStop) continue;
    found = true;
    EXPECT_EQ(a.token_ids.back(), stop);
    EXPECT_EQ(b.text, llm->detokenize(b.token_ids));
    std::vector<int32_t> before(a.token_ids.begin(), a.token_ids.end() - 1);
    EXPECT_EQ(a.text, llm->detokenize(before));
  }
  EXPECT_TRUE(found);
}

TEST(BeamAnswers, CancelledOnesEndAndLeaveNothing) {
  const auto llm = load_or_die(tiny_options());
  auto stream = llm->submit(beam_request(random_prompt(9, 1), 8, 400));
  ASSERT_TRUE(stream.ok());
  while (llm->stats().generated_tokens == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  (*stream)->cancel();
  const auto output = (*stream)->wait();
  ASSERT_EQ(output.completions.size(), 8u);
  for (const auto& completion : output.completions) {
    EXPECT_EQ(completion.finish_reason, FinishReason::kCancelled);
    EXPECT_TRUE(completion.token_ids.empty());
  }
  const auto stats = stats_at_rest(*llm);
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
}

TEST(BeamAnswers, LateOnesEndWithTheirReason) {
  const auto llm = load_or_die(tiny_options());
  auto request = beam_request(random_prompt(9, 1), 8, 400);
  request.timeout_s = 0.02;
  const auto output = llm->generate({request}).front();
  EXPECT_EQ(output.status.code(), Code::kDeadlineExceeded) << output.status.to_string();
  const auto stats = stats_at_rest(*llm);
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
}

std::string refusal(LLM& llm, const Request& request) {
  const auto output = llm.generate({request}).front();
  EXPECT_FALSE(output.status.ok());
  return output.status.to_string();
}

TEST(BeamAnswers, WhatWouldChangeThemIsRefusedByName) {
  const auto llm = load_or_die(tiny_options());
  const auto with = [&](auto&& change) {
    auto request = beam_request(random_prompt(9, 1), 4, 8);
    change(request);
    return refusal(*llm, request);
  };
  const auto expect = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), text.npos) << text; };
  expect(with([](Request& r) { r.sampling.repetition_penalty = 1.1F; }), "repetition_penalty");
  expect(with([](Request& r) { r.sampling.presence_penalty = 1; }), "presence_penalty");
  expect(with([](Request& r) { r.sampling.frequency_penalty = 1; }), "frequency_penalty");
  expect(with([](Request& r) { r.sampling.dry_multiplier = 1; }), "dry_multiplier");
  expect(with([](Request& r) { r.sampling.logit_bias = {{1, 1.0F}}; }), "logit_bias");
  expect(with([](Request& r) { r.sampling.allowed_token_ids = {1}; }), "allowed_token_ids");
  expect(with([](Request& r) { r.sampling.bad_words = {"a"}; }), "bad_words");
  expect(with([](Request& r) { r.sampling.stop = {"a"}; }), "stop_token_ids");
  expect(with([](Request& r) { r.sampling.logprobs = 0; }), "logprobs");
  expect(with([](Request& r) { r.sampling.prompt_logprobs = 1; }), "prompt_logprobs");
  expect(with([](Request& r) { r.structured_output.kind = StructuredOutput::Kind::kJsonObject; }), "structured");
  expect(with([](Request& r) { r.thought_limit.max_tokens = 3; }), "thinking_budget");
  expect(with([](Request& r) { r.given = {{.token_ids = {1}}}; }), "continue_token_ids");
  expect(with([](Request& r) { r.sampling.stop_token_ids.assign(33, 5); }), "stop_token_ids");
  expect(with([](Request& r) { r.sampling.n = 5; }), "n is 5");
  expect(with([](Request& r) { r.sampling.beams.width = 65; }), "beam_width is 65");
  expect(with([](Request& r) { r.sampling.beams.width = -1; }), "beam_width");
  expect(with([](Request& r) { r.sampling.beams.length_penalty = 11; }), "length_penalty");
  expect(with([](Request& r) { r.sampling.beams.length_penalty = std::nanf(""); }), "length_penalty");
  expect(with([](Request& r) { r.sampling.beams.wanted = false; }), "use_beam_search");
  expect(with([](Request& r) { r.sampling.best_of = 2; }), "best_of");
}

TEST(BeamAnswers, WidthIsThatOfBestOfOrN) {
  const auto llm = load_or_die(tiny_options());
  auto request = beam_request(random_prompt(9, 1), 4, 8);
  const auto wanted = llm->generate({request}).front();
  request.sampling.beams.width = 0;
  const auto of_n = llm->generate({request}).front();
  request.sampling.n = 2;
  request.sampling.best_of = 4;
  const auto of_best = llm->generate({request}).front();
  ASSERT_EQ(of_n.completions.size(), 4u);
  ASSERT_EQ(of_best.completions.size(), 2u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(of_n.completions[i].token_ids, wanted.completions[i].token_ids);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(of_best.completions[i].token_ids, wanted.completions[i].token_ids);
}

TEST(BeamAnswers, WhatCanNeverRunIsRefusedAtOnce) {
  auto options = tiny_options();
  options.max_num_seqs = 4;
  options.max_model_len = 128;
  const auto llm = load_or_die(options);
  const auto wide = refusal(*llm, beam_request(random_prompt(9, 1), 5, 8));
  EXPECT_NE(wide.find("max_num_seqs"), wide.npos) << wide;
  options.kv_cache_bytes = llm->info().kv_cache_bytes / llm->stats().kv_blocks_total * 10;
  const auto small = load_or_die(options);
  // Each of four beams fills its own of four blocks but for the prompt's two: 2 + 4 · 2.
  EXPECT_TRUE(small->generate({beam_request(random_prompt(64, 1), 4, 64)}).front().status.ok());
  const auto large = refusal(*small, beam_request(random_prompt(63, 1), 4, 65));
  EXPECT_NE(large.find("4 beams"), large.npos) << large;
}

TEST(BeamAnswers, AModelWithStatesHasOneBeamAtMost) {
  const auto llm = load_or_die(tiny_options("tiny-granite-h"));
  const auto text = refusal(*llm, beam_request(random_prompt(9, 1), 2, 8));
  EXPECT_NE(text.find("state"), text.npos) << text;
  const auto one = beam_request(random_prompt(9, 1), 1, 8);
  expect_answers(oracle_answers(*llm, one, {}), llm->generate({one}).front());
}

}  // namespace
}  // namespace choral::engine
