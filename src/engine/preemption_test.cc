// A request that gives way and comes back answers what it answers alone, to the bit and to the count: nothing that its first
// prefill said is said again, neither to its caller nor to the engine's counters.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <tuple>

#include "engine/tiny_model_test.h"

namespace choral::engine {
namespace {

constexpr int kBlocks = 10;  // of 32 tokens
constexpr int kLongest = 96;

// Each case generates twice. RC_PARAMS of the caller wins.
[[maybe_unused]] const int kParams = setenv("RC_PARAMS", "max_success=60", 0);

class PreemptionTest : public ::testing::Test {
 protected:
  // Room for each request alone, not for three of the longest at once.
  static EngineOptions tight(bool prefix_caching) {
    auto options = tiny_options();
    options.max_model_len = kLongest;
    options.enable_prefix_caching = prefix_caching;
    options.max_num_batched_tokens = 40;  // prompts come in chunks, so some give way in the middle of theirs
    options.max_num_seqs = 8;
    const auto probe = load_or_die(options);
    options.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * kBlocks;
    return options;
  }
  static EngineOptions roomy() {
    auto options = tiny_options();
    options.max_model_len = kLongest;
    options.enable_prefix_caching = false;
    return options;
  }
};

using Bits = std::vector<std::tuple<int32_t, uint32_t>>;

void add_bits(const TokenLogprob& entry, Bits& bits) {
  uint32_t logprob = 0;
  std::memcpy(&logprob, &entry.logprob, sizeof logprob);
  bits.emplace_back(entry.token_id, logprob);
}

Bits bits_of(const std::vector<PositionLogprobs>& positions) {
  Bits bits;
  for (const auto& position : positions) {
    add_bits(position.chosen, bits);
    for (const auto& entry : position.top) add_bits(entry, bits);
  }
  return bits;
}

// What a stream hands out, piece by piece, and the whole answer after it.
struct Heard {
  std::vector<Completion> pieces;
  RequestOutput output;
};

Heard listen(ResponseStream& stream, int n) {
  Heard heard{std::vector<Completion>(n), {}};
  StreamEvent event;
  while (stream.next(event)) {
    auto& piece = heard.pieces.at(event.index);
    piece.text += event.text;
    piece.token_ids.insert(piece.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
    piece.logprobs.insert(piece.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  }
  heard.output = stream.wait();
  return heard;
}

std::vector<Heard> hear_together(LLM& llm, const std::vector<Request>& requests) {
  std::vector<std::unique_ptr<ResponseStream>> streams;
  for (const auto& request : requests) {
    auto stream = llm.submit(request);
    RC_ASSERT(stream.ok());
    streams.push_back(std::move(*stream));
  }
  std::vector<Heard> heard;
  for (size_t i = 0; i < streams.size(); ++i) heard.push_back(listen(*streams[i], requests[i].sampling.n));
  return heard;
}

void expect_alone(const RequestOutput& alone, const Heard& heard) {
  const RequestOutput& output = heard.output;
  RC_ASSERT(alone.status.ok());
  RC_ASSERT(output.status.ok());
  RC_ASSERT(output.prompt_logprobs.size() == alone.prompt_logprobs.size());
  RC_ASSERT(bits_of(output.prompt_logprobs) == bits_of(alone.prompt_logprobs));
  RC_ASSERT(output.completions.size() == alone.completions.size());
  for (size_t i = 0; i < alone.completions.size(); ++i) {
    const auto &x = alone.completions[i], &y = output.completions[i], &z = heard.pieces[i];
    RC_ASSERT(x.token_ids == y.token_ids);
    RC_ASSERT(x.text == y.text);
    RC_ASSERT(x.finish_reason == y.finish_reason);
    RC_ASSERT(x.cumulative_logprob == y.cumulative_logprob);
    RC_ASSERT(bits_of(x.logprobs) == bits_of(y.logprobs));
    RC_ASSERT(z.token_ids == y.token_ids);
    RC_ASSERT(z.text == y.text);
    RC_ASSERT(bits_of(z.logprobs) == bits_of(y.logprobs));
  }
}

Request random_request(uint32_t seed) {
  const int length = *rc::gen::inRange(20, 75);
  auto request = greedy_request(random_prompt(length, seed), *rc::gen::inRange(15, kLongest - length + 1));
  request.sampling.n = *rc::gen::element(1, 1, 2, 3);
  request.sampling.temperature = *rc::gen::element(0.0F, 0.9F);
  request.sampling.seed = seed;
  request.sampling.logprobs = *rc::gen::element<std::optional<int>>(std::nullopt, 0, 3);
  request.sampling.prompt_logprobs = *rc::gen::element<std::optional<int>>(std::nullopt, 0, 2);
  return request;
}

TEST_F(PreemptionTest, AnyRequestsAnswerAsAlone) {
  const auto alone = load_or_die(roomy());
  for (const bool prefix_caching : {false, true}) {
    SCOPED_TRACE(prefix_caching ? "with the prefix cache" : "without");
    const auto crowded = load_or_die(tight(prefix_caching));
    ASSERT_TRUE(alone && crowded);
    EXPECT_TRUE(rc::check([&] {
      std::vector<Request> requests;
      const auto count = *rc::gen::inRange<uint32_t>(4, 9);
      for (uint32_t i = 0; i < count; ++i) requests.push_back(random_request(1000 + i));
      const auto heard = hear_together(*crowded, requests);
      for (size_t i = 0; i < requests.size(); ++i) expect_alone(alone->generate({requests[i]}).front(), heard[i]);
    }));
    EXPECT_GT(crowded->stats().preemptions, 0);
  }
}

// Four that want 96 tokens of a cache of 320: the later ones begin several times.
std::vector<Request> four_that_do_not_fit() {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 4; ++i) {
    requests.push_back(greedy_request(random_prompt(60, 100 + i), 35));
    requests.back().sampling.prompt_logprobs = 2;
  }
  return requests;
}

TEST_F(PreemptionTest, EachPromptTokenHasOneEntry) {
  const auto llm = load_or_die(tight(false));
  const auto outputs = llm->generate(four_that_do_not_fit());
  EXPECT_GT(stats_at_rest(*llm).preemptions, 0);
  for (const auto& output : outputs) {
    ASSERT_TRUE(output.status.ok()) << output.status.to_string();
    ASSERT_EQ(output.prompt_logprobs.size(), 59u);
    for (size_t i = 0; i < 59; ++i) EXPECT_EQ(output.prompt_logprobs[i].chosen.token_id, output.prompt_token_ids[i + 1]);
  }
}

TEST_F(PreemptionTest, CountersCountATokenOnce) {
  for (const bool prefix_caching : {false, true}) {
    const auto llm = load_or_die(tight(prefix_caching));
    auto requests = four_that_do_not_fit();
    for (auto& request : requests) request.sampling.prompt_logprobs.reset();
    int preemptions = 0;
    for (const auto& output : llm->generate(requests)) {
      // Whoever comes back finds its own blocks in the cache: no hit that its caller should hear of.
      EXPECT_EQ(output.cached_tokens, 0);
      preemptions += output.metrics.preemptions;
    }
    const auto stats = stats_at_rest(*llm);
    EXPECT_EQ(preemptions, stats.preemptions);
    const auto& steps = stats.step_tokens;
    EXPECT_EQ(steps.sum, 4 * (60 + 35)) << "of prompts and of answers, each once";
    EXPECT_LE(std::accumulate(steps.counts.begin(), steps.counts.end(), int64_t{0}), stats.steps);
    EXPECT_GT(steps.counts[1], 0) << "steps of two to eight rows";
    EXPECT_GT(stats.preemptions, 0);
    EXPECT_EQ(stats.prompt_tokens, 4 * 60);
    EXPECT_EQ(stats.generated_tokens, 4 * 35);
    EXPECT_EQ(stats.prefix_hit_tokens, 0);
  }
}

}  // namespace
}  // namespace choral::engine
