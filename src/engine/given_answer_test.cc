// An answer that was cut off at any of its tokens goes on to the very end it would have had: drawn answers of all kinds, cut at
// each of their tokens. And what no answer could begin with is refused.
#include "engine/given_answer.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "engine/adapters/adapter_files_test.h"
#include "engine/bytes_executor_test.h"
#include "engine/language_grammar_test.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kAnswers = 200;

struct Answered {
  RequestOutput output;
  uint64_t seed = 0;
  std::vector<StreamEvent> given;
  std::vector<std::map<size_t, std::string>> texts;  // of each completion, by its number of tokens when it was told
};

Answered hear_given(ResponseStream& stream, int n) {
  Answered heard;
  heard.texts.resize(static_cast<size_t>(n));
  heard.seed = stream.facts().seed;
  heard.given = stream.given();
  std::vector<size_t> tokens(static_cast<size_t>(n));
  std::vector<std::string> texts(static_cast<size_t>(n));
  StreamEvent event;
  while (stream.next(event)) {
    const auto c = static_cast<size_t>(event.index);
    tokens[c] += event.token_ids.size();
    texts[c] += event.text;
    if (event.finish_reason == FinishReason::kNone) heard.texts[c][tokens[c]] = texts[c];
  }
  heard.output = stream.wait();
  for (size_t c = 0; c < texts.size(); ++c) EXPECT_EQ(texts[c], heard.output.completions.at(c).text);
  return heard;
}

// The beginning of each of its answers, so many tokens long or as long as they are.
Request cut_at(Request request, const Answered& whole, size_t tokens) {
  request.sampling.seed = whole.seed;
  request.given.clear();
  for (const auto& completion : whole.output.completions) {
    const auto& ids = completion.token_ids;
    const bool is_all = tokens >= ids.size();
    request.given.push_back({{ids.begin(), is_all ? ids.end() : ids.begin() + static_cast<ptrdiff_t>(tokens)}, is_all});
  }
  return request;
}

bool is_same_position(const PositionLogprobs& a, const PositionLogprobs& b) {
  if (std::memcmp(&a.chosen, &b.chosen, sizeof a.chosen) != 0 || a.top.size() != b.top.size()) return false;
  for (size_t i = 0; i < a.top.size(); ++i) {
    if (std::memcmp(&a.top[i], &b.top[i], sizeof a.top[i]) != 0) return false;
  }
  return true;
}

void expect_rest(const Completion& rest, const Completion& whole, size_t given) {
  EXPECT_EQ(rest.given_token_ids.size(), given);
  EXPECT_EQ(rest.given_text + rest.text, whole.text);
  EXPECT_EQ(rest.token_ids, std::vector(whole.token_ids.begin() + static_cast<ptrdiff_t>(given), whole.token_ids.end()));
  EXPECT_EQ(rest.finish_reason, whole.finish_reason);
  EXPECT_EQ(rest.stop_reason, whole.stop_reason);
  EXPECT_EQ(rest.stopped_by_token, whole.stopped_by_token);
  ASSERT_EQ(rest.logprobs.size(), whole.logprobs.empty() ? 0 : whole.logprobs.size() - given);
  for (size_t i = 0; i < rest.logprobs.size(); ++i)
    EXPECT_TRUE(is_same_position(rest.logprobs[i], whole.logprobs[given + i])) << i;
}

void expect_goes_on(const Answered& rest, const Answered& whole, size_t tokens) {
  ASSERT_TRUE(rest.output.status.ok()) << rest.output.status.to_string();
  EXPECT_EQ(rest.seed, whole.seed);
  for (size_t c = 0; c < whole.output.completions.size(); ++c) {
    const auto& all = whole.output.completions[c];
    const size_t given = std::min(tokens, all.token_ids.size());
    SCOPED_TRACE(fmt::format("completion {}", c));
    expect_rest(rest.output.completions.at(c), all, given);
    // What was told by then is what is said to have been.
    const auto told = whole.texts[c].find(given);
    if (told != whole.texts[c].end() && given < all.token_ids.size()) {
      EXPECT_EQ(rest.output.completions[c].given_text, told->second);
    }
  }
}

class GivenAnswerTest : public ::testing::Test {
 protected:
  GivenAnswerTest() {
    for (const char* name : {"a", "b"}) files_.write(name, 4, static_cast<uint64_t>(name[0]));
    auto options = tiny_options();
    options.adapter_root = files_.root().string();
    options.max_model_len = 128;
    options.max_num_seqs = 24;
    llm_ = load_or_die(options);
  }
  Answered answer(const Request& request) {
    auto stream = llm_->submit(request);
    EXPECT_TRUE(stream.ok()) << stream.status().to_string();
    return stream.ok() ? hear_given(**stream, request.sampling.n) : Answered();
  }
  int up_to(int most) { return static_cast<int>(random_() % static_cast<uint32_t>(most + 1)); }

  void draw_sampling(SamplingParams& s, int number) {
    s.n = 1 + up_to(8) / 4;
    s.temperature = number % 3 == 0 && s.n == 1 ? 0.0F : 0.5F + 0.25F * static_cast<float>(up_to(4));
    if (up_to(2) == 0) s.seed = random_();
    if (up_to(1) == 0) s.logprobs = up_to(3);
    if (up_to(2) == 0) s.repetition_penalty = 1.3F;
    if (up_to(2) == 0) s.frequency_penalty = 0.7F;
    if (up_to(3) == 0) s.penalty_last_n = 6;
    if (up_to(3) == 0) s.dry_multiplier = 0.8F;
    if (up_to(3) == 0) s.xtc_probability = 0.5F;
    if (up_to(3) == 0) s.top_p = 0.8F;
    if (up_to(3) == 0) s.min_tokens = up_to(4);
    s.ignore_eos = up_to(1) == 0;
  }
  void draw_adapters(Request& r) {
    if (up_to(1) == 0) r.adapters.push_back({"a"});
    if (up_to(2) == 0) r.adapters.push_back({"b", 0.5F});
  }
  void draw_form(Request& r) {
    using Kind = StructuredOutput::Kind;
    switch (up_to(8)) {
      case 0: r.structured_output = {.kind = Kind::kJsonObject}; break;
      case 1: r.structured_output = {.kind = Kind::kChoice, .choices = {"yes", "no", "yes, but not now"}}; break;
      case 2:
        r.structured_output = {
            .kind = Kind::kJsonSchema,
            .text = R"({"type":"object","properties":{"name":{"type":"string","maxLength":6},"age":{"type":"integer",)"
                    R"("minimum":0,"maximum":120},"ok":{"type":"boolean"}},"required":["name","age","ok"],)"
                    R"("additionalProperties":false})"};
        break;
      case 3:
        r.thought_limit = {
            .max_tokens = up_to(8), .begins = {"<think>"}, .ends = {"</think>"}, .forced_end = "</think>", .open = true};
        break;
      default: break;
    }
  }
  // Of texts and tokens that the answer has, so that they stop it.
  void draw_stops(const Answered& without, SamplingParams& s) {
    if (without.output.completions.empty()) return;
    const Completion& first = without.output.completions.front();
    if (up_to(2) == 0 && first.text.size() > 4) {
      const size_t at = first.text.size() / 2;
      s.stop = {"\x01never", first.text.substr(at, 1 + static_cast<size_t>(up_to(5)))};
      s.include_stop_str_in_output = up_to(2) == 0;
    }
    if (up_to(3) == 0 && !first.token_ids.empty()) s.stop_token_ids = {first.token_ids[first.token_ids.size() * 2 / 3]};
  }
  Request draw(int number) {
    Request r = greedy_request(random_prompt(4 + up_to(50), static_cast<uint32_t>(up_to(20))), 4 + up_to(14));
    r.sampling.logprobs.reset();
    draw_sampling(r.sampling, number);
    draw_adapters(r);
    draw_form(r);
    draw_stops(answer(r), r.sampling);
    return r;
  }

  AdapterFiles files_;
  std::unique_ptr<LLM> llm_;
  std::mt19937 random_{34};
};

TEST_F(GivenAnswerTest, GoesOnFromEachOfItsTokensToTheVeryEnd) {
  std::map<FinishReason, int> ends;
  int answers = 0;
  for (int number = 0; answers < kAnswers; ++number) {
    SCOPED_TRACE(fmt::format("answer {}", number));
    const Request request = draw(number);
    const Answered whole = answer(request);
    if (!whole.output.status.ok()) continue;  // a form and what is banned left no token
    ++answers;
    size_t longest = 0;
    for (const auto& completion : whole.output.completions) {
      ++ends[completion.finish_reason];
      longest = std::max(longest, completion.token_ids.size());
    }
    std::vector<std::unique_ptr<ResponseStream>> rests;
    for (size_t tokens = 1; tokens <= longest; ++tokens) {
      auto stream = llm_->submit(cut_at(request, whole, tokens));
      ASSERT_TRUE(stream.ok()) << "cut at " << tokens << ": " << stream.status().to_string();
      rests.push_back(std::move(*stream));
    }
    for (size_t tokens = 1; tokens <= longest; ++tokens) {
      SCOPED_TRACE(fmt::format("cut at {}", tokens));
      expect_goes_on(hear_given(*rests[tokens - 1], request.sampling.n), whole, tokens);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(ends[FinishReason::kStop], 20);
  EXPECT_GT(ends[FinishReason::kLength], 20);
}

// One whose end was not told tells it, and what it held back with it.
TEST_F(GivenAnswerTest, OfWhichAllIsGivenTellsItsEnd) {
  Request request = greedy_request(random_prompt(20, 1), 6);
  const Answered whole = answer(request);
  Request all = cut_at(request, whole, 6);
  all.given[0].ended = false;
  const Answered rest = answer(all);
  EXPECT_EQ(rest.output.completions[0].finish_reason, FinishReason::kLength);
  EXPECT_TRUE(rest.output.completions[0].token_ids.empty());
  ASSERT_EQ(rest.given.size(), 1u);
  EXPECT_EQ(rest.given[0].text + rest.output.completions[0].text, whole.output.completions[0].text);
}

TEST_F(GivenAnswerTest, IsFoundInTheCacheLikeAnyPrefix) {
  Request request = greedy_request(random_prompt(10, 7), 90);
  const Answered whole = answer(request);
  const auto before = stats_at_rest(*llm_);
  const Answered rest = answer(cut_at(request, whole, 80));
  expect_goes_on(rest, whole, 80);
  EXPECT_EQ(rest.output.cached_tokens, 10) << "of the prompt; more of the answer is found";
  EXPECT_GE(stats_at_rest(*llm_).prefix_hit_tokens - before.prefix_hit_tokens, 64);
}

TEST_F(GivenAnswerTest, IsRefusedWhereNoAnswerCouldBeginSo) {
  const Request request = greedy_request(random_prompt(20, 1), 6);
  const auto refused = [&](Request r, const std::string& why) {
    const auto stream = llm_->submit(std::move(r));
    ASSERT_FALSE(stream.ok()) << why;
    EXPECT_EQ(stream.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(stream.status().message(), HasSubstr(why));
  };
  const auto with = [&](std::vector<GivenAnswer> given) {
    Request r = request;
    r.given = std::move(given);
    return r;
  };
  refused(with({{{1, 2, 3, 4, 5, 6, 7}}}), "7 tokens; the whole answer may have 6");
  refused(with({{{1, 4000000}}}), "continue_token_ids[0] holds token 4000000; the model has ids 0 to ");
  refused(with({{{-1}}}), "continue_token_ids[0] holds token -1");
  refused(with({{{1}}, {{1}}}), "2 answers, and n is 1");
  refused(with({{{1}, true}}), "do not end it");
  refused(with({{{}, true}}), "without a token");
  Request r = with({{{1, 5, 1}}});
  r.sampling.stop_token_ids = {5};
  refused(r, "ended before token 2 of those given ('5')");
  r = with({{{1}}});
  r.sampling.best_of = 3;
  refused(r, "best_of");
  r = with({{{1}}});
  r.embedding = true;
  refused(r, "no answer that could go on");
  r = with({{{1, 2}}});
  r.structured_output = {.kind = StructuredOutput::Kind::kJsonObject};
  refused(r, "continue_token_ids[0]: the given answer does not keep to its form: token 0, 1,");
  r = with({{{1, 2, 3}}});
  r.thought_limit = {.max_tokens = 1, .begins = {"<think>"}, .ends = {"</think>"}, .forced_end = "</think>", .open = true};
  refused(r, "token 1 is 2, where thinking_budget ends the thoughts");
  EXPECT_FALSE(llm_->submit_each(
                       [&] {
                         auto q = with({{{1}}});
                         q.prompt_token_ids.clear();
                         return q;
                       }(),
                       {Prompt("a"), Prompt("b")})
                   .ok());
}

TEST_F(GivenAnswerTest, GoesOnWithTheContentsThatItBeganWithOnly) {
  Request request = greedy_request(random_prompt(20, 1), 6);
  request.adapters = {{"a"}, {"b", 0.5F}};
  const Answered whole = answer(request);
  ASSERT_EQ(whole.output.adapters.size(), 2u);
  Request rest = cut_at(request, whole, 3);
  auto& begun_with = rest.given_adapters.emplace();
  for (const auto& adapter : whole.output.adapters) begun_with.push_back(adapter.digest.substr(0, 16));
  expect_goes_on(answer(rest), whole, 3);
  std::swap(begun_with[0], begun_with[1]);
  const Answered refused = answer(rest);
  EXPECT_EQ(refused.output.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.output.status.message(), AllOf(HasSubstr("adapter 'a' is another now"), HasSubstr("generation 1")));
  begun_with.pop_back();
  EXPECT_THAT(answer(rest).output.status.message(), HasSubstr("began with 1 adapters, and 2 would go on"));
}

// Forms whose masks nothing bounds are held to beside the engine's thread, given tokens too.
TEST(GivenAnswerBesideTheEngine, GoesOnFromEachOfItsTokens) {
  AssembledEngine engine(tiny_options(), AssembledEngine::one_worker, now_s, make_languages, {});
  const auto run = [&](std::vector<Request> requests) { return engine.generate(std::move(requests)); };
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    const Request request = speaking(seed % 2 == 0 ? "9 9" : "3 12", seed, seed == 3 ? 9 : 40, /*is_bounded=*/false);
    const auto whole = run({request}).front();
    ASSERT_TRUE(whole.status.ok()) << whole.status.to_string();
    const auto& ids = whole.completions[0].token_ids;
    std::vector<Request> cuts;
    for (size_t tokens = 1; tokens <= ids.size(); ++tokens) {
      cuts.push_back(request);
      cuts.back().given = {{{ids.begin(), ids.begin() + static_cast<ptrdiff_t>(tokens)}}};
    }
    const auto rests = run(cuts);
    for (size_t i = 0; i < rests.size(); ++i) {
      SCOPED_TRACE(fmt::format("seed {}, cut at {}", seed, i + 1));
      ASSERT_TRUE(rests[i].status.ok()) << rests[i].status.to_string();
      expect_rest(rests[i].completions[0], whole.completions[0], i + 1);
    }
  }
  Request broken = speaking("9 9", 1, 40, /*is_bounded=*/false);
  broken.given = {{{100, 100}}};
  const auto refused = run({broken}).front();
  EXPECT_EQ(refused.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status.message(), HasSubstr("token 1, 100, is none that structured_output allows"));
}

}  // namespace
}  // namespace choral::engine
