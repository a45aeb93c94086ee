// A model that ranks divide gives the bits of one that is whole: every family, with every adapter that there is for it and all of
// them in one batch, every kind of adapter, and weights in every scheme that is made while loading. Ranks are of one process or,
// played by threads, processes that see each other's messages alone. They are the CPU's, or of devices that are there several
// times.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "choral/llm.h"
#include "engine/ranks/processes_test.h"
#include "golden/golden.h"
#include "golden/kinds.h"
#include "platform/platform_choice.h"
#include "support/temp_dir.h"
#include "support/test_paths.h"
#include "support/tiny_models.h"

namespace choral::golden {
namespace {

namespace fs = std::filesystem;

bool on_devices() { return test_device() != "auto"; }

// How many ranks there can be.
int most_ranks() {
  if (!on_devices()) return 64;
  auto search = platform::PluginSearch::from_environment();
  search.only = test_device();
  return static_cast<int>(platform::find_candidates(search).front().platforms.size());
}

EngineOptions options_of(const std::string& model, int ranks) {
  EngineOptions options{.model = model, .kv_cache_dtype = "float32", .device = "cpu", .threads = ranks + 1};  // one has two
  if (on_devices()) options.device = test_device();
  options.tensor_parallel_size = ranks;
  options.max_num_batched_tokens = 64;  // longer prompts come in chunks
  options.speculative = "off";
  return options;
}

std::vector<int32_t> random_prompt(int length, uint32_t seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>((seed = seed * 1664525U + 1013904223U) >> 20));
  return ids;
}

// Prompts of each adapter and of none, which share steps.
std::vector<Request> requests_for(const std::set<std::string>& adapters) {
  std::vector<Request> requests;
  std::vector<std::vector<AdapterUse>> voices{{}, {}};
  for (const auto& name : adapters) voices.push_back({{name}});
  uint32_t seed = 3;
  for (const auto& voice : voices) {
    for (const int length : {1, 11, 90}) {
      Request request;
      request.prompt_token_ids = random_prompt(length, seed++);
      request.adapters = voice;
      request.sampling.temperature = 0.8F;
      request.sampling.seed = seed;
      request.sampling.max_tokens = 6;
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 5;
      request.sampling.prompt_logprobs = length == 11 ? std::optional(2) : std::nullopt;
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

void expect_same_logprobs(const std::vector<PositionLogprobs>& a, const std::vector<PositionLogprobs>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(std::memcmp(&a[i].chosen, &b[i].chosen, sizeof a[i].chosen), 0) << "position " << i;
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (size_t t = 0; t < a[i].top.size(); ++t) {
      EXPECT_EQ(std::memcmp(&a[i].top[t], &b[i].top[t], sizeof a[i].top[t]), 0) << "position " << i;
    }
  }
}

void expect_same_bits(const std::vector<RequestOutput>& got, const std::vector<RequestOutput>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {}", i));
    ASSERT_TRUE(got[i].status.ok()) << got[i].status.to_string();
    ASSERT_TRUE(wanted[i].status.ok()) << wanted[i].status.to_string();
    EXPECT_EQ(got[i].completions.at(0).token_ids, wanted[i].completions.at(0).token_ids);
    expect_same_logprobs(got[i].completions.at(0).logprobs, wanted[i].completions.at(0).logprobs);
    expect_same_logprobs(got[i].prompt_logprobs, wanted[i].prompt_logprobs);
    if (::testing::Test::HasFailure()) return;
  }
}

// `change` is made to the options of both.
template <class Change>
void check_ranks(const std::string& model, const std::vector<AdapterSpec>& adapters, std::initializer_list<int> ranks,
                 Change change) {
  std::set<std::string> names;
  for (const auto& adapter : adapters) names.insert(adapter.name);
  const auto with_adapters = [&](int count) {
    EngineOptions options = options_of(model, count);
    options.adapters = adapters;
    change(options);
    return options;
  };
  const auto by_processes = [&](int count) {
    EngineOptions options = with_adapters(1);
    options.threads = 1;
    engine::Processes all(std::vector<EngineOptions>(static_cast<size_t>(count), options));
    EXPECT_TRUE(all.status().ok()) << all.status().to_string();
    return all.llm() != nullptr ? all.llm()->generate(requests_for(names)) : std::vector<RequestOutput>();
  };
  const auto answers = [&](int count) {
    EngineOptions options = with_adapters(count);
    auto llm = LLM::load(options);
    EXPECT_TRUE(llm.ok()) << llm.status().to_string();
    return llm.ok() ? (*llm)->generate(requests_for(names)) : std::vector<RequestOutput>();
  };
  const int most = most_ranks();
  if (most < 2) GTEST_SKIP() << test_device() << " is here once";
  const auto whole = answers(1);
  for (const int count : ranks) {
    if (count > most) continue;
    SCOPED_TRACE(fmt::format("{} ranks", count));
    expect_same_bits(answers(count), whole);
    if (::testing::Test::HasFailure()) return;
    SCOPED_TRACE("as processes");
    expect_same_bits(by_processes(count), whole);
  }
}

std::vector<AdapterSpec> adapters_of(const std::string& model) {
  std::set<std::string> names;
  for (const auto& golden : read_goldens(testing::test_data("/goldens/tiny.jsonl"), model)) names.insert(golden.adapter);
  names.erase("base");
  std::vector<AdapterSpec> adapters;
  for (const auto& name : names) adapters.push_back({name, testing::test_data("/lora") + "/" + name});
  return adapters;
}

class RanksTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RanksTest, GiveTheBitsOfOne) {
  check_ranks(testing::test_data("/models/" + GetParam()), adapters_of(GetParam()), {2, 3, 4}, [](EngineOptions&) {});
}

TEST_P(RanksTest, GiveTheBitsOfOneWhenTheyShareOutAToo) {
  const auto adapters = adapters_of(GetParam());
  if (adapters.empty()) GTEST_SKIP() << "no adapter of this family";
  if (on_devices()) GTEST_SKIP() << "A is shared out on the CPU alone";
  check_ranks(testing::test_data("/models/" + GetParam()), adapters, {3},
              [](EngineOptions& options) { options.fully_sharded_loras = true; });
}

INSTANTIATE_TEST_SUITE_P(Families, RanksTest, ::testing::ValuesIn(testing::tiny_models()),
                         [](const auto& tested) { return testing::family_of(tested.param); });

TEST(RanksOfSchemesTest, GiveTheBitsOfOne) {
  for (const char* scheme : {"w8a8_dynamic", "w8a16", "w4a16", "w4a8_dynamic", "fp8"}) {
    for (const char* model : {"tiny-llama3", "tiny-qwen3moe", "tiny-gemma3"}) {
      SCOPED_TRACE(fmt::format("{}, {}", scheme, model));
      check_ranks(testing::test_data("/models/") + model, adapters_of(model), {2}, [&](EngineOptions& options) {
        options.quantization = scheme;
        if (!on_devices()) options.kv_cache_dtype = "int8";
      });
    }
  }
}

class RanksOfKindsTest : public ::testing::TestWithParam<Kind> {};

TEST_P(RanksOfKindsTest, GiveTheBitsOfOne) {
  const std::string model = testing::test_data("/models/") + GetParam().model;
  const auto base = read_weights(model);
  ASSERT_TRUE(base.ok()) << base.status().to_string();
  AdapterKind kind(*base, /*rank=*/4, /*alpha=*/8);
  GetParam().build(kind, *base);
  const testing::TempDir dir;
  ASSERT_TRUE(write_adapter(dir.path() / "adapter", kind).ok());
  for (const bool fully_sharded : {false, true}) {
    if (fully_sharded && on_devices()) continue;
    SCOPED_TRACE(fully_sharded);
    check_ranks(model, {{"it", dir / "adapter"}}, {2, 3},
                [&](EngineOptions& options) { options.fully_sharded_loras = fully_sharded; });
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, RanksOfKindsTest, ::testing::ValuesIn(all_kinds().begin(), all_kinds().end()),
                         [](const auto& tested) {
                           std::string name;
                           for (const char c :
                                fmt::format("{} {}", tested.param.name, std::string(tested.param.model).substr(5))) {
                             name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           }
                           return name;
                         });

// Blocks of GGUF, whose rows of queries and keys lie in another order.
TEST(RanksOfAFileTest, GiveTheBitsOfOne) {
  const char* model = std::getenv("CHORAL_DEMO_MODEL");
  if (model == nullptr) GTEST_SKIP() << "CHORAL_DEMO_MODEL names no file (./dev test fetches it)";
  std::vector<AdapterSpec> adapters;
  for (const char* name : {"pirate", "json"}) {
    const std::string folder = std::string(CHORAL_EXAMPLE_ADAPTERS) + "/" + name;
    if (fs::exists(folder)) adapters.push_back({name, folder});
  }
  ASSERT_FALSE(adapters.empty());
  check_ranks(model, adapters, {2, 5}, [](EngineOptions& options) { options.kv_cache_dtype = "float16"; });
}

}  // namespace
}  // namespace choral::golden
