// Layers with a window give back what it has passed: long sequences live in a KV cache that would not hold all they have seen,
// and answer as with all the room there is.
#include "engine/tiny_model_test.h"

namespace choral::engine {
namespace {

constexpr int kLength = 480;

struct Tested {
  const char* model;
  const char* kv_cache_dtype = "auto";
};

class WindowBlocksTest : public ::testing::TestWithParam<Tested> {
 protected:
  // Small steps, so that a prompt's window moves on while it is computed.
  static EngineOptions options() {
    auto options = tiny_options(GetParam().model);
    options.kv_cache_dtype = GetParam().kv_cache_dtype;
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = 24;
    options.max_model_len = kLength;
    return options;
  }
  // Room for so many sequences of kLength tokens and no more.
  static EngineOptions tight(double sequences = 1) {
    auto one = options();
    one.max_num_seqs = 1;
    auto changed = options();
    changed.kv_cache_bytes = static_cast<int64_t>(sequences * static_cast<double>(load_or_die(one)->info().kv_cache_bytes));
    return changed;
  }
  static std::vector<Request> long_requests() {
    std::vector<Request> requests;
    for (const int length : {300, 5, 120}) {
      requests.push_back(greedy_request(random_prompt(length, static_cast<uint32_t>(length)), kLength - length));
    }
    return requests;
  }
  static std::vector<RequestOutput> with_room() {
    auto roomy = options();
    roomy.enable_prefix_caching = false;
    const auto llm = load_or_die(roomy);
    std::vector<RequestOutput> outputs;
    for (const auto& request : long_requests()) outputs.push_back(llm->generate({request}).front());
    return outputs;
  }
};

TEST_P(WindowBlocksTest, ALongSequenceFillsLessThanItsPositions) {
  const auto llm = load_or_die(tight());
  const auto& info = llm->info();
  EXPECT_LT(info.kv_cache_tokens, kLength * 3 / 4);
  const auto wanted = with_room();
  const auto requests = long_requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_bits(wanted[i], llm->generate({requests[i]}).front());
    EXPECT_EQ(stats_at_rest(*llm).kv_blocks_free, llm->stats().kv_blocks_total);
  }
  EXPECT_EQ(llm->stats().preemptions, 0);
}

TEST_P(WindowBlocksTest, SequencesThatContendForBlocksAnswerAsAlone) {
  const auto llm = load_or_die(tight(1.7));
  const auto wanted = with_room();
  for (int round = 0; round < 2; ++round) {  // in blocks that others have written
    const auto together = llm->generate(long_requests());
    for (size_t i = 0; i < together.size(); ++i) expect_same_bits(wanted[i], together[i]);
  }
  EXPECT_GT(llm->stats().preemptions, 0);
}

TEST_P(WindowBlocksTest, APrefixIsFoundByWhatItsEndSees) {
  auto caching = options();
  caching.enable_prefix_caching = true;
  const auto llm = load_or_die(caching);
  const auto prompt = random_prompt(300, 1);
  const auto first = llm->generate({greedy_request(prompt, 40)}).front();
  const auto again = llm->generate({greedy_request(prompt, 40)}).front();
  EXPECT_EQ(again.cached_tokens, 288);
  expect_same_bits(first, again);
  // Another end, and the first's answer as a prompt.
  auto other = prompt;
  other.resize(200);
  auto plain = options();
  plain.enable_prefix_caching = false;
  const auto without = load_or_die(plain);
  auto longer = prompt;
  longer.insert(longer.end(), first.completions[0].token_ids.begin(), first.completions[0].token_ids.end());
  for (const auto& ids : {other, longer}) {
    const auto found = llm->generate({greedy_request(ids, 20)}).front();
    EXPECT_GE(found.cached_tokens, 192);
    expect_same_bits(without->generate({greedy_request(ids, 20)}).front(), found);
  }
}

std::string name_of(const ::testing::TestParamInfo<Tested>& tested) {
  std::string name = std::string(tested.param.model).substr(5) + "_kv_" + tested.param.kv_cache_dtype;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, WindowBlocksTest,
                         ::testing::Values(Tested{"tiny-mistral"}, Tested{"tiny-gemma2"}, Tested{"tiny-gemma3"},
                                           Tested{"tiny-gpt-oss"}, Tested{"tiny-gemma3", "int8"}, Tested{"tiny-gpt-oss", "int8"}),
                         name_of);

}  // namespace
}  // namespace choral::engine
