/* The arithmetic of one row, shared by operators and their fused forms so that both give the same bits. Pure functions of their
 * arguments; a row knows nothing of its neighbours. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "choral/plugin.h"
#include "numbers.h"

#define REF_BLOCK_TOKENS 32
#define REF_MAX_HEAD 1024

/* Row i of a matrix that was mapped, whose elements are floats. */
static inline float* ref_row(const choral_matrix* matrix, int64_t i) { return (float*)matrix->data + i * matrix->stride; }

/* y = x·rsqrt(mean(x²) + eps)·weight. `factor` is 1 but in a fault build. y may be x. */
static inline void ref_norm_row(const float* x, const float* weight, int64_t size, float eps, float factor, float* y) {
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) sum += (double)x[i] * x[i];
  const float scale = (float)(1.0 / sqrt(sum / (double)size + (double)eps)) * factor;
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] * scale * weight[i];
}

/* Turns each head of a row by its position. */
static inline void ref_rotate_row(const choral_rotary_table* table, int64_t position, float* row, int64_t cols) {
  const int64_t half = table->rotary_dim / 2;
  const float* cosines = table->cos_sin + position * table->rotary_dim;
  const float* sines = cosines + half;
  for (int64_t head = 0; head < cols; head += table->head_dim) {
    for (int64_t i = 0; i < half; ++i) {
      float* first = row + head + (table->interleaved ? 2 * i : i);
      float* second = row + head + (table->interleaved ? 2 * i + 1 : half + i);
      const float a = *first, b = *second;
      *first = a * cosines[i] - b * sines[i];
      *second = b * cosines[i] + a * sines[i];
    }
  }
}

/* The cache in this device's own order: a token's heads lie together.
 *   keys [block][token][kv_head][head_dim], values [block][token][kv_head][v_head_dim rounded up to 16] */
static inline int64_t ref_value_stride(const choral_kv_cache* cache) { return (cache->v_head_dim + 15) / 16 * 16; }

static inline unsigned char* ref_key_of(const choral_kv_cache* cache, int64_t slot, int64_t kv_head) {
  return (unsigned char*)cache->keys + (slot * cache->kv_heads + kv_head) * cache->head_dim * ref_float_bytes(cache->dtype);
}

static inline unsigned char* ref_value_of(const choral_kv_cache* cache, int64_t slot, int64_t kv_head) {
  if (cache->values == NULL) return ref_key_of(cache, slot, kv_head);
  return (unsigned char*)cache->values +
         (slot * cache->kv_heads + kv_head) * ref_value_stride(cache) * ref_float_bytes(cache->dtype);
}

/* One token's k and v go to `slot`. 0 when there is no such slot; negative slots are for padding and skipped. */
static inline int ref_store_kv(const choral_kv_cache* cache, int64_t slot, const float* k, const float* v) {
  if (slot < 0) return 1;
  if (slot >= cache->blocks * REF_BLOCK_TOKENS) return 0;
  for (int64_t h = 0; h < cache->kv_heads; ++h) {
    ref_narrow(cache->dtype, k + h * cache->head_dim, cache->head_dim, ref_key_of(cache, slot, h));
    if (cache->values == NULL) continue;
    ref_narrow(cache->dtype, v + h * cache->v_head_dim, cache->v_head_dim, ref_value_of(cache, slot, h));
  }
  return 1;
}
