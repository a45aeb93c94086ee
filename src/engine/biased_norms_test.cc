#include "engine/biased_norms_test.h"

#include <gmock/gmock.h>

#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Request> prompts(const std::string& adapter = "") {
  std::vector<Request> requests;
  for (const int length : {1, 40, 100}) {
    auto& request = requests.emplace_back(greedy_request(random_prompt(length, 7), 8));
    if (!adapter.empty()) request.adapters = {{adapter}};
    request.sampling.prompt_logprobs = 1;
  }
  return requests;
}

// The largest difference of a token's log-probability; of prompts, since another sum may choose another token.
double distance(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].status.ok()) << a[i].status.to_string();
    EXPECT_EQ(a[i].prompt_logprobs.size(), b[i].prompt_logprobs.size());
    for (size_t t = 0; t < a[i].prompt_logprobs.size(); ++t) {
      largest =
          std::max(largest, double{std::abs(a[i].prompt_logprobs[t].chosen.logprob - b[i].prompt_logprobs[t].chosen.logprob)});
    }
  }
  return largest;
}

constexpr double kNear = 1e-4, kFar = 1e-2;

TEST(BiasedNorms, AreTheProjectionsBehindThemWithABias) {
  const BiasedNorms written;
  const auto biased = load_or_die(written.options()), other = load_or_die(written.said_otherwise());
  const auto plain = load_or_die(tiny_options());
  EXPECT_LT(distance(biased->generate(prompts()), other->generate(prompts())), kNear);
  EXPECT_GT(distance(biased->generate(prompts()), plain->generate(prompts())), kFar) << "the bias has an effect";
}

// In one pass with the residual's sum, or one after the other: but for the sum's order the same.
TEST(BiasedNorms, AddAndBiasInOnePass) {
  const BiasedNorms written;
  auto apart = written.options();
  apart.fuse = "none";
  const auto fused = load_or_die(written.options()), parts = load_or_die(apart);
  // All but the first norm, which has no sum before it, and the last, which has no bias.
  EXPECT_THAT(fused->info().notes, Contains(HasSubstr("fused: add_rms_norm_bias at 7 places, by cpu")));
  EXPECT_LT(distance(fused->generate(prompts()), parts->generate(prompts())), kNear);
}

// Behind the norm stand quantised products: the biased row is quantised while it is at hand, with the bits of the parts.
TEST(BiasedNorms, GiveQuantisedRows) {
  const BiasedNorms written;
  for (const char* scheme : {"w8a8_dynamic", "w4a8_dynamic"}) {
    auto options = written.options();
    options.quantization = scheme;
    auto apart = options;
    apart.fuse = "none";
    const auto fused = load_or_die(options), parts = load_or_die(apart);
    EXPECT_THAT(fused->info().notes, Contains(HasSubstr("fused: rms_norm_quantise at 8 places")));
    EXPECT_THAT(fused->info().notes, Not(Contains(HasSubstr("add_rms_norm_bias at"))));
    const auto a = fused->generate(prompts()), b = parts->generate(prompts());
    for (size_t i = 0; i < a.size(); ++i) expect_same_bits(a[i], b[i]);
  }
}

TEST(BiasedNorms, AdaptersReadTheBiasedRow) {
  const BiasedNorms written;
  const AdapterFiles files;
  const std::vector<AdapterSpec> adapters{{"a", files.write("a", 8, 1)}};
  auto options = written.options(), other = written.said_otherwise();
  options.adapters = other.adapters = adapters;
  const auto biased = load_or_die(options), said_otherwise = load_or_die(other);
  const auto base = biased->generate(prompts()), adapted = biased->generate(prompts("a"));
  EXPECT_GT(distance(adapted, base), kFar);
  // What the adapter makes of the bias is no bias of a projection: A·(y + b) is more than A·y.
  EXPECT_GT(distance(adapted, said_otherwise->generate(prompts("a"))), kNear);
  auto mixed = prompts();
  for (auto& request : prompts("a")) mixed.push_back(request);
  const auto together = biased->generate(mixed);
  for (size_t i = 0; i < base.size(); ++i) {
    expect_same_bits(together[i], base[i]);
    expect_same_bits(together[i + base.size()], adapted[i]);
  }
}

}  // namespace
}  // namespace choral::engine
