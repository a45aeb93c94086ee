// A server's days on the CUDA plug-in: adapters of every kind come and go, requests mix them, some are left
// before they end. The device's memory must be flat: a longer load takes no more than a shorter one.
#include <cstdio>
#include <random>

#include "plugins/cuda_device.h"
#include "plugins/plugin_adapters.h"

namespace choral::plugins {
namespace {

// The plug-in tells when its worker stops how much memory was in use.
[[maybe_unused]] const int kLevel = setenv("CHORAL_LOG_LEVEL", "info", 1);

class CudaMixedLoadTest : public OnCuda {
 protected:
  static constexpr int kAdapters = 5;

  // Loaded anew in each round.
  std::vector<AdapterSpec> adapters_of(int round) {
    std::vector<AdapterSpec> specs;
    for (const int64_t rank : {1, 4, 19}) {
      specs.push_back({fmt::format("rank{}-{}", rank, round),
                       write_pairs(folder_, fmt::format("rank{}", rank), rank, {kQuery, kValue, kDown})});
    }
    specs.push_back({fmt::format("dora-{}", round), write_dora(folder_)});
    specs.push_back({fmt::format("norms-{}", round), write_norms(folder_, "norms", {"input_layernorm"})});
    return specs;
  }

  void go_through(LLM& llm, int round, std::mt19937& random) {
    const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
    const auto prompt = [&](int length) { return engine::random_prompt(length, static_cast<uint32_t>(random())); };
    const auto specs = adapters_of(round);
    for (const auto& spec : specs) EXPECT_TRUE(llm.load_adapter(spec).ok());
    std::vector<Request> requests;
    for (int i = 0; i < 2 * kAdapters; ++i) {
      auto request = engine::greedy_request(prompt(1 + below(30)), 1 + below(6));
      if (i < kAdapters) request.adapters = {{specs[static_cast<size_t>(i)].name}};
      if (below(3) == 0) request.sampling.temperature = 0.8F, request.sampling.seed = random();
      requests.push_back(std::move(request));
    }
    auto left = llm.submit(engine::greedy_request(prompt(30), 400));
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    for (const auto& output : llm.generate(std::move(requests))) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
    (*left)->cancel();
    for (const auto& spec : specs) EXPECT_TRUE(llm.unload_adapter(spec.name).ok());
    engine::stats_at_rest(llm);
  }

  uint64_t most_bytes_of(int rounds) {
    auto wish = options(cuda_device());
    wish.kv_cache_bytes = int64_t{8} << 20;
    ::testing::internal::CaptureStderr();
    {
      const auto llm = load(wish);
      std::mt19937 random(7);
      for (int round = 0; round < rounds; ++round) go_through(*llm, round, random);
      EXPECT_THAT(llm->device_notes(), ::testing::Not(::testing::Contains(::testing::HasSubstr("on the host"))));
    }
    const std::string log = ::testing::internal::GetCapturedStderr();
    unsigned long long most = 0;
    const size_t at = log.rfind("was in use (");
    EXPECT_NE(at, std::string::npos) << log;
    EXPECT_EQ(at == std::string::npos ? 0 : std::sscanf(log.c_str() + at, "was in use (%llu bytes)", &most), 1) << log;
    return most;
  }

 private:
  const choral::testing::TempDir folder_;
};

// What steps take for their scratch follows from how requests meet, which differs by some hundred KiB. An adapter's slot that is
// not given back would be 200 KiB in each round.
TEST_F(CudaMixedLoadTest, TheDevicesMemoryIsFlat) {
  constexpr uint64_t kScratch = uint64_t{1} << 20;
  const uint64_t shorter = most_bytes_of(2);
  EXPECT_GT(shorter, uint64_t{8} << 20) << "the cache alone";
  EXPECT_LE(most_bytes_of(10), shorter + kScratch);
}

}  // namespace
}  // namespace choral::plugins
