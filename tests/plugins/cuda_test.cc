// The engine on the CUDA plug-in, which is compiled on an emulation of CUDA in the host's memory (plugins/cuda/emulation): its
// answers, and what becomes of machines and moments in which CUDA fails.
#include "plugins/cuda_device.h"
#include "plugins/host_copies.h"
#include "plugins/plugin_adapters.h"

namespace choral::plugins {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

using CudaTest = OnCuda;
using CudaFaultsTest = OnEmulatedCuda;

using Faults = Variable;
constexpr const char* kFaults = "CHORAL_CUDA_EMULATION";

// Every operator that it brings, those of adapters and the fused ones too, means what the host's does.
TEST_F(CudaTest, ServesWhatItBrings) {
  const auto llm = load(options(cuda_device()));
  EXPECT_THAT(llm->info().notes, AllOf(Contains("worker: cuda"), Contains(HasSubstr("adapters: up to")),
                                       Not(Contains(HasSubstr("served by the CPU")))));
  expect_equal(answers(*llm), cpu_answers());
  EXPECT_THAT(
      llm->device_notes(),
      Contains(HasSubstr(
          "fused operators loaded: add_rms_norm, add_rms_norm_bias, qk_norm_rope, rope_write_kv, grouped_matmul, lora_shrink, "
          "lora_expand")));
}

class CudaAdaptersTest : public CudaTest {
 protected:
  CudaAdaptersTest() {
    wish_ = options(cuda_device());
    for (const int64_t rank : {2, 11}) wish_.adapters.push_back({fmt::format("rank{}", rank), write_of_rank(folder_, rank)});
    wish_.enable_prefix_caching = false;
  }
  static Request ask(std::vector<AdapterUse> voice) {
    auto request = engine::greedy_request(engine::random_prompt(9, 4), 6);
    request.adapters = std::move(voice);
    return request;
  }
  std::vector<RequestOutput> wanted(const std::vector<Request>& requests) {
    auto on_host = wish_;
    on_host.device = "cpu";
    return load(on_host)->generate(requests);
  }

  const testing::TempDir folder_;
  EngineOptions wish_;
};

// Of the second two the first makes the stacks larger, and the slot of the one before is moved there, as soon as somebody waits
// for the device; the other one drives it out, and is written there by another thread.
TEST_F(CudaAdaptersTest, ASlotThatIsMovedAndGivenAwayHoldsWhoCameLast) {
  wish_.max_num_seqs = 2;
  const auto llm = load(wish_);
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("written beside the steps")));
  const std::vector<Request> first{ask({{"rank2"}})}, then{ask({{"rank11"}}), ask({{"rank11", 0.5F}})};
  expect_equal(llm->generate(first), wanted(first));
  expect_equal(llm->generate(then), wanted(then));
}

// More voices than slots, and some that nobody waits for any more.
TEST_F(CudaAdaptersTest, VoicesThatComeAndGoKeepTheirAnswers) {
  wish_.max_num_seqs = 3;
  const auto llm = load(wish_);
  std::vector<Request> requests{ask({})};
  for (const float factor : {0.25F, 0.5F, 1.0F, 2.0F}) {
    requests.push_back(ask({{"rank2", factor}}));
    requests.push_back(ask({{"rank11", factor}}));
  }
  const auto answers = wanted(requests);
  for (int round = 0; round < 2; ++round) {
    (*llm->submit(ask({{"rank11", 3.0F + static_cast<float>(round)}})))->cancel();
    expect_equal(llm->generate(requests), answers);
  }
  EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("on the host"))));
}

class CudaFamiliesTest : public CudaTest, public ::testing::WithParamInterface<const char*> {};

// Whatever a family is made of: no operator of it is the CPU's.
TEST_P(CudaFamiliesTest, AnswerAsOnTheCpu) {
  auto strict = options(cuda_device(), GetParam());
  strict.strict = true;
  const auto llm = load(strict);
  expect_equal(answers(*llm), cpu_answers(GetParam()));
  EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("device lost"))));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaFamiliesTest,
                         ::testing::Values("tiny-llama3", "tiny-phi3", "tiny-gemma2", "tiny-gemma3", "tiny-qwen3moe",
                                           "tiny-olmoe", "tiny-deepseek-v2", "tiny-deepseek-v3", "tiny-gpt-oss"),
                         [](const auto& tested) {
                           std::string name = std::string(tested.param).substr(5);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Every float and weight-only product, those of latent attention too, by the form that was asked for.
TEST_F(CudaTest, XIn16BitsIsOnePlane) {
  for (const char* model : {"tiny-llama3", "tiny-deepseek-v2"}) {
    for (const char* scheme : {"auto", "w8a16", "fp8"}) {
      auto strict = options(cuda_device(), model);
      strict.strict = true;
      strict.quantization = scheme;
      strict.activations = "16bit";
      const auto llm = load(strict);
      for (const auto& form : llm->info().layers) EXPECT_THAT(form.kernel, HasSubstr("x rounded to one plane")) << form.layers;
    }
  }
}

TEST_F(CudaTest, RowsInOnePlaneDoNotDependOnTheirNeighbours) {
  auto wish = options(cuda_device());
  wish.activations = "16bit";
  const auto llm = load(wish);
  for (const auto& output : answers(*llm)) {
    auto alone = engine::greedy_request(output.prompt_token_ids, 8);
    alone.cache_salt = "alone";
    engine::expect_same_bits(llm->generate({alone}).front(), output);
  }
}

TEST_F(CudaTest, RowsOfExpertsStayOnTheDevice) {
  EXPECT_EQ(copies_of_an_answer(*load(options(cuda_device(), "tiny-qwen3moe"))), least_copies(3));
  EXPECT_EQ(copies_of_an_answer(*load(options(cuda_device(), "tiny-gpt-oss"))), least_copies(2));
}

TEST_F(CudaTest, ARowDoesNotDependOnItsNeighbours) {
  const auto llm = load(options(cuda_device()));
  for (const auto& output : answers(*llm)) {
    auto alone = engine::greedy_request(output.prompt_token_ids, 8);
    alone.cache_salt = "alone";
    engine::expect_same_bits(llm->generate({alone}).front(), output);
  }
}

// Of every projection and of some, of two ranks: as on the CPU, and each alone as beside the others.
TEST_F(CudaTest, AdaptersOfSeveralProjectionsAreComputedTogether) {
  const choral::testing::TempDir folder;
  const auto with_adapters = [&](const std::string& device) {
    auto wish = options(device);
    wish.adapters = {{"every", write_pairs(folder, "every", 5, {kQuery, kKey, kValue, kOutput, kGate, kUp, kDown})},
                     {"some", write_pairs(folder, "some", 11, {kKey, kValue, kUp, kDown})}};
    wish.enable_prefix_caching = false;
    return wish;
  };
  const auto requests = [] {
    std::vector<Request> all;
    for (const auto& voice : std::vector<std::vector<AdapterUse>>{{}, {{"every"}}, {{"some"}}, {{"some"}, {"every", 0.5F}}}) {
      all.push_back(engine::greedy_request(engine::random_prompt(9, static_cast<uint32_t>(all.size()) + 1), 8));
      all.back().adapters = voice;
    }
    return all;
  };
  const auto llm = load(with_adapters(cuda_device()));
  const auto together = llm->generate(requests());
  expect_equal(together, load(with_adapters("cpu"))->generate(requests()));
  EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("on the host"))));
  for (size_t i = 0; i < together.size(); ++i) {
    engine::expect_same_bits(llm->generate({requests()[i]}).front(), together[i]);
  }
}

// The device's memory decides, not the host's.
TEST_F(CudaFaultsTest, TheCacheIsAsLargeAsTheDeviceHasRoomFor) {
  const auto roomy = load(options(cuda_device()))->info().kv_cache_bytes;
  const Faults small(kFaults, "memory_mib=24");
  const auto llm = load(options(cuda_device()));
  EXPECT_LT(llm->info().kv_cache_bytes, int64_t{24} << 20);
  EXPECT_LT(llm->info().kv_cache_bytes, roomy);
  expect_equal(answers(*llm), cpu_answers());
}

struct Machine {
  const char* name;
  const char* faults;
  const char* reason;
};

class CudaUnusableTest : public OnEmulatedCuda, public ::testing::WithParamInterface<Machine> {};

// By name: refused. By "auto": the CPU serves, and the notes say why.
TEST_P(CudaUnusableTest, IsRefusedByNameAndGivesWayOtherwise) {
  const Faults faults(kFaults, GetParam().faults);
  EXPECT_THAT(LLM::load(options(cuda_device())).status().message(), HasSubstr(GetParam().reason));
  const Variable allowed("CHORAL_PLUGINS", cuda_device());
  const auto llm = load(options("auto"));
  EXPECT_THAT(llm->info().notes, AllOf(Contains(HasSubstr(GetParam().reason)), Contains(HasSubstr("device: cpu"))));
  expect_equal(answers(*llm), cpu_answers());
}

INSTANTIATE_TEST_SUITE_P(Machines, CudaUnusableTest,
                         ::testing::Values(Machine{"no_driver", "driver=0", "no NVIDIA driver: libcuda.so.1"},
                                           Machine{"old_driver", "driver=12040", "is too old: it knows CUDA 12.4"},
                                           Machine{"no_device", "devices=0", "there is a driver and no device"},
                                           Machine{"old_device", "capability=75", "has compute capability 7.5"},
                                           Machine{"fails_to_open", "fail=cudaMemPoolCreate,with=3", "a pool of memory"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Linked with no CUDA runtime at all, as when a file of it is missing.
TEST_F(CudaFaultsTest, AMissingSymbolIsNamed) {
  const Variable allowed("CHORAL_PLUGINS", "cuda_without_runtime");
  EXPECT_THAT(LLM::load(options("cuda_without_runtime")).status().message(),
              AllOf(HasSubstr("it can't be loaded"), HasSubstr("undefined symbol: ")));
  expect_equal(answers(*load(options("auto"))), cpu_answers());
}

TEST_F(CudaFaultsTest, TooLittleMemoryForTheModelIsAnAnswer) {
  const Faults faults(kFaults, "memory_mib=1");
  const auto refused = LLM::load(options(cuda_device())).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.to_string();
}

// Memory that ends while the model loads: what was asked for and what is free.
TEST_F(CudaFaultsTest, MemoryThatEndsWhileLoadingIsAnAnswer) {
  const Faults faults(kFaults, "fail=cudaMallocFromPoolAsync,at=85,with=2");
  const auto refused = LLM::load(options(cuda_device())).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.to_string();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("no room for "), HasSubstr(" are free")));
}

// The last allocations of the first step are operators' scratch; those before hold operators to their vectors.
TEST_F(CudaFaultsTest, AnOperatorWithoutMemoryEndsItsStepAlone) {
  const auto llm_without = [](int64_t allocation) {
    auto llm = load(options(cuda_device()));
    break_emulated_cuda("fail=cudaMallocFromPoolAsync,with=2,at=" + std::to_string(allocation));
    return llm;
  };
  const auto step = [](LLM& llm) { return llm.generate({engine::greedy_request(std::vector<int32_t>(480, 7), 1)}).front(); };
  constexpr int64_t kNever = 1000000;
  const auto whole = llm_without(kNever);
  ASSERT_TRUE(step(*whole).status.ok());
  for (int64_t last = break_emulated_cuda(""), allocation = last; allocation > std::max<int64_t>(last - 5, 0); --allocation) {
    const auto llm = llm_without(allocation);
    const auto output = step(*llm);
    if (output.status.ok()) continue;
    EXPECT_EQ(output.status.code(), Code::kResourceExhausted) << output.status.to_string();
    EXPECT_THAT(output.status.message(), AllOf(HasSubstr("matmul"), HasSubstr("no room for ")));
    expect_equal(answers(*llm), cpu_answers());
    EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("served by the CPU"))));
    return;
  }
  ADD_FAILURE() << "no allocation was one of an operator's";
}

TEST_F(CudaFaultsTest, AKernelThatFailsEndsItsRequestsAndSaysWhy) {
  const auto llm = load(options(cuda_device()));
  break_emulated_cuda("fail=launch,at=1000,with=700");
  for (const auto& output : answers(*llm, 64)) {
    EXPECT_EQ(output.status.code(), Code::kUnavailable) << output.status.to_string();
    EXPECT_THAT(output.status.message(), HasSubstr("an illegal memory access was encountered"));
  }
  EXPECT_THAT(llm->device_notes(), Contains(HasSubstr("device lost")));
  EXPECT_EQ(answers(*llm).front().status.code(), Code::kUnavailable) << "the engine still stands, and refuses in the same words";
}

}  // namespace
}  // namespace choral::plugins
