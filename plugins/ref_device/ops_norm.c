/* Norms, activations and sums: what looks at one row only. */
#include "device.h"
#include "mapping.h"
#include "ops.h"
#include "queue.h"
#include "row_math.h"

static void run_norm(const void* p, ref_failure* failure) {
  const choral_rms_norm_args* a = p;
  (void)failure;
  const float last_bit = ref_fault.company && a->x.rows > 1 ? 0x1p-23f : 0.0f;
  for (int64_t i = 0; i < a->x.rows; ++i) {
    for (int64_t col = 0; col < a->x.cols; col += a->weight.size) {
      ref_norm_row(ref_row(&a->x, i) + col, a->weight.data, a->weight.size, a->eps, 1.0f + ref_fault.norm_factor + last_bit,
                   ref_row(&a->y, i) + col);
    }
  }
}

static choral_status* norm(choral_device* device, choral_stream* stream, const void* args, const char* name, int whole_rows) {
  choral_rms_norm_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.x.rows == a.y.rows && a.x.cols == a.y.cols, name, "x and y differ in shape", &error);
  ref_expect(a.weight.size > 0 && (whole_rows ? a.x.cols == a.weight.size : a.x.cols % a.weight.size == 0), name,
             "the weight does not fit the row", &error);
  a.x = ref_map_matrix(device, name, a.x, &error);
  a.y = ref_map_matrix(device, name, a.y, &error);
  a.weight = ref_map_vector(device, name, a.weight, a.weight.size, &error);
  return error != NULL ? error : ref_submit(device, stream, run_norm, &a, sizeof a);
}

choral_status* ref_rms_norm(choral_device* device, choral_stream* stream, const void* args) {
  return norm(device, stream, args, "rms_norm", 1);
}

choral_status* ref_rms_norm_heads(choral_device* device, choral_stream* stream, const void* args) {
  return norm(device, stream, args, "rms_norm_heads", 0);
}

choral_status* ref_rms_norm_oot(choral_device* device, choral_stream* stream, const void* args) {
  if (device->oot_calls++ == 0) ref_log(CHORAL_LOG_DEBUG, "rms_norm runs in this plug-in's form");
  return norm(device, stream, args, "rms_norm", 1);
}

static void run_add(const void* p, ref_failure* failure) {
  const choral_unary_args* a = p;
  (void)failure;
  for (int64_t i = 0; i < a->x.rows; ++i) {
    for (int64_t j = 0; j < a->x.cols; ++j) ref_row(&a->y, i)[j] += ref_row(&a->x, i)[j];
  }
}

choral_status* ref_add(choral_device* device, choral_stream* stream, const void* args) {
  choral_unary_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.x.rows == a.y.rows && a.x.cols == a.y.cols, "add", "x and y differ in shape", &error);
  a.x = ref_map_matrix(device, "add x", a.x, &error);
  a.y = ref_map_matrix(device, "add y", a.y, &error);
  return error != NULL ? error : ref_submit(device, stream, run_add, &a, sizeof a);
}

static void run_add_bias(const void* p, ref_failure* failure) {
  const choral_bias_args* a = p;
  (void)failure;
  for (int64_t i = 0; i < a->y.rows; ++i) {
    for (int64_t j = 0; j < a->y.cols; ++j) ref_row(&a->y, i)[j] += ((const float*)a->bias.data)[j];
  }
}

choral_status* ref_add_bias(choral_device* device, choral_stream* stream, const void* args) {
  choral_bias_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  a.y = ref_map_matrix(device, "add_bias y", a.y, &error);
  a.bias = ref_map_vector(device, "add_bias", a.bias, a.y.cols, &error);
  return error != NULL ? error : ref_submit(device, stream, run_add_bias, &a, sizeof a);
}

static void run_silu_and_mul(const void* p, ref_failure* failure) {
  const choral_unary_args* a = p;
  (void)failure;
  for (int64_t i = 0; i < a->y.rows; ++i) {
    const float* gate = ref_row(&a->x, i);
    const float* up = gate + a->y.cols;
    float* y = ref_row(&a->y, i);
    for (int64_t j = 0; j < a->y.cols; ++j) y[j] = gate[j] / (1.0f + expf(-gate[j])) * up[j];
  }
}

static void run_gelu_tanh_and_mul(const void* p, ref_failure* failure) {
  const choral_unary_args* a = p;
  (void)failure;
  for (int64_t i = 0; i < a->y.rows; ++i) {
    const float* gate = ref_row(&a->x, i);
    const float* up = gate + a->y.cols;
    float* y = ref_row(&a->y, i);
    for (int64_t j = 0; j < a->y.cols; ++j) {
      const float inner = 0.7978845608f * (gate[j] + 0.044715f * gate[j] * gate[j] * gate[j]); /* √(2/π) */
      y[j] = gate[j] / (1.0f + expf(-2.0f * inner)) * up[j];
    }
  }
}

static choral_status* gated(choral_device* device, choral_stream* stream, const void* args, const char* name, ref_run_fn run) {
  choral_unary_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.x.rows == a.y.rows && a.x.cols == 2 * a.y.cols, name, "x is not twice as wide as y", &error);
  a.x = ref_map_matrix(device, name, a.x, &error);
  a.y = ref_map_matrix(device, name, a.y, &error);
  return error != NULL ? error : ref_submit(device, stream, run, &a, sizeof a);
}

choral_status* ref_silu_and_mul(choral_device* device, choral_stream* stream, const void* args) {
  return gated(device, stream, args, "silu_and_mul", run_silu_and_mul);
}

choral_status* ref_gelu_tanh_and_mul(choral_device* device, choral_stream* stream, const void* args) {
  return gated(device, stream, args, "gelu_tanh_and_mul", run_gelu_tanh_and_mul);
}

choral_status* ref_noop(choral_device* device, choral_stream* stream, const void* args) {
  (void)device, (void)stream, (void)args;
  return NULL;
}
