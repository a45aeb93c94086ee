#include "sched/scheduler_config.h"

namespace choral::sched {
namespace {

constexpr int32_t kMostSeqs = 1 << 16;
constexpr int32_t kMostWaiting = 1 << 20;
constexpr int32_t kMostTokens = 1 << 28;

Status in_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument("{} is {}, it must be from {} to {}", name, value, low, high);
}

}  // namespace

Status validate(const SchedulerConfig& config) {
  CHORAL_RETURN_IF_ERROR(in_range("max_num_seqs", config.max_num_seqs, 1, kMostSeqs));
  CHORAL_RETURN_IF_ERROR(in_range("max_num_batched_tokens", config.max_num_batched_tokens, 1, kMostTokens));
  CHORAL_RETURN_IF_ERROR(in_range("max_model_len", config.max_model_len, 2, kMostTokens));
  CHORAL_RETURN_IF_ERROR(in_range("max_waiting", config.max_waiting, 1, kMostWaiting));
  CHORAL_RETURN_IF_ERROR(in_range("max_prefill_chunk", config.max_prefill_chunk, 0, kMostTokens));
  CHORAL_RETURN_IF_ERROR(in_range("promote_after_steps", config.promote_after_steps, 1, kMostTokens));
  CHORAL_RETURN_IF_ERROR(in_range("most_overtaking", config.most_overtaking, 0, kMostTokens));
  CHORAL_RETURN_IF_ERROR(in_range("max_loras", config.max_loras, 0, kMostSeqs));
  CHORAL_RETURN_IF_ERROR(in_range("watermark_blocks", config.watermark_blocks, -1, kMostTokens));
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    return invalid_argument(
        "max_num_batched_tokens ({}) is below max_num_seqs ({}): not every running request could get its next token; raise it or "
        "lower max_num_seqs",
        config.max_num_batched_tokens, config.max_num_seqs);
  }
  if (!config.enable_chunked_prefill && config.max_num_batched_tokens < config.max_model_len) {
    return invalid_argument(
        "without chunked prefill a prompt must fit into one step, but max_num_batched_tokens ({}) is below max_model_len ({}); "
        "raise it or enable chunked prefill",
        config.max_num_batched_tokens, config.max_model_len);
  }
  if (!config.enable_chunked_prefill && config.max_prefill_chunk > 0) {
    return invalid_argument("max_prefill_chunk ({}) needs chunked prefill", config.max_prefill_chunk);
  }
  return {};
}

}  // namespace choral::sched
