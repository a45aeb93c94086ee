#include "engine/options_check.h"

#include "engine/sampling_check.h"
#include "engine/speculation/speculation_choice.h"
#include "lora/lora_config.h"

namespace choral::engine {
namespace {

constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostRanks = 64;
constexpr int64_t kMostSeqs = 1 << 16;
constexpr int64_t kMostStepTokens = 1 << 20;  // buffers of a step are made for so many rows
constexpr int64_t kMostCpuLoras = 1'000'000;
constexpr int64_t kMostGenerations = 1024;  // of each name
constexpr int64_t kMostWaiting = 1 << 20;
constexpr int64_t kMostPositions = 1 << 24;
constexpr int64_t kMostBytes = int64_t{1} << 50;  // … and tokens that wait

// `zero`: what 0 stands for; null when it is no value.
Status in_range(std::string_view flag, int64_t value, int64_t most, const char* zero = nullptr) {
  if (value >= (zero != nullptr ? 0 : 1) && value <= most) return {};
  return invalid_argument("{} {}: give 1 to {}{}{}", flag, value, most, zero != nullptr ? ", or 0 for " : "",
                          zero != nullptr ? zero : "");
}

Status check_seconds(std::string_view flag, double value) {
  if (value >= 0 && value <= kMostTimeoutS) return {};  // false for NaN
  return invalid_argument("{} {}: give 0 (none) to {} seconds", flag, value, kMostTimeoutS);
}

}  // namespace

Status check_options(const EngineOptions& o) {
  CHORAL_RETURN_IF_ERROR(in_range("--threads", o.threads, kMostThreads, "one per physical core"));
  CHORAL_RETURN_IF_ERROR(parse_numa(o.numa).status().while_("--numa"));
  CHORAL_RETURN_IF_ERROR(in_range("--tensor-parallel-size", o.tensor_parallel_size, kMostRanks));
  CHORAL_RETURN_IF_ERROR(check_seconds("--rank-timeout", o.rank_timeout_s));
  CHORAL_RETURN_IF_ERROR(in_range("--max-model-len", o.max_model_len, kMostPositions, "the model's own"));
  CHORAL_RETURN_IF_ERROR(in_range("--max-num-seqs", o.max_num_seqs, kMostSeqs));
  CHORAL_RETURN_IF_ERROR(in_range("--max-num-batched-tokens", o.max_num_batched_tokens, kMostStepTokens));
  CHORAL_RETURN_IF_ERROR(in_range("max_waiting", o.max_waiting, kMostWaiting));
  CHORAL_RETURN_IF_ERROR(in_range("kv_event_batches", o.kv_event_batches, kMostWaiting, "none are kept"));
  CHORAL_RETURN_IF_ERROR(in_range("max_waiting_tokens", o.max_waiting_tokens, kMostBytes, "no limit"));
  CHORAL_RETURN_IF_ERROR(speculation_choice(o).status());
  CHORAL_RETURN_IF_ERROR(in_range("traffic_memory_bytes", o.traffic_memory_bytes, kMostBytes, "nothing is kept"));
  CHORAL_RETURN_IF_ERROR(in_range("--num-speculative-tokens", o.most_guessed, SpeculationStats::kMostGuessed));
  CHORAL_RETURN_IF_ERROR(check_seconds("request_timeout_s", o.request_timeout_s));
  CHORAL_RETURN_IF_ERROR(check_seconds("queue_timeout_s", o.queue_timeout_s));
  CHORAL_RETURN_IF_ERROR(in_range("--max-loras", o.max_loras, kMostSeqs, "no limit"));
  CHORAL_RETURN_IF_ERROR(
      in_range("--lora-extra-vocab-size", o.lora_extra_vocab_size, lora::LoRAConfig::kMostExtraTokens, "none"));
  CHORAL_RETURN_IF_ERROR(in_range("--max-cpu-loras", o.max_cpu_loras, kMostCpuLoras, "as many as have room"));
  CHORAL_RETURN_IF_ERROR(in_range("--kv-cache-memory", o.kv_cache_bytes, kMostBytes, "as much as free memory allows"));
  CHORAL_RETURN_IF_ERROR(in_range("--adapter-memory", o.adapter_memory_bytes, kMostBytes, "a quarter of what is free"));
  CHORAL_RETURN_IF_ERROR(in_range("--adapter-generations", o.generations_alive, kMostGenerations));
  return {};
}

}  // namespace choral::engine
