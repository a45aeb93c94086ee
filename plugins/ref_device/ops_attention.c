/* The paged cache and attention over it. One query row and head at a time: keys in ascending order of position, an online
 * softmax, nothing that depends on chunks or neighbours. */
#include "device.h"
#include "mapping.h"
#include "ops.h"
#include "queue.h"
#include "row_math.h"

static void run_write_kv(const void* p, ref_failure* failure) {
  const choral_write_kv_args* a = p;
  for (int64_t i = 0; i < a->k.rows; ++i) {
    const float* value = a->cache.values == NULL ? NULL : ref_row(&a->v, i);
    if (!ref_store_kv(&a->cache, a->slots[i], ref_row(&a->k, i), value)) {
      ref_fail(failure, CHORAL_INVALID_ARGUMENT, "write_kv: slot %lld is beyond %lld blocks", (long long)a->slots[i],
               (long long)a->cache.blocks);
      return;
    }
  }
}

choral_status* ref_write_kv(choral_device* device, choral_stream* stream, const void* args) {
  choral_write_kv_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  a.cache = ref_map_cache(device, "write_kv cache", a.cache, &error);
  const int values_fit =
      error == NULL &&
      (a.cache.values == NULL ? a.v.cols == 0 : a.k.rows == a.v.rows && a.v.cols == a.cache.kv_heads * a.cache.v_head_dim);
  ref_expect(values_fit && a.k.cols == a.cache.kv_heads * a.cache.head_dim, "write_kv", "k and v do not fit the cache", &error);
  a.k = ref_map_matrix(device, "write_kv k", a.k, &error);
  a.v = ref_map_matrix(device, "write_kv v", a.v, &error);
  a.slots = ref_map_array(device, "write_kv slots", a.slots, a.k.rows, sizeof *a.slots, &error);
  return error != NULL ? error : ref_submit(device, stream, run_write_kv, &a, sizeof a);
}

/* Attention of one head of one query at `position`. 0 when a block that it needs is not there. */
static int attend(const choral_attention_args* a, const int32_t* blocks, int64_t position, int64_t head, const float* q,
                  float* out) {
  const choral_kv_cache* cache = &a->cache;
  const int64_t kv_head = head / (a->heads / cache->kv_heads), v_dim = cache->v_head_dim;
  const int64_t first = a->sliding_window > 0 && position >= a->sliding_window ? position - a->sliding_window + 1 : 0;
  float element[REF_MAX_HEAD], result[REF_MAX_HEAD] = {0};
  const float* sinks = a->sinks.data;
  float most = sinks == NULL ? 0.0f : sinks[head], sum = sinks == NULL ? 0.0f : 1.0f;
  for (int64_t p = first; p <= position; ++p) {
    const int64_t block = blocks[p / REF_BLOCK_TOKENS];
    if (block < 0 || block >= cache->blocks) return 0;
    const int64_t slot = block * REF_BLOCK_TOKENS + p % REF_BLOCK_TOKENS;
    ref_widen(cache->dtype, ref_key_of(cache, slot, kv_head), cache->head_dim, element);
    float score = 0.0f;
    for (int64_t i = 0; i < cache->head_dim; ++i) score += q[i] * element[i];
    score *= a->scale;
    if (a->softcap > 0.0f) score = a->softcap * tanhf(score / a->softcap);
    const int none_yet = p == first && sinks == NULL;
    if (none_yet || score > most) { /* what was summed so far is measured by the new largest score */
      const float shrink = none_yet ? 0.0f : expf(most - score);
      sum *= shrink;
      for (int64_t i = 0; i < v_dim; ++i) result[i] *= shrink;
      most = score;
    }
    const float weight = expf(score - most);
    sum += weight;
    ref_widen(cache->dtype, ref_value_of(cache, slot, kv_head), v_dim, element);
    for (int64_t i = 0; i < v_dim; ++i) result[i] += weight * element[i];
  }
  for (int64_t i = 0; i < v_dim; ++i) out[i] = result[i] / sum;
  return 1;
}

static void run_attention(const void* p, ref_failure* failure) {
  const choral_attention_args* a = p;
  for (int64_t s = 0; s < a->sequence_count; ++s) {
    const choral_sequence* q = &a->sequences[s];
    const int64_t tokens = (int64_t)q->context_tokens + q->query_count;
    const int64_t blocks = (tokens + REF_BLOCK_TOKENS - 1) / REF_BLOCK_TOKENS;
    if (q->query_begin < 0 || q->query_count < 0 || (int64_t)q->query_begin + q->query_count > a->q.rows ||
        q->context_tokens < 0 || q->first_block < 0 || q->first_block + blocks > a->block_id_count) {
      ref_fail(failure, CHORAL_INVALID_ARGUMENT, "paged_attention: sequence %lld has rows or blocks that are not there",
               (long long)s);
      return;
    }
    for (int64_t i = 0; i < q->query_count; ++i) {
      const int64_t row = q->query_begin + i;
      for (int64_t head = 0; head < a->heads; ++head) {
        if (!attend(a, a->block_ids + q->first_block, q->context_tokens + i, head, ref_row(&a->q, row) + head * a->cache.head_dim,
                    ref_row(&a->out, row) + head * a->cache.v_head_dim)) {
          ref_fail(failure, CHORAL_INVALID_ARGUMENT, "paged_attention: sequence %lld names a block beyond %lld", (long long)s,
                   (long long)a->cache.blocks);
          return;
        }
      }
    }
  }
}

choral_status* ref_paged_attention(choral_device* device, choral_stream* stream, const void* args) {
  choral_attention_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  const char* name = "paged_attention";
  if (a.sliding_window > 0 && ref_passes_over(name, "sliding_window", &error)) a.sliding_window = 0;
  if (a.softcap > 0.0f && ref_passes_over(name, "softcap", &error)) a.softcap = 0.0f;
  if (a.cache.v_head_dim != a.cache.head_dim) ref_passes_over(name, "v_head_dim", &error);
  if (a.cache.values == NULL) ref_passes_over(name, "values_in_keys", &error);
  if (a.sinks.data != NULL && ref_passes_over(name, "sinks", &error)) a.sinks.data = NULL;
  a.cache = ref_map_cache(device, "paged_attention cache", a.cache, &error);
  ref_expect(error == NULL && a.heads > 0 && a.heads % a.cache.kv_heads == 0, name, "kv_heads does not divide heads", &error);
  ref_expect(error == NULL && a.q.rows == a.out.rows && a.q.cols == a.heads * a.cache.head_dim &&
                 a.out.cols == a.heads * a.cache.v_head_dim,
             name, "q and out do not fit the heads", &error);
  a.q = ref_map_matrix(device, "paged_attention q", a.q, &error);
  a.out = ref_map_matrix(device, "paged_attention out", a.out, &error);
  if (a.sinks.data != NULL) a.sinks = ref_map_vector(device, "paged_attention sinks", a.sinks, a.heads, &error);
  a.sequences = ref_map_array(device, "paged_attention sequences", a.sequences, a.sequence_count, sizeof *a.sequences, &error);
  a.block_ids = ref_map_array(device, "paged_attention blocks", a.block_ids, a.block_id_count, sizeof *a.block_ids, &error);
  return error != NULL ? error : ref_submit(device, stream, run_attention, &a, sizeof a);
}
