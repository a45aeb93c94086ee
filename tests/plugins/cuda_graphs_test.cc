// The engine on CUDA graphs: steps of decoding are launched as graphs, whatever becomes of the batch, and
// answers have the bits that they have without.
#include <cstdio>

#include "plugins/cuda_device.h"
#include "plugins/plugin_adapters.h"

namespace choral::plugins {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The plug-in tells how many there were when its worker stops.
[[maybe_unused]] const int kLevel = setenv("CHORAL_LOG_LEVEL", "info", 1);

struct Told {
  std::vector<RequestOutput> outputs;
  int64_t preemptions = 0;
  long long captured = 0, launched = 0;
  std::string log;
};

class CudaGraphsTest : public OnCuda {
 protected:
  // `faults`: what breaks once the model is loaded.
  static Told run(const EngineOptions& options, std::vector<Request> requests, const std::string& faults = "") {
    Told told;
    ::testing::internal::CaptureStderr();
    {
      const auto llm = load(options);
      if (!faults.empty()) break_emulated_cuda(faults);
      told.outputs = llm->generate(std::move(requests));
      told.preemptions = engine::stats_at_rest(*llm).preemptions;
    }
    told.log = ::testing::internal::GetCapturedStderr();
    const size_t count = told.log.rfind(": ", told.log.find(" CUDA graphs were captured"));
    EXPECT_NE(count, std::string::npos) << told.log;
    if (count == std::string::npos) return told;
    EXPECT_EQ(std::sscanf(told.log.c_str() + count, ": %lld CUDA graphs were captured, and launched %lld times", &told.captured,
                          &told.launched),
              2);
    return told;
  }
  static Told run_without(const EngineOptions& options, std::vector<Request> requests) {
    const Variable off("CHORAL_CUDA_GRAPHS", "0");
    auto told = run(options, std::move(requests));
    EXPECT_THAT(told.log, HasSubstr("CUDA graphs are off (CHORAL_CUDA_GRAPHS=0)"));
    EXPECT_EQ(told.captured + told.launched, 0);
    return told;
  }
  static void expect_same_bits(const Told& a, const Told& b) {
    ASSERT_EQ(a.outputs.size(), b.outputs.size());
    for (size_t i = 0; i < a.outputs.size(); ++i) engine::expect_same_bits(a.outputs[i], b.outputs[i]);
  }
  static Request request(int length, int tokens) {
    return engine::greedy_request(engine::random_prompt(length, static_cast<uint32_t>(length)), tokens);
  }
};

class CudaGraphFaultsTest : public CudaGraphsTest {
 protected:
  void SetUp() override {
    if (cuda_device() != "cuda_emulated") GTEST_SKIP() << "a device is as it is";
  }
};

// The first step of decoding is launched, the second captured; all that follow are graphs, though the sequence takes two blocks
// more: nothing moves when its table grows.
TEST_F(CudaGraphsTest, EveryStepOfASteadyDecodeIsOne) {
  const auto wish = options(cuda_device());
  constexpr int kTokens = 70, kDecodeSteps = kTokens - 1;
  const auto told = run(wish, {request(3, kTokens)});
  EXPECT_GT(told.captured, 0) << told.log;
  EXPECT_EQ(told.launched, told.captured * (kDecodeSteps - 2)) << told.log;
  expect_same_bits(told, run_without(wish, {request(3, kTokens)}));
}

TEST_F(CudaGraphsTest, BatchesThatChangeAndAdaptersKeepTheirBits) {
  const choral::testing::TempDir folder;
  auto wish = options(cuda_device());
  wish.adapters = {{"dora", write_dora(folder)},
                   {"norms", write_norms(folder, "norms", {"input_layernorm", "q_norm"})},
                   {"every", write_pairs(folder, "every", 5, {kQuery, kKey, kValue, kOutput, kGate, kUp, kDown})}};
  wish.max_num_seqs = 3;  // the fourth begins when another ends
  const auto requests = [] {
    std::vector<Request> all{request(3, 8), request(40, 24), request(9, 16), request(5, 12), request(33, 10), request(6, 20)};
    all[1].adapters = {{"dora"}};
    all[2].adapters = {{"norms"}};
    all[4].adapters = {{"dora"}};
    all[5].adapters = {{"every"}};
    return all;
  };
  const auto told = run(wish, requests());
  EXPECT_GT(told.launched, 0) << told.log;
  expect_same_bits(told, run_without(wish, requests()));
}

TEST_F(CudaGraphsTest, PreemptionKeepsBits) {
  auto wish = options(cuda_device());
  wish.max_model_len = 96;
  wish.enable_prefix_caching = false;
  const auto probe = load(wish)->info();
  wish.kv_cache_bytes = probe.kv_cache_bytes / (probe.kv_cache_tokens / 32) * 7;  // blocks
  const auto requests = [] { return std::vector<Request>{request(30, 60), request(28, 60), request(20, 60)}; };
  const auto told = run(wish, requests());
  EXPECT_GT(told.preemptions, 0);
  EXPECT_GT(told.launched, 0) << told.log;
  expect_same_bits(told, run_without(wish, requests()));
}

TEST_F(CudaGraphFaultsTest, WithoutMemoryForOneTheStepsGoOnAndALineSaysSo) {
  const auto wish = options(cuda_device());
  Told told;
  {
    const Variable faults("CHORAL_CUDA_EMULATION", "fail=cudaGraphInstantiate,at=2,with=2");
    told = run(wish, {request(3, 10)});
  }
  EXPECT_EQ(told.captured, 1);
  EXPECT_THAT(told.log, HasSubstr("CUDA graphs are off from here on: capture: out of memory (cudaErrorMemoryAllocation)"));
  expect_same_bits(told, run_without(wish, {request(3, 10)}));
}

TEST_F(CudaGraphFaultsTest, ADeviceThatIsLostInOneEndsItsRequestsAndSaysWhy) {
  const auto told = run(options(cuda_device()), {request(3, 80)}, "fail=launch,at=1000,with=700");
  EXPECT_GT(told.launched, 0) << told.log;
  EXPECT_EQ(told.outputs.front().status.code(), Code::kUnavailable) << told.outputs.front().status.to_string();
  EXPECT_THAT(told.outputs.front().status.message(), HasSubstr("an illegal memory access was encountered"));
  EXPECT_THAT(told.log, Not(HasSubstr("CUDA graphs are off")));
}

}  // namespace
}  // namespace choral::plugins
