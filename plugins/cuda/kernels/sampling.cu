// A token of each row of logits. A block for each row, which goes over the row as often as what is asked for needs: once for a
// greedy choice, and without a sort for any other.
//
// Counts and weights are integers: a sum of them is exact, so that neither the order of atomics nor the cut of a row among warps
// can change a bit. Logits are compared as integers too (key_of), so that ties are ties.
#include "reduce.h"
#include "rows.h"

namespace choral_cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
constexpr int kLoads = 4;    // that a thread has under way
constexpr int kBins = 2048;  // what a pass of select() tells apart
constexpr float kGreedyTemperature = 1e-5f;
// The weight of the most likely token. Sums of kMostSampledLogits of them have 63 bits; a token that is 2⁴² times less likely
// than that one is never drawn.
constexpr float kWholeWeight = 0x1p42f;

using Integer = unsigned long long;  // as atomics and shuffles have them

struct Shared {
  uint32_t bin_low[kBins], bin_high[kBins];  // a 64-bit sum each, in the atomics that shared memory has
  Integer parts[kWarps];
  double sums[kWarps];
  Integer top[kMostTopLogprobs];
  int found;
  float raw;
};

// Ascending with the float; -0 is 0. NaNs lie beyond the infinities, on either side.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(uint32_t key) { return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key); }
constexpr uint32_t kLeastKey = 0x00800000u;     // of the least finite float
constexpr uint32_t kInfiniteKey = 0xff800000u;  // of +inf
constexpr uint32_t kNanKey = 0xffffffffu;       // what a NaN of a row that is sampled counts as

// Larger for more likely tokens, of equals for the lower id.
__device__ __forceinline__ Integer rank_of(uint32_t key, int32_t token) {
  return Integer{key} << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
__device__ __forceinline__ uint32_t key_of_rank(Integer rank) { return static_cast<uint32_t>(rank >> 32); }
__device__ __forceinline__ int32_t token_of_rank(Integer rank) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(rank));
}

// A row as it is looked at: with what its mask removes, or without a mask.
struct LogitRow {
  const float* logits;
  int32_t size;
  const uint32_t* mask = nullptr;
  int32_t mask_words = 0;

  __device__ __forceinline__ bool has(int32_t token) const {
    if (mask_words == 0) return true;
    return token / 32 < mask_words && (mask[token / 32] >> token % 32 & 1u) != 0;
  }
  __device__ __forceinline__ float operator[](int32_t token) const { return has(token) ? logits[token] : -INFINITY; }
};

// body(token, logit) for each of the row's tokens, all threads together.
template <class Body>
__device__ __forceinline__ void for_tokens(const LogitRow& row, Body body) {
  for (int32_t first = static_cast<int32_t>(threadIdx.x); first < row.size; first += kLoads * kThreads) {
    float logits[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int32_t token = first + i * kThreads;
      logits[i] = token < row.size ? row[token] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int32_t token = first + i * kThreads;
      if (token < row.size) body(token, logits[i]);
    }
  }
}

// Of all threads' values, the same for each. `combine` takes two, in any order.
template <class T, class Combine>
__device__ T block_reduce(T value, T* parts, Combine combine) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  __syncthreads();  // nobody reads the parts of before
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
  __syncthreads();
  T all = parts[0];
  for (int warp = 1; warp < kWarps; ++warp) all = combine(all, parts[warp]);
  return all;
}

// Where the sum of weights, in order of their index, first exceeds `wanted`; index -1: nowhere.
struct Located {
  int32_t index;
  Integer before;  // the sum up to there
};

// weight(i) for i < end is at least 0; wanted(total) says for which sum to look. Warps share the range, then the part of it that
// has the place, and so on.
template <class Weight, class Wanted>
__device__ Located locate(Shared& shared, int32_t end, Weight weight, Wanted wanted_of) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kWarp, lane = static_cast<int32_t>(threadIdx.x) % kWarp;
  int32_t begin = 0;
  Integer before = 0, wanted = 0;
  for (bool first = true; first || end - begin > 1; first = false) {
    const int32_t part = ceil_div(end - begin, kWarps);
    const int32_t from = begin + warp * part, to = from + part < end ? from + part : end;
    Integer sum = 0;
#pragma unroll 4
    for (int32_t i = from + lane; i < to; i += kWarp) sum += weight(i);
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    __syncthreads();
    if (lane == 0) shared.parts[warp] = sum;
    __syncthreads();
    if (first) {
      Integer total = 0;
      for (int i = 0; i < kWarps; ++i) total += shared.parts[i];
      wanted = wanted_of(total);
    }
    int has = 0;
    while (has < kWarps && before + shared.parts[has] <= wanted) before += shared.parts[has++];
    if (has == kWarps) return {-1, before};
    begin += has * part;
    end = begin + part < end ? begin + part : end;
  }
  return {begin, before};
}

__device__ __forceinline__ Integer bin_of(const Shared& shared, int32_t bin) {
  return Integer{shared.bin_high[bin]} << 32 | shared.bin_low[bin];
}

__device__ __forceinline__ void add_to_bin(Shared& shared, uint32_t bin, Integer weight) {
  const auto low = static_cast<uint32_t>(weight);
  const uint32_t before = atomicAdd(&shared.bin_low[bin], low);
  const uint32_t high = static_cast<uint32_t>(weight >> 32) + (before + low < before ? 1u : 0u);
  if (high != 0) atomicAdd(&shared.bin_high[bin], high);
}

// The most likely tokens up to some weight: all whose logit has a larger key than `key`, whose weights are `above` together, and
// some of those that have it. Key 0: all tokens have less weight than was asked for.
struct Selected {
  uint32_t key;
  Integer above;
};

// weight(logit) is the same for equal logits. Of keys in [low, high] those of a bin are told apart in the next pass; three passes
// do for all.
template <class Weight>
__device__ Selected select(Shared& shared, const LogitRow& row, uint32_t low, uint32_t high, Integer target, Weight weight) {
  Integer above = 0;
  for (;;) {
    int shift = 0;
    while ((high - low) >> shift >= kBins) ++shift;
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) shared.bin_low[bin] = shared.bin_high[bin] = 0;
    __syncthreads();
    for_tokens(row, [&](int32_t, float logit) {
      const uint32_t key = key_of(logit);
      if (key >= low && key <= high) add_to_bin(shared, (high - key) >> shift, weight(logit));
    });
    __syncthreads();
    const Located bin = locate(
        shared, kBins, [&](int32_t i) { return bin_of(shared, i); }, [&](Integer) { return target - above - 1; });
    if (bin.index < 0) return {0, above + bin.before};
    above += bin.before;
    high -= static_cast<uint32_t>(bin.index) << shift;
    const uint32_t width = (1u << shift) - 1;
    if (high - low > width) low = high - width;
    if (shift == 0) return {high, above};
  }
}

// Tokens that are left: those with a larger key than `least`, and those that have it up to `last`.
struct Kept {
  uint32_t least = kLeastKey;
  int32_t last = INT32_MAX;
  __device__ __forceinline__ bool has(uint32_t key, int32_t token) const {
    return key > least || (key == least && token <= last);
  }
};

// The token of which, with those of lower ids, `count` have the key.
__device__ int32_t nth_with_key(Shared& shared, const LogitRow& row, uint32_t key, Integer count) {
  const auto has_key = [&](int32_t i) { return Integer{key_of(row[i]) == key ? 1u : 0u}; };
  return locate(shared, row.size, has_key, [&](Integer) { return count - 1; }).index;
}

struct Weigh {
  float max, scale;
  __device__ __forceinline__ Integer operator()(float logit) const {
    return static_cast<Integer>(expf((logit - max) * scale) * kWholeWeight);
  }
};

struct Sum {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Larger {
  __device__ __forceinline__ Integer operator()(Integer a, Integer b) const { return a > b ? a : b; }
};

__device__ void keep_top_p(Shared& shared, const LogitRow& row, float top_p, uint32_t most, const Weigh& weigh, Kept& kept) {
  Integer sum = 0;
  for_tokens(row, [&](int32_t, float logit) {
    if (key_of(logit) >= kept.least) sum += weigh(logit);
  });
  const Integer total = block_reduce(sum, shared.parts, Sum());
  const double wanted = ceil(static_cast<double>(top_p) * static_cast<double>(total));
  const Integer target = wanted < 1.0 ? 1 : wanted < static_cast<double>(total) ? static_cast<Integer>(wanted) : total;
  const Selected selected = select(shared, row, kept.least, most, target, weigh);
  const Integer each = weigh(value_of(selected.key));
  kept = {selected.key, nth_with_key(shared, row, selected.key, (target - selected.above + each - 1) / each)};
}

__device__ int32_t draw(Shared& shared, const LogitRow& row, const choral_sampling_row& rule, uint32_t most) {
  const Weigh weigh{value_of(most), 1.0f / rule.temperature};
  Kept kept;
  if (rule.min_p > 0.0f) {
    const uint32_t least = key_of(weigh.max + logf(fminf(rule.min_p, 1.0f)) * rule.temperature);
    if (least > kept.least) kept.least = least;
  }
  if (rule.top_k > 0 && rule.top_k < row.size) {
    const auto one = [](float) { return Integer{1}; };
    const Selected kth = select(shared, row, kept.least, most, static_cast<Integer>(rule.top_k), one);
    if (kth.key != 0) kept.least = kth.key;
  }
  if (rule.top_p < 1.0f) keep_top_p(shared, row, rule.top_p, most, weigh, kept);
  const auto weight = [&](int32_t i) {
    const float logit = row[i];
    return kept.has(key_of(logit), i) ? weigh(logit) : Integer{0};
  };
  return locate(shared, row.size, weight,
                [&](Integer total) {
                  const auto wanted = static_cast<Integer>(rule.uniform * static_cast<double>(total));
                  return wanted < total ? wanted : total - 1;  // the product may be rounded up
                })
      .index;
}

// The largest rank of the row; a NaN is larger than any number.
__device__ Integer best_of(Shared& shared, const LogitRow& row) {
  Integer best = 0;
  for_tokens(row, [&](int32_t token, float logit) {
    const Integer rank = rank_of(logit == logit ? key_of(logit) : kNanKey, token);
    if (rank > best) best = rank;
  });
  return block_reduce(best, shared.parts, Larger());
}

// ---- Log-probabilities.

__device__ double log_sum_exp(Shared& shared, const LogitRow& row) {
  const uint32_t most = key_of_rank(best_of(shared, row));
  if (most == kNanKey) return NAN;
  const float max = value_of(most);
  if (most == kInfiniteKey || most < kLeastKey) return max;
  double sum = 0.0;
  for_tokens(row, [&](int32_t, float logit) { sum += expf(logit - max); });
  return max + log(block_reduce(sum, shared.sums, Sum()));
}

__device__ __forceinline__ float logprob_of(float logit, double log_sum) { return static_cast<float>(logit - log_sum); }

// The most likely tokens, sorted by counting those before each; how many there were.
__device__ int place_most_likely(Shared& shared, const LogitRow& row, double log_sum, int count, choral_token_logprob* top) {
  const auto one = [](float) { return Integer{1}; };
  const auto wanted = static_cast<Integer>(count);
  const Selected nth = select(shared, row, kLeastKey, kInfiniteKey, wanted, one);
  Kept kept;
  if (nth.key != 0) kept = {nth.key, nth_with_key(shared, row, nth.key, wanted - nth.above)};
  if (threadIdx.x == 0) shared.found = 0;
  __syncthreads();
  for_tokens(row, [&](int32_t token, float logit) {
    const uint32_t key = key_of(logit);
    if (key <= kInfiniteKey && kept.has(key, token)) shared.top[atomicAdd(&shared.found, 1)] = rank_of(key, token);
  });
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < shared.found; i += kThreads) {
    const Integer rank = shared.top[i];
    int place = 0;
    for (int other = 0; other < shared.found; ++other) place += shared.top[other] > rank ? 1 : 0;
    top[place] = {token_of_rank(rank), logprob_of(value_of(key_of_rank(rank)), log_sum)};
  }
  return shared.found;
}

__device__ int place_top(Shared& shared, const choral_sample_args& a, const choral_sampling_row& rule, const LogitRow& row,
                         double log_sum) {
  choral_token_logprob* top = a.top + rule.top_begin;
  if (rule.top_count == 0) return 0;
  if (rule.named_begin < 0) return place_most_likely(shared, row, log_sum, rule.top_count, top);
  for (int i = static_cast<int>(threadIdx.x); i < rule.top_count; i += kThreads) {
    const int32_t token = a.named[rule.named_begin + i];
    top[i] = {token, token >= 0 && token < row.size ? logprob_of(row[token], log_sum) : -INFINITY};
  }
  return rule.top_count;
}

// ---- A row.

__device__ bool is_within(int64_t begin, int64_t count, int64_t size) {
  return begin >= 0 && count >= 0 && begin + count <= size;
}

__device__ bool is_sound(const choral_sample_args& a, const choral_sampling_row& rule) {
  const bool names = rule.wants_logprob != 0 && rule.named_begin >= 0;
  return rule.vocab >= 1 && rule.vocab <= a.logits.cols && is_within(rule.edit_begin, rule.edit_count, a.edit_count) &&
         is_within(rule.mask_begin, rule.mask_words, a.mask_word_count) &&
         (rule.wants_logprob == 0 || is_within(rule.top_begin, rule.top_count, a.top_count)) &&
         (!names || is_within(rule.named_begin, rule.top_count, a.named_count)) && rule.top_count <= kMostTopLogprobs;
}

__device__ float edited(float logit, const choral_logit_edit& edit) {
  if (edit.bias == -INFINITY) return -INFINITY;
  logit += edit.bias;
  logit = logit > 0.0f ? logit / edit.repetition : logit * edit.repetition;
  logit -= edit.frequency;
  return logit - edit.presence;
}

// In place; what the logits were goes to `raws`, at each edit's place.
__device__ void edit_row(const choral_sample_args& a, const choral_sampling_row& rule, float* logits, float* raws,
                         int32_t* fault) {
  for (int i = rule.edit_begin + static_cast<int>(threadIdx.x); i < rule.edit_begin + rule.edit_count; i += kThreads) {
    const choral_logit_edit edit = a.edits[i];
    if (edit.token < 0 || edit.token >= rule.vocab) {
      report(fault, kSampledBeyond);
      continue;
    }
    raws[i] = logits[edit.token];
    logits[edit.token] = edited(raws[i], edit);
  }
  __syncthreads();
}

// The token's logit before edits.
__device__ float raw_logit(Shared& shared, const choral_sample_args& a, const choral_sampling_row& rule, const float* logits,
                           const float* raws, int32_t token) {
  if (threadIdx.x == 0) shared.raw = logits[token];
  __syncthreads();
  for (int i = rule.edit_begin + static_cast<int>(threadIdx.x); i < rule.edit_begin + rule.edit_count; i += kThreads) {
    if (a.edits[i].token == token) shared.raw = raws[i];
  }
  __syncthreads();
  return shared.raw;
}

__global__ void __launch_bounds__(kThreads) sample_kernel(choral_sample_args a, Rows rows, float* raws, int32_t* fault) {
  wait_for_earlier_kernels();
  Shared& shared = *shared_memory<Shared>();
  const choral_sampling_row rule = a.rows[blockIdx.x];
  float* logits = rows[blockIdx.x];
  choral_sampled_row out{-1, CHORAL_TOKEN_CHOSEN, 0.0f, 0};
  if (!is_sound(a, rule)) {
    report(fault, kSampledBeyond);
    return;
  }
  double log_sum = 0.0;
  if (rule.wants_logprob != 0) {
    const LogitRow raw{logits, rule.vocab};
    log_sum = log_sum_exp(shared, raw);
    out.top_count = place_top(shared, a, rule, raw, log_sum);
    __syncthreads();
  }
  if (rule.edit_count > 0) edit_row(a, rule, logits, raws, fault);
  const LogitRow row{logits, rule.vocab, a.mask_words + rule.mask_begin, rule.mask_words};
  const Integer best = best_of(shared, row);
  const uint32_t most = key_of_rank(best);
  if (most >= kInfiniteKey) {
    out.outcome = most == kInfiniteKey ? CHORAL_LOGITS_INFINITE : CHORAL_LOGITS_NAN;
  } else if (most < kLeastKey) {
    out.outcome = CHORAL_NO_TOKEN_LEFT;
  } else {
    out.token = rule.temperature < kGreedyTemperature ? token_of_rank(best) : draw(shared, row, rule, most);
    if (rule.wants_logprob != 0) out.logprob = logprob_of(raw_logit(shared, a, rule, logits, raws, out.token), log_sum);
  }
  if (threadIdx.x == 0) a.sampled[blockIdx.x] = out;
}

}  // namespace

size_t sample_scratch_bytes(const choral_sample_args& a) { return static_cast<size_t>(a.edit_count) * sizeof(float); }

cudaError_t sample(const Launch& launch, const choral_sample_args& a) {
  if (a.logits.rows == 0) return cudaSuccess;
  const GridShape shape{dim3(static_cast<unsigned>(a.logits.rows)), dim3(kThreads), sizeof(Shared)};
  return launch_kernel(sample_kernel, shape, launch, a, Rows(a.logits), static_cast<float*>(launch.scratch), launch.fault);
}

}  // namespace choral_cuda
