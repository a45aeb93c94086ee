// The paged KV memory of a model: arrays of keys and of values, each serving one layer of each group (cache/kv_groups.h), bound
// to the model's layers. A page costs memory only once it is written. The worker makes the pool once; the scheduler deals in
// block numbers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cache/kv_groups.h"
#include "models/model.h"
#include "platform/platform.h"

namespace choral::engine {

// What a KV pool may take and what it must hold.
struct KvBudget {
  int64_t requested_bytes = 0;  // --kv-cache-memory; 0 = decide here
  int max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t max_model_len = 0;     // wanted; 0 = the model's
  int64_t default_bytes = 0;     // where none was requested
  int64_t state_bytes = 0;       // what a sequence keeps besides, in layers that have no keys
  bool keeps_prefixes = false;   // states behind prefixes are kept for others
  int64_t most_state_bytes = 0;  // of all sequences
};

struct KvPlan {
  int32_t blocks = 0;
  cache::KvGroups groups;
  int64_t bytes = 0;
  int64_t max_model_len = 0;  // what one sequence can have
  int32_t state_slots = 0;    // sequences that have a place for their states; 0: no layer keeps any
  int64_t state_bytes = 0;    // of all of them
  std::vector<std::string> notes;

  cache::KvPoolShape shape() const;
};

// Where layers of these shapes have their blocks, for sequences of at most `longest` tokens.
cache::KvGroups kv_groups_of(std::span<const layers::KvShape> layers, DType dtype, int64_t longest);

// At most what max_num_seqs full-length sequences could use. A model length that was not asked for shrinks to fit, with a note;
// one that was asked for and does not fit is an error.
Result<KvPlan> plan_kv_pool(std::span<const layers::KvShape> layers, int64_t model_positions, DType dtype,
                            const KvBudget& budget);

class KvPool {
 public:
  static Result<KvPool> make(platform::Session& session, models::Model& model, DType dtype, const KvPlan& plan);

  int64_t size_bytes() const;

 private:
  std::vector<Tensor> tensors_;  // keys and values of each array
};

// --kv-cache-dtype: auto | float32 | bfloat16 | float16 | int8.
Result<DType> parse_kv_dtype(std::string_view name);

}  // namespace choral::engine
