// What is told of the memory before a load is what the load then has.
#include "engine/memory_plan.h"

#include <gmock/gmock.h>

#include <array>

#include "engine/adapters/adapter_files_test.h"
#include "models/registry.h"
#include "platform/cpu_context_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
constexpr std::array<layers::KvShape, 4> kLayers = {{{2, 64, 64}, {2, 64, 64}, {2, 64, 64}, {2, 64, 64}}};
constexpr int64_t kPositions = 8192;

Result<MemoryPlan> plan(int64_t weights, const MachineMemory& machine, int64_t kv = 0, int64_t adapters = 0) {
  return plan_memory(kLayers, kPositions, DType::kF32,
                     {.weight_bytes = weights, .adapter_bytes = adapters, .kv = {.requested_bytes = kv, .max_num_seqs = 64}},
                     machine);
}

TEST(MemoryPlan, SharesOutWhatTheWeightsLeave) {
  const auto made = plan(kGiB, {.free_bytes = 5 * kGiB, .total_bytes = 8 * kGiB});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->adapter_bytes, kGiB);
  EXPECT_LE(made->kv.bytes, kGiB);
  EXPECT_GT(made->kv.bytes, kGiB - kMiB);
  EXPECT_THAT(made->warning, IsEmpty());
  EXPECT_EQ(made->text(), "weights 1.0 GiB, KV cache 1.0 GiB, adapters up to 1.0 GiB, of 5.0 GiB free");
}

// What is not taken yet of a draft model, its keys and values, is not left for others; its weights are gone already.
TEST(MemoryPlan, ADraftModelTakesItsPart) {
  const auto made =
      plan_memory(kLayers, kPositions, DType::kF32,
                  {.weight_bytes = kGiB, .kv = {.max_num_seqs = 64}, .draft = {.bytes = 3 * kGiB, .taken_bytes = 2 * kGiB}},
                  {.free_bytes = 6 * kGiB, .total_bytes = 16 * kGiB});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->adapter_bytes, kGiB);
  EXPECT_LE(made->kv.bytes, kGiB);
  EXPECT_EQ(made->text(), "draft model 3.0 GiB, weights 1.0 GiB, KV cache 1.0 GiB, adapters up to 1.0 GiB, of 6.0 GiB free");
}

// DeepSeek-V2-Lite's: 512 + 64 elements a token, for keys and values of all heads.
TEST(MemoryPlan, ALatentIsCountedOnce) {
  const layers::KvShape latent{.kv_heads = 1, .key_dim = 576, .value_dim = 512, .values_in_keys = true};
  const auto made =
      plan_memory({&latent, 1}, kPositions, DType::kF32, {.kv = {.max_num_seqs = 1}}, {.free_bytes = kGiB, .total_bytes = kGiB});
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ(made->kv.blocks * 32, kPositions);
  EXPECT_LE(static_cast<double>(made->kv.bytes), 1.05 * 576 * 4 * kPositions);
}

// Of layers that keep one: a place for each running sequence and for prefixes, as long as a quarter of what is free has room.
TEST(MemoryPlan, StatesComeBesidesTheCache) {
  const auto states = [](int64_t bytes) {
    return plan_memory(kLayers, kPositions, DType::kF32,
                       {.weight_bytes = kGiB,
                        .kv = {.requested_bytes = 64 * kMiB, .max_num_seqs = 64, .state_bytes = bytes, .keeps_prefixes = true}},
                       {.free_bytes = 5 * kGiB, .total_bytes = 8 * kGiB});
  };
  const auto all = states(kMiB);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->kv.shape().state_slots, 128);
  EXPECT_LE(all->kv.bytes, 64 * kMiB);
  EXPECT_THAT(all->text(), HasSubstr("states 128.0 MiB"));
  const auto fewer = states(100 * kMiB);
  EXPECT_EQ(fewer->kv.shape().state_slots, 10);
  EXPECT_THAT(fewer->kv.notes, ::testing::Contains(HasSubstr("at most 10 requests run at a time instead of --max-num-seqs 64")));
  EXPECT_EQ(states(5 * kGiB)->kv.shape().state_slots, 1);
  EXPECT_THAT(states(5 * kGiB)->warning, HasSubstr("more than there is"));
  EXPECT_EQ(plan(kGiB, {.free_bytes = 5 * kGiB, .total_bytes = 8 * kGiB})->kv.shape().state_slots, 0);
}

TEST(MemoryPlan, AdaptersGetEightGigabytesAtMost) {
  EXPECT_EQ(plan(kGiB, {.free_bytes = 100 * kGiB, .total_bytes = 100 * kGiB})->adapter_bytes, 8 * kGiB);
}

TEST(MemoryPlan, RefusesWeightsThatDoNotFit) {
  for (const int64_t kv : {int64_t{0}, 64 * kMiB}) {  // more than there is at all
    const auto refused = plan(9 * kGiB, {.free_bytes = 5 * kGiB, .total_bytes = 8 * kGiB}, kv);
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(refused.status().message(), HasSubstr("the weights take 9.0 GiB, and this machine has 8.0 GiB in all"));
  }
  const auto refused = plan(6 * kGiB, {.free_bytes = 5 * kGiB, .total_bytes = 8 * kGiB});
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("--kv-cache-memory"));
  const auto insisted = plan(6 * kGiB, {.free_bytes = 5 * kGiB, .total_bytes = 8 * kGiB}, 64 * kMiB);
  ASSERT_TRUE(insisted.ok());
  EXPECT_THAT(insisted->warning, HasSubstr("more than there is"));
}

TEST(MemoryPlan, NamesTheLimitThatLeavesLessThanTheMachineHas) {
  const MachineMemory limited{.free_bytes = 5 * kGiB,
                              .total_bytes = 6 * kGiB,
                              .free_limit = "RLIMIT_AS (ulimit -v)",
                              .total_limit = "memory.max of cgroup /a",
                              .cure = "raise it so"};
  EXPECT_THAT(plan(kGiB, limited)->text(), ::testing::EndsWith("of 5.0 GiB free (RLIMIT_AS (ulimit -v))"));
  EXPECT_THAT(limit_note(limited), HasSubstr("RLIMIT_AS (ulimit -v) leaves 5.0 GiB, less than the machine has free"));
  EXPECT_THAT(limit_note(limited), HasSubstr("raise it so"));
  EXPECT_THAT(limit_note({.free_bytes = kGiB, .total_bytes = kGiB}), IsEmpty());
  const auto too_much = plan(7 * kGiB, limited).status().message(), too_much_now = plan(5 * kGiB, limited).status().message();
  EXPECT_THAT(too_much, HasSubstr("memory.max of cgroup /a allows 6.0 GiB in all; raise it"));
  EXPECT_THAT(too_much_now, HasSubstr("RLIMIT_AS (ulimit -v) leaves 5.0 GiB: raise it so"));
  EXPECT_THAT(too_much_now, HasSubstr("--kv-cache-memory"));
}

TEST(MemoryPlan, ADeviceThatHasNoOtherMemoryTakesItsShareOfTheMachines) {
  const MachineMemory machine{.free_bytes = 5 * kGiB, .total_bytes = 8 * kGiB};
  EXPECT_EQ(plan(kGiB, machine.within(6 * kGiB, 16 * kGiB, "gpu"))->text(), plan(kGiB, machine)->text());
  const MachineMemory share = machine.within(3 * kGiB, 4 * kGiB, "gpu");
  EXPECT_THAT(plan(kGiB, share)->text(), ::testing::EndsWith("of 3.0 GiB free (the device gpu)"));
  EXPECT_THAT(plan(3 * kGiB, share).status().message(), HasSubstr("the device gpu leaves 3.0 GiB"));
  EXPECT_THAT(plan(5 * kGiB, share).status().message(), HasSubstr("the device gpu allows 4.0 GiB in all"));
}

// The weights and the cache are the device's, adapters' files the host's.
TEST(MemoryPlan, ADevicesMemoryIsSharedOutByItself) {
  const MachineMemory host{.free_bytes = 4 * kGiB, .total_bytes = 8 * kGiB};
  const auto on_device = [&](int64_t weights, MachineMemory memory, bool keeps_kv, int64_t kv = 0) {
    return plan_memory(kLayers, kPositions, DType::kF32,
                       {.weight_bytes = weights,
                        .kv = {.requested_bytes = kv, .max_num_seqs = 4096},
                        .device = {.has_weights = true, .keeps_kv = keeps_kv, .memory = memory}},
                       host);
  };
  const MachineMemory device{.free_bytes = 70 * kGiB, .total_bytes = 80 * kGiB};
  const auto made = on_device(30 * kGiB, device, true);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_LE(made->kv.bytes, 30 * kGiB);
  EXPECT_GT(made->kv.bytes, 30 * kGiB - kMiB);
  EXPECT_EQ(made->adapter_bytes, kGiB);
  EXPECT_THAT(made->warning, IsEmpty());
  EXPECT_EQ(made->text(),
            "on the device weights 30.0 GiB, KV cache 30.0 GiB, of 70.0 GiB free; here adapters up to 1.0 GiB, of "
            "4.0 GiB free");
  EXPECT_LE(on_device(30 * kGiB, device, false)->kv.bytes, kGiB) << "a cache of the host's goes by the host's memory";
  EXPECT_LE(on_device(30 * kGiB, MachineMemory{}, true)->kv.bytes, kGiB) << "as that of a device that does not say";
  EXPECT_THAT(on_device(30 * kGiB, device, true, 50 * kGiB)->warning, HasSubstr("lower --kv-cache-memory"));
  EXPECT_THAT(on_device(90 * kGiB, device, true).status().message(),
              HasSubstr("the weights take 90.0 GiB, and the device has 80.0 GiB in all"));
  EXPECT_THAT(on_device(75 * kGiB, device, true).status().message(), HasSubstr("70.0 GiB of the device's memory is free"));
}

TEST(MemoryPlan, WarnsOfSizesThatWereAskedFor) {
  const MachineMemory machine{.free_bytes = 4 * kGiB, .total_bytes = 8 * kGiB};
  EXPECT_THAT(plan(kGiB, machine, 512 * kMiB, 2 * kGiB)->warning, IsEmpty());
  EXPECT_THAT(plan(kGiB, machine, 512 * kMiB, 3 * kGiB)->warning, HasSubstr("lower --kv-cache-memory or --adapter-memory"));
  EXPECT_THAT(plan(kGiB, machine, 512 * kMiB, int64_t{1} << 50)->warning, HasSubstr("--adapter-memory"));
}

TEST(MemoryPlan, IsToldBeforeAWeightIsPackedAndKept) {
  for (const char* quantization : {"auto", "w8a8_dynamic", "w8a16", "w4a16", "fp8"}) {
    EngineOptions options = tiny_options();
    options.quantization = quantization;
    std::vector<std::string> phases, told;
    options.on_progress = [&](const LoadProgress& p) {
      if (phases.empty() || phases.back() != p.phase) phases.emplace_back(p.phase);
      if (p.phase == "memory") told.emplace_back(p.detail);
    };
    auto worker = std::move(*Worker::make(options));
    const auto files = open_model_files(options);
    auto checkpoint = io::Checkpoint::open(files->location);
    CheckpointWeights weights(*checkpoint, {});
    ASSERT_TRUE(worker->load(files->config, weights, options).ok());
    EXPECT_EQ(phases, (std::vector<std::string>{"memory", "pack"}));
    EXPECT_EQ(told, std::vector{worker->memory().text()});
    ASSERT_TRUE(worker->initialize_cache(options).ok());
    EXPECT_EQ(worker->kv_bytes(), worker->memory().kv.bytes);
    // The tiny model's rows are short: padding of panels and headers of groups weigh more than in any real one.
    const auto packed = static_cast<double>(worker->loaded().weight_bytes);
    const auto expected = static_cast<double>(worker->memory().weight_bytes);
    EXPECT_NEAR(expected / packed, 1, 0.15) << quantization;
  }
}

TEST(MemoryPlan, ATextOfAModelThatSeesLaterTokensIsOneStep) {
  platform::testing::CpuContext cpu;
  const auto quant_config = *quant::make_quant_config({}, "auto");
  const platform::CustomOpConfig custom_ops;
  const platform::LayerOverrides overrides;
  const auto positions = [&](bool sees_later, int step) {
    const auto config = io::ConfigMap::parse_json(fmt::format(R"({{"architectures": ["LlamaModel"], "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
        "max_position_embeddings": 256, "is_causal": {}}})",
                                                              !sees_later),
                                                  "config.json");
    const auto model = *models::make_model(*config, {cpu.session(), *quant_config, custom_ops, overrides, 0});
    EngineOptions options;
    options.max_num_batched_tokens = step;
    const auto made = plan_model_memory(sizes_of(*model, kMiB, options), options, cpu.session(), DType::kF32);
    EXPECT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made->kv.max_model_len, text_positions(*model, options));
    return text_positions(*model, options);
  };
  EXPECT_EQ(positions(true, 96), 96);
  EXPECT_EQ(positions(true, 1024), 256);
  EXPECT_EQ(positions(false, 96), 256);
}

}  // namespace
}  // namespace choral::engine
