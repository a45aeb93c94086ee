// The scheduler's limits and options, and the check that they fit together. Plain values.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace choral::sched {

enum class Policy : uint8_t { kFcfs, kPriority };

struct SchedulerConfig {
  int32_t max_num_seqs = 64;              // requests running at a time
  int32_t max_num_batched_tokens = 2048;  // tokens of one step; at least max_num_seqs
  int32_t max_model_len = 4096;           // prompt and outputs of one request
  bool enable_chunked_prefill = true;     // off: a prompt runs in one step, so max_num_batched_tokens >= max_model_len
  bool enable_prefix_caching = true;
  Policy policy = Policy::kFcfs;
  int32_t max_waiting = 1024;         // queue length; more are refused
  int32_t max_prefill_chunk = 0;      // most prefill tokens of one request in a step (0 = the whole budget)
  bool fair_adapters = true;          // among equally urgent waiting requests, the adapter served least goes first
  int32_t promote_after_steps = 512;  // without progress for so long, one at a time goes before everybody
  int32_t most_overtaking = 256;      // later requests that take adapters before one that waits for room; then it is waited for
  int32_t max_loras = 0;              // distinct adapters running at a time, a mix counting each of its own (0 = no limit)
  int32_t state_tokens = 1024;        // of a long text between two states that others find, where layers keep one
  int32_t watermark_blocks = -1;      // blocks kept free for running requests when admitting (-1 = 1 % of all)
};

Status validate(const SchedulerConfig& config);

}  // namespace choral::sched
