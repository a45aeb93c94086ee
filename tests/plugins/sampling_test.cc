// Sampling on a device: the host's tokens, row by row and in whole answers, while logits stay where they are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/device_sampler.h"
#include "engine/guessing_engine_test.h"
#include "engine/worker.h"
#include "platform/cpu_context_test.h"
#include "platform/host_view.h"
#include "plugins/cuda_device.h"
#include "support/allocation_counter.h"

namespace choral::plugins {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kVocab = 1000, kWidth = 1010;

struct Device {
  std::string name;
  std::string folder;
};
const Device kDevices[] = {{"ref_device", CHORAL_TEST_PLUGINS},
#ifdef CHORAL_TEST_CUDA
                           {cuda_device(), cuda_folder()}
#endif
};

class SamplingTest : public PluginTest, public ::testing::WithParamInterface<Device> {
 protected:
  SamplingTest() : path_("CHORAL_PLUGIN_PATH", GetParam().folder) {}
  static EngineOptions on_device(const std::string& model = "tiny-qwen3") { return options(GetParam().name, model); }

 private:
  const Variable path_, complete_{"CHORAL_REF_COMPLETE", "1"};
};

INSTANTIATE_TEST_SUITE_P(Devices, SamplingTest, ::testing::ValuesIn(kDevices),
                         [](const auto& tested) { return std::string(tested.param.name); });

// ---- Rows of logits.

struct Row {
  engine::SamplingRule rule = {};
  std::vector<int32_t> tokens = {7, 6};
  int32_t prompt_count = 2;
  int64_t vocab = kVocab;
  std::vector<uint32_t> mask = {};
  std::vector<float> logits = {};
};

struct Sampled {
  std::vector<engine::SampledToken> tokens;
  std::vector<std::vector<kernels::TokenLogprob>> tops;

  explicit Sampled(const std::vector<Row>& rows) : tokens(rows.size()) {
    for (const auto& row : rows) tops.emplace_back(row.rule.top_count());
  }
};

std::vector<engine::SampledRow> as_sampled(const std::vector<Row>& rows, Sampled& to) {
  std::vector<engine::SampledRow> all;
  for (size_t i = 0; i < rows.size(); ++i) {
    all.push_back({.rule = &rows[i].rule,
                   .vocab = rows[i].vocab,
                   .tokens = rows[i].tokens,
                   .prompt_count = rows[i].prompt_count,
                   .mask = rows[i].mask,
                   .out = &to.tokens[i],
                   .top = to.tops[i]});
  }
  return all;
}

std::vector<float> logits_of(const std::vector<Row>& rows) {
  std::vector<float> all;
  for (const auto& row : rows) {
    all.insert(all.end(), row.logits.begin(), row.logits.end());
    all.resize(all.size() + kWidth - row.logits.size(), std::numeric_limits<float>::quiet_NaN());
  }
  return all;
}

Sampled on_host(const std::vector<Row>& rows) {
  platform::testing::CpuContext cpu{2};
  engine::Sampler sampler(*cpu, kWidth);
  Sampled to(rows);
  auto logits = logits_of(rows);
  sampler.sample({logits.data(), std::ssize(rows), kWidth}, as_sampled(rows, to));
  return to;
}

class DeviceRows {
 public:
  explicit DeviceRows(EngineOptions options)
      : worker_(*engine::Worker::make(options)), sampler_(worker_->context(), kWidth, /*max_rows=*/4) {
    EXPECT_TRUE(worker_->context().session.samples());
  }
  Sampled sample(const std::vector<Row>& rows) {
    Sampled to(rows);
    step(logits_of(rows), as_sampled(rows, to));
    return to;
  }
  // Of a step that was there before.
  int64_t count_allocations(const std::vector<Row>& rows) {
    Sampled to(rows);
    const auto sampled = as_sampled(rows, to);
    const auto logits = logits_of(rows);
    step(logits, sampled);
    return choral::testing::count_allocations([&] { step(logits, sampled); }).allocations;
  }

 private:
  void step(const std::vector<float>& logits, const std::vector<engine::SampledRow>& rows) {
    const auto& ctx = worker_->context();
    const platform::StepMark mark(ctx);
    sampler_.place(rows);
    const auto placed = ctx.make_matrix(std::ssize(rows), kWidth);
    platform::copy_to_device(ctx, {logits.data(), placed.rows, kWidth}, placed);
    sampler_.sample(placed, rows);
  }

  std::unique_ptr<engine::Worker> worker_;
  engine::DeviceSampler sampler_;
};

void expect_same(const Sampled& got, const Sampled& wanted) {
  for (size_t i = 0; i < wanted.tokens.size(); ++i) {
    const auto &a = got.tokens[i], &b = wanted.tokens[i];
    EXPECT_EQ(a.token, b.token) << "row " << i;
    EXPECT_EQ(a.status.to_string(), b.status.to_string()) << "row " << i;
    EXPECT_NEAR(a.logprob, b.logprob, 1e-4) << "row " << i;
    ASSERT_EQ(a.top_count, b.top_count) << "row " << i;
    for (int32_t t = 0; t < b.top_count; ++t) {
      const auto &x = got.tops[i][t], &y = wanted.tops[i][t];
      EXPECT_EQ(x.token, y.token) << "row " << i << ", place " << t;
      if (std::isfinite(y.logprob))
        EXPECT_NEAR(x.logprob, y.logprob, 1e-4) << "row " << i << ", place " << t;
      else
        EXPECT_EQ(x.logprob, y.logprob) << "row " << i << ", place " << t;
    }
  }
}

// Each thing that a rule can say, by itself and with others.
std::vector<Row> many_rows() {
  std::vector<Row> rows(32);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    for (int64_t t = 0; t < kVocab; ++t) row.logits.push_back(normal(random));
    row.rule.seed = i;
    row.rule.settings.temperature = i % 4 == 0 ? 0.0F : 0.4F * static_cast<float>(i % 4);
    if (i % 5 == 1) row.rule.settings.top_k = 20;
    if (i % 3 == 1) row.rule.settings.top_p = 0.9F;
    if (i % 7 == 1) row.rule.settings.min_p = 0.05F;
    if (i % 3 == 2) row.rule.logprobs = static_cast<int>(i % 5);
    if (i % 6 == 2) row.rule.logprob_ids = {3, 999, 5, 1005};
    for (int t = 0; t < 40; ++t) row.tokens.push_back((t * t + static_cast<int>(i)) % 50);
    row.prompt_count = 12;
    if (i % 4 == 1) row.rule.penalties = {.repetition = 1.3F, .frequency = 0.1F, .presence = 0.4F};
    if (i % 8 == 2) row.rule.penalties = {.repetition = 1.0F, .frequency = 0.7F, .presence = 0.0F};
    if (i % 8 == 1) row.rule.penalty_last_n = static_cast<int32_t>(i);
    if (i % 8 == 5) row.rule.dry = {.multiplier = 3.0F, .base = 1.5F, .allowed_length = 1};
    if (i % 8 == 6) row.rule.dry = {.multiplier = 5.0F, .allowed_length = 0, .last_n = 30}, row.rule.dry_breakers = {{3, {}}};
    if (i % 5 == 2) row.rule.bias = {{4, 9.0F}, {row.tokens.back(), -3.0F}, {2000, 100.0F}};
    if (i % 5 == 3) row.rule.allowed_ids = {1, 30, 31, 32, 500, 998, 3000};
    if (i % 4 == 3) row.mask.assign(20, 0x5A5A5A5AU);
    if (i % 6 == 3) row.rule.stop_ids = {4, 998}, row.rule.min_tokens = 100;
    row.rule.bad_words = {{row.tokens[41], 4}, {row.tokens[41], 31}, {1}};
    if (i % 9 == 4) row.vocab = 700;
  }
  return rows;
}

TEST_P(SamplingTest, RowsGetTheHostsTokens) {
  DeviceRows device(on_device());
  const auto rows = many_rows();
  const auto wanted = on_host(rows);
  expect_same(device.sample(rows), wanted);
  for (const auto& token : wanted.tokens) EXPECT_TRUE(token.status.ok());
}

TEST_P(SamplingTest, ARowIsTheSameAloneToTheBit) {
  DeviceRows device(on_device());
  const auto rows = many_rows();
  const auto together = device.sample(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto alone = device.sample({rows[i]});
    EXPECT_EQ(alone.tokens[0].token, together.tokens[i].token) << i;
    EXPECT_EQ(alone.tokens[0].logprob, together.tokens[i].logprob) << i;
    for (size_t t = 0; t < alone.tops[0].size(); ++t) {
      EXPECT_EQ(alone.tops[0][t].token, together.tops[i][t].token) << i;
      EXPECT_EQ(alone.tops[0][t].logprob, together.tops[i][t].logprob) << i;
    }
  }
}

TEST_P(SamplingTest, AStepThatWasThereBeforeAllocatesNothing) {
  if (GetParam().name != std::string("ref_device")) GTEST_SKIP() << "the emulation allocates what it queues";
  EXPECT_EQ(DeviceRows(on_device()).count_allocations(many_rows()), 0);
}

TEST_P(SamplingTest, ARowThatGivesNoTokenFailsAlone) {
  DeviceRows device(on_device());
  auto rows = many_rows();
  rows[4].logits[123] = std::numeric_limits<float>::quiet_NaN();
  rows[9].logits[40] = std::numeric_limits<float>::infinity();
  rows[10].mask = {0};
  const auto wanted = on_host(rows);
  EXPECT_THAT(wanted.tokens[4].status.message(), HasSubstr("NaN"));
  EXPECT_THAT(wanted.tokens[9].status.message(), HasSubstr("+inf"));
  EXPECT_THAT(wanted.tokens[10].status.message(), HasSubstr("no token is left"));
  expect_same(device.sample(rows), wanted);
}

// ---- Answers.

std::vector<Request> many_requests() {
  std::vector<Request> requests;
  for (int i = 0; i < 13; ++i) {
    auto request = engine::greedy_request(engine::random_prompt(5 + 7 * i, static_cast<uint32_t>(i)), 12);
    auto& sampling = request.sampling;
    sampling.seed = i;
    if (i % 2 == 1) sampling.temperature = 0.7F, sampling.top_p = 0.8F;
    if (i == 3) sampling.top_k = 10, sampling.min_p = 0.02F;
    if (i == 4) sampling.repetition_penalty = 1.5F, sampling.frequency_penalty = 0.5F;
    if (i == 5) sampling.presence_penalty = 1.0F, sampling.logprobs.reset();
    if (i == 6) sampling.logit_bias = {{77, 5.0F}, {78, 5.0F}}, sampling.logprob_token_ids = {77, 1};
    if (i == 7) sampling.allowed_token_ids = {5, 50, 500, 600};
    if (i == 8) request.structured_output = {.kind = StructuredOutput::Kind::kChoice, .choices = {"north", "south-west"}};
    if (i == 9) sampling.typical_p = 0.8F, sampling.top_n_sigma = 1.5F;
    if (i == 10) sampling.dry_multiplier = 0.8F, sampling.dry_allowed_length = 1;
    if (i == 11) sampling.xtc_probability = 0.7F, sampling.xtc_threshold = 0.001F, sampling.logprobs = 3;
    if (i == 12)
      request.thought_limit = {
          .max_tokens = 4, .begins = {"<think>"}, .ends = {"</think>"}, .forced_end = "</think>", .open = true};
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_P(SamplingTest, AnswersAreTheCpus) {
  auto strict = on_device();
  strict.strict = true;
  const auto llm = load(strict);
  const auto wanted = load(options("cpu"))->generate(many_requests());
  const auto got = llm->generate(many_requests());
  expect_equal(got, wanted);
  EXPECT_EQ(got[8].completions[0].text, wanted[8].completions[0].text);
  EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("served by the CPU"))));
}

// Each row of a step draws by its own position, known or guessed.
TEST_P(SamplingTest, AnswersWithGuessedTokensAreThoseWithout) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 4; ++i) {
    auto request = engine::greedy_request(engine::random_prompt(5 + static_cast<int>(i), i), 24);
    request.sampling.temperature = 0.9F;
    request.sampling.seed = i;
    request.sampling.allowed_token_ids = {5, 6, 7};  // as good as dice: some come true
    requests.push_back(std::move(request));
  }
  auto options = on_device();
  options.max_num_seqs = 4;
  auto guessing = engine::guessing_engine(options);
  const auto wanted = load(options)->generate(requests), got = guessing.generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) engine::expect_same_bits(wanted[i], got[i]);
  const auto& guesses = engine::stats_at_rest(guessing).speculation;
  EXPECT_GT(guesses.right, 0);
  EXPECT_GT(guesses.guessed, guesses.right);
}

// Of a token come 16 bytes, and 8 for each log-probability beside its own.
TEST_P(SamplingTest, LogitsStayOnTheDevice) {
  constexpr int kTokens = 6;
  const auto llm = load(on_device());
  const auto bytes_of = [&](int logprobs, int32_t first) {
    auto request = engine::greedy_request({first, 6, 7}, kTokens);
    request.sampling.logprobs = logprobs;
    const int64_t before = engine::stats_at_rest(*llm).host_copied_bytes;
    EXPECT_TRUE(llm->generate({request}).front().status.ok());
    return engine::stats_at_rest(*llm).host_copied_bytes - before;
  };
  bytes_of(0, 1);  // what holds the fused operators to their reference
  EXPECT_EQ(bytes_of(0, 2), kTokens * 16);
  EXPECT_EQ(bytes_of(5, 3), kTokens * (16 + 5 * 8));
}

// Those of one row, and the tokens of its neighbours as ever.
TEST_P(SamplingTest, ARowWithAFilterThatDevicesLackComesToTheHost) {
  const auto llm = load(on_device());
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("typical_p, top_n_sigma or XTC on the host")));
  const auto bytes_of = [&](bool typical) {
    std::vector<Request> requests = {engine::greedy_request({5, 6, 7}, 1), engine::greedy_request({8, 6, 7}, 1)};
    for (auto& request : requests) request.sampling.logprobs.reset();
    requests[1].sampling.temperature = 0.7F;
    requests[1].sampling.seed = 3;
    if (typical) requests[1].sampling.typical_p = 0.9F;
    const int64_t before = engine::stats_at_rest(*llm).host_copied_bytes;
    for (const auto& output : llm->generate(requests)) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
    return engine::stats_at_rest(*llm).host_copied_bytes - before;
  };
  bytes_of(false);
  EXPECT_EQ(bytes_of(false), 2 * 16);
  EXPECT_EQ((bytes_of(true) - 16) % 4, 0);
  EXPECT_GT(bytes_of(true), 4 * 1000) << "a vocabulary";
}

// Of prompts the logits still come, and the answer is sampled there.
TEST_P(SamplingTest, LogprobsOfPromptsAreTheCpus) {
  auto request = engine::greedy_request(engine::random_prompt(20, 9), 4);
  request.sampling.prompt_logprobs = 2;
  const auto got = load(on_device())->generate({request}).front(), wanted = load(options("cpu"))->generate({request}).front();
  expect_equal({got}, {wanted});
  ASSERT_EQ(got.prompt_logprobs.size(), wanted.prompt_logprobs.size());
  for (size_t i = 1; i < wanted.prompt_logprobs.size(); ++i) {
    EXPECT_NEAR(got.prompt_logprobs[i].chosen.logprob, wanted.prompt_logprobs[i].chosen.logprob, 1e-3) << i;
  }
}

// ---- Devices without it.

class WithoutSamplingTest : public PluginTest {};

TEST_F(WithoutSamplingTest, TheHostSamplesAndSaysSo) {
  const auto llm = load(options("ref_device"));
  expect_equal(llm->generate(many_requests()), load(options("cpu"))->generate(many_requests()));
  EXPECT_GT(engine::stats_at_rest(*llm).host_copied_bytes, 100 * 4000 * 4);
  auto strict = options("ref_device");
  strict.strict = true;
  EXPECT_THAT(LLM::load(strict).status().message(), AllOf(HasSubstr("sample (ref_device has no such operator)"),
                                                          HasSubstr("soft_cap (ref_device has no such operator)")));
}

class PassedOverSamplingTest : public WithoutSamplingTest, public ::testing::WithParamInterface<const char*> {};

// A device that passes over what a row asks for is found out before a request comes, and the host samples.
TEST_P(PassedOverSamplingTest, IsFoundOut) {
  const Variable complete("CHORAL_REF_COMPLETE", "1"), ignored("CHORAL_REF_IGNORE", GetParam());
  const auto llm = load(options("ref_fault_features"));
  EXPECT_THAT(llm->info().notes, Contains(AllOf(HasSubstr("sample is served by the CPU: it disagrees with the reference with "),
                                                HasSubstr(GetParam()))));
  expect_equal(llm->generate(many_requests()), load(options("cpu"))->generate(many_requests()));
}

INSTANTIATE_TEST_SUITE_P(Features, PassedOverSamplingTest, ::testing::Values("masks", "edits", "top_k", "top_p", "min_p"),
                         [](const auto& tested) { return std::string(tested.param); });

// In the step in which it fails the tokens come of a copy, later ones of the host's own way.
TEST_F(WithoutSamplingTest, ADeviceThatFailsAtItLosesNoToken) {
  const Variable complete("CHORAL_REF_COMPLETE", "1");
  auto request = engine::greedy_request({5, 6, 7}, 4);
  request.sampling.temperature = 0.7F;
  request.sampling.seed = 3;
  const auto wanted = load(options("cpu"))->generate({request});
  for (int call = 245; call < 320; ++call) {  // one of the first two steps' is that of sample
    const Variable mark("CHORAL_REF_FAULT_AT", std::to_string(call));
    const auto llm = load(options("ref_fault_fails_at_100"));
    const auto got = llm->generate({request});
    const auto notes = llm->device_notes();
    const auto tells = [](const std::string& note) { return note.find(": sample is served by the CPU: it failed") != note.npos; };
    if (std::any_of(notes.begin(), notes.end(), tells)) return expect_equal(got, wanted);
  }
  ADD_FAILURE() << "no call was that of sample";
}

}  // namespace
}  // namespace choral::plugins
