/* libchoral_ref_fused.so: operators that do in one go what several do otherwise, with the same bits as a result. With
 * -DREF_FUSED_OTHER_BITS it is libchoral_ref_fused_other_bits.so, whose norms round elsewhere than the parts', as fused kernels
 * of real devices do: for the host's tests. */
#include "fused.h"

#include "row_math.h"

static const ref_services* services;

static void norm_row(const float* x, const float* weight, int64_t size, float eps, float* y) {
#if defined(REF_FUSED_OTHER_BITS) /* x·(scale·weight) where the parts have (x·scale)·weight */
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) sum += (double)x[i] * x[i];
  const float scale = (float)(1.0 / sqrt(sum / (double)size + (double)eps));
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] * (scale * weight[i]);
#else
  ref_norm_row(x, weight, size, eps, 1.0f, y);
#endif
}

static void run_add_rms_norm(const void* p, ref_failure* failure) {
  const choral_rms_norm_args* a = p;
  (void)failure;
  for (int64_t i = 0; i < a->x.rows; ++i) {
    float* residual = ref_row(&a->residual, i);
    for (int64_t j = 0; j < a->x.cols; ++j) residual[j] += ref_row(&a->x, i)[j];
    float* y = ref_row(&a->y, i);
    norm_row(residual, a->weight.data, a->weight.size, a->eps, y);
    for (int64_t j = 0; j < a->bias.size; ++j) y[j] += ((const float*)a->bias.data)[j];
  }
}

static choral_status* add_norm(choral_device* device, choral_stream* stream, const void* args, const char* name, int with_bias) {
  choral_rms_norm_args a;
  services->read(&a, args, sizeof a);
  choral_status* error = NULL;
  services->expect(a.x.rows == a.y.rows && a.x.cols == a.y.cols && a.x.rows == a.residual.rows && a.x.cols == a.residual.cols,
                   name, "x, y and residual differ in shape", &error);
  services->expect(a.weight.size > 0 && a.x.cols == a.weight.size, name, "the weight does not fit the row", &error);
  a.x = services->map_matrix(device, name, a.x, &error);
  a.y = services->map_matrix(device, name, a.y, &error);
  a.residual = services->map_matrix(device, name, a.residual, &error);
  a.weight = services->map_vector(device, name, a.weight, a.x.cols, &error);
  if (!with_bias) a.bias = (choral_vector){0};
  if (with_bias) a.bias = services->map_vector(device, name, a.bias, a.x.cols, &error);
  return error != NULL ? error : services->submit(device, stream, run_add_rms_norm, &a, sizeof a);
}

static choral_status* add_rms_norm(choral_device* device, choral_stream* stream, const void* args) {
  return add_norm(device, stream, args, "add_rms_norm", 0);
}

static choral_status* add_rms_norm_bias(choral_device* device, choral_stream* stream, const void* args) {
  return add_norm(device, stream, args, "add_rms_norm_bias", 1);
}

/* q_weight and k_weight null: no norm. cache.keys null: nothing is stored. */
static void run_rotary(const void* p, ref_failure* failure) {
  const choral_rotary_args* a = p;
  const int64_t head_dim = a->table.head_dim;
  for (int64_t i = 0; i < a->q.rows; ++i) {
    const int64_t position = a->positions[i];
    float* q = ref_row(&a->q, i);
    float* k = ref_row(&a->k, i);
    if (position < 0 || position >= a->table.max_positions) {
      services->fail(failure, CHORAL_INVALID_ARGUMENT, "fused rotary operator: position %lld of %lld", (long long)position,
                     (long long)a->table.max_positions);
      return;
    }
    if (a->q_weight.data != NULL) {
      for (int64_t h = 0; h < a->q.cols; h += head_dim) norm_row(q + h, a->q_weight.data, head_dim, a->eps, q + h);
      for (int64_t h = 0; h < a->k.cols; h += head_dim) norm_row(k + h, a->k_weight.data, head_dim, a->eps, k + h);
    }
    ref_rotate_row(&a->table, position, q, a->q.cols);
    ref_rotate_row(&a->table, position, k, a->k.cols);
    if (a->slots != NULL && !ref_store_kv(&a->cache, a->slots[i], k, ref_row(&a->v, i))) {
      services->fail(failure, CHORAL_INVALID_ARGUMENT, "rope_write_kv: slot %lld is beyond %lld blocks", (long long)a->slots[i],
                     (long long)a->cache.blocks);
      return;
    }
  }
}

static void map_rotation(choral_device* device, const char* name, choral_rotary_args* a, choral_status** error) {
  const choral_rotary_table* t = &a->table;
  services->expect(
      t->head_dim > 0 && t->rotary_dim >= 0 && t->rotary_dim % 2 == 0 && t->rotary_dim <= t->head_dim && t->max_positions >= 0,
      name, "the table is not a table", error);
  services->expect(*error == NULL && a->q.rows == a->k.rows && a->q.cols % t->head_dim == 0 && a->k.cols % t->head_dim == 0, name,
                   "q and k are not rows of whole heads", error);
  a->q = services->map_matrix(device, name, a->q, error);
  a->k = services->map_matrix(device, name, a->k, error);
  a->positions = services->map_array(device, name, a->positions, a->q.rows, sizeof *a->positions, error);
  a->table.cos_sin =
      services->map_array(device, name, t->cos_sin, t->max_positions, t->rotary_dim * (int64_t)sizeof(float), error);
}

static choral_status* qk_norm_rope(choral_device* device, choral_stream* stream, const void* args) {
  choral_rotary_args a;
  services->read(&a, args, sizeof a);
  choral_status* error = NULL;
  const char* name = "qk_norm_rope";
  map_rotation(device, name, &a, &error);
  a.q_weight = services->map_vector(device, name, a.q_weight, a.table.head_dim, &error);
  a.k_weight = services->map_vector(device, name, a.k_weight, a.table.head_dim, &error);
  a.slots = NULL;
  return error != NULL ? error : services->submit(device, stream, run_rotary, &a, sizeof a);
}

static choral_status* rope_write_kv(choral_device* device, choral_stream* stream, const void* args) {
  choral_rotary_args a;
  services->read(&a, args, sizeof a);
  choral_status* error = NULL;
  const char* name = "rope_write_kv";
  map_rotation(device, name, &a, &error);
  a.cache = services->map_cache(device, name, a.cache, &error);
  services->expect(error == NULL && a.k.cols == a.cache.kv_heads * a.cache.head_dim && a.v.rows == a.k.rows &&
                       a.v.cols == a.cache.kv_heads * a.cache.v_head_dim,
                   name, "k and v do not fit the cache", &error);
  a.v = services->map_matrix(device, name, a.v, &error);
  a.slots = services->map_array(device, name, a.slots, a.k.rows, sizeof *a.slots, &error);
  a.q_weight.data = a.k_weight.data = NULL;
  return error != NULL ? error : services->submit(device, stream, run_rotary, &a, sizeof a);
}

static choral_status* grouped_matmul(choral_device* device, choral_stream* stream, const void* args) {
  return services->grouped_matmul(device, stream, args);
}

static choral_status* lora_shrink(choral_device* device, choral_stream* stream, const void* args) {
  return services->lora_shrink(device, stream, args);
}

static choral_status* lora_expand(choral_device* device, choral_stream* stream, const void* args) {
  return services->lora_expand(device, stream, args);
}

static const choral_op ops[] = {
    {CHORAL_HEADER(choral_op), "add_rms_norm", 1, 0, add_rms_norm},
    {CHORAL_HEADER(choral_op), "add_rms_norm_bias", 1, 0, add_rms_norm_bias},
    {CHORAL_HEADER(choral_op), "qk_norm_rope", 1, 0, qk_norm_rope},
    {CHORAL_HEADER(choral_op), "rope_write_kv", 1, 0, rope_write_kv},
    {CHORAL_HEADER(choral_op), "grouped_matmul", 1, 0, grouped_matmul},
    {CHORAL_HEADER(choral_op), "lora_shrink", 1, 0, lora_shrink},
    {CHORAL_HEADER(choral_op), "lora_expand", 1, 0, lora_expand},
};

CHORAL_PLUGIN_EXPORT const choral_op* choral_ref_fused_ops(const ref_services* given, int64_t* count);

const choral_op* choral_ref_fused_ops(const ref_services* given, int64_t* count) {
  if (given->number != REF_FUSED_NUMBER) return NULL;
  services = given;
  *count = (int64_t)(sizeof ops / sizeof *ops);
  return ops;
}
