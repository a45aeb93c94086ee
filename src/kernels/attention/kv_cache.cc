#include "kernels/attention/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "kernels/attention/kv_quant.h"
#include "kernels/gemm/gemm_float_pack.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

float load(const float* p) { return *p; }
float load(const BFloat16* p) { return to_float(*p); }
float load(const Float16* p) { return to_float(*p); }
float load(const int8_t* p) { return *p; }

// Calls f with a null pointer of the element type.
template <class F>
void with_element(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32: return f(static_cast<float*>(nullptr));
    case DType::kBF16: return f(static_cast<BFloat16*>(nullptr));
    case DType::kF16: return f(static_cast<Float16*>(nullptr));
    case DType::kI8: return f(static_cast<int8_t*>(nullptr));
    default: CHORAL_CHECK(false, "a KV cache holds f32, bf16, f16 or int8");
  }
}

void convert(CpuLevel level, const float* x, int64_t count, BFloat16* to) { pack_kernels(level).to_bfloat16(x, count, to); }
void convert(CpuLevel level, const float* x, int64_t count, Float16* to) { pack_kernels(level).to_float16(x, count, to); }

// Element i goes to to[i · stride]; gives the scale, which only int8 has.
template <class T>
float write_elements(CpuLevel level, const float* x, int64_t count, T* to, int64_t stride) {
  if constexpr (std::is_same_v<T, int8_t>) {
    return quantise_kv(level)(x, count, to, stride);
  } else if constexpr (std::is_same_v<T, float>) {
    for (int64_t i = 0; i < count; ++i) to[i * stride] = x[i];
  } else if (stride == 1) {
    convert(level, x, count, to);
  } else {
    write_apart(count, to, stride, [&](int64_t begin, int64_t size, T* piece) { convert(level, x + begin, size, piece); });
  }
  return 1.0f;
}

template <class T>
void write_token_head(CpuLevel level, const KvCacheView& cache, int64_t slot, int64_t head, const float* key,
                      const float* value) {
  CHORAL_DCHECK(slot >= 0 && slot < cache.num_blocks * kKvBlockTokens, "a slot lies in the cache");
  const int64_t offset = slot % kKvBlockTokens;
  const auto block = kv_head_block<T>(cache, slot / kKvBlockTokens, head);
  const int64_t in_key = block.values == nullptr ? cache.v_head_dim : 0;  // of the value
  const auto write_key = [&](int64_t begin, int64_t end) {
    return write_elements(level, key + begin, end - begin, block.keys + begin * kKvBlockTokens + offset, kKvBlockTokens);
  };
  const float value_scale =
      block.values == nullptr
          ? write_key(0, in_key)
          : write_elements(level, value, cache.v_head_dim, block.values + offset * kv_value_stride(cache.v_head_dim), 1);
  const float key_scale = write_key(in_key, cache.head_dim);
  if (block.key_scales == nullptr) return;
  block.key_scales[offset] = key_scale;
  block.value_scales[offset] = value_scale;
}

// One KV head of some tokens: the 32 stores of a key's column stay in L1 while the tokens of a block are written.
template <class T>
void write_head(CpuLevel level, const KvCacheView& cache, MatrixView<const float> k, MatrixView<const float> v,
                std::span<const int64_t> slots, int64_t begin, int64_t end, int64_t head) {
  for (int64_t t = begin; t < end; ++t) {
    if (slots[t] < 0) continue;
    const float* value = cache.values_in_keys() ? nullptr : v.row(t) + head * cache.v_head_dim;
    write_token_head<T>(level, cache, slots[t], head, k.row(t) + head * cache.head_dim, value);
  }
}

}  // namespace

void write_kv(const Context& ctx, const KvCacheView& cache, MatrixView<const float> k, MatrixView<const float> v,
              std::span<const int64_t> slots) {
  const auto tokens = std::ssize(slots);
  const bool values_fit = cache.values_in_keys() ? v.cols == 0 : v.rows >= tokens && v.cols == cache.kv_heads * cache.v_head_dim;
  CHORAL_CHECK(k.rows >= tokens && k.cols == cache.kv_heads * cache.head_dim && values_fit, "k, v and slots fit the cache");
  constexpr int64_t kTokens = kKvBlockTokens;  // of one piece of work
  const int64_t chunks = ceil_div(tokens, kTokens);
  with_element(cache.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    // A few rows are done before another thread has woken.
    const int64_t grain = pieces_per_task(kLightTask, std::min(tokens, kTokens) * cache.head_dim);
    ctx.pool.parallel_for(chunks * cache.kv_heads, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i / cache.kv_heads * kTokens;
        write_head<T>(ctx.level, cache, k, v, slots, first, std::min(first + kTokens, tokens), i % cache.kv_heads);
      }
    });
  });
}

void write_kv_head(CpuLevel level, const KvCacheView& cache, int64_t slot, int64_t head, const float* k, const float* v) {
  CHORAL_DCHECK(!cache.values_in_keys(), "the cache has values of their own");
  with_element(cache.dtype, [&](auto* element) {
    write_token_head<std::remove_pointer_t<decltype(element)>>(level, cache, slot, head, k, v);
  });
}

void read_kv(const KvCacheView& cache, int64_t slot, std::span<float> k, std::span<float> v) {
  CHORAL_CHECK(slot >= 0 && slot < cache.num_blocks * kKvBlockTokens && std::ssize(k) == cache.kv_heads * cache.head_dim &&
                   std::ssize(v) == cache.kv_heads * cache.v_head_dim,
               "slot, k and v fit the cache");
  with_element(cache.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const int64_t offset = slot % kKvBlockTokens, v_stride = kv_value_stride(cache.v_head_dim);
    for (int64_t head = 0; head < cache.kv_heads; ++head) {
      const auto block = kv_head_block<T>(cache, slot / kKvBlockTokens, head);
      const bool latent = block.values == nullptr, scaled = block.key_scales != nullptr;
      const float key_scale = scaled ? block.key_scales[offset] : 1.0f, value_scale = scaled ? block.value_scales[offset] : 1.0f;
      float *key = k.data() + head * cache.head_dim, *value = v.data() + head * cache.v_head_dim;
      for (int64_t i = 0; i < cache.head_dim; ++i) {
        key[i] = load(block.keys + i * kKvBlockTokens + offset) * (latent && i < cache.v_head_dim ? value_scale : key_scale);
      }
      for (int64_t i = 0; i < cache.v_head_dim; ++i) {
        value[i] = latent ? key[i] : load(block.values + offset * v_stride + i) * value_scale;
      }
    }
  });
}

}  // namespace choral::kernels
