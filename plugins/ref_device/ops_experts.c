/* What mixtures of experts have beside their products, and models with scaled embeddings. */
#include <math.h>

#include "device.h"
#include "mapping.h"
#include "ops.h"
#include "queue.h"
#include "row_math.h"

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

static void run_swigluoai_and_mul(const void* p, ref_failure* failure) {
  const choral_swigluoai_args* a = p;
  (void)failure;
  for (int64_t i = 0; i < a->y.rows; ++i) {
    const float* x = ref_row(&a->x, i);
    float* y = ref_row(&a->y, i);
    for (int64_t j = 0; j < a->y.cols; ++j) {
      const float gate = x[2 * j] > a->limit ? a->limit : x[2 * j], up = clamp(x[2 * j + 1], -a->limit, a->limit);
      y[j] = (up + 1.0f) * (gate / (1.0f + expf(-a->alpha * gate)));
    }
  }
}

choral_status* ref_swigluoai_and_mul(choral_device* device, choral_stream* stream, const void* args) {
  choral_swigluoai_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.x.rows == a.y.rows && a.x.cols == 2 * a.y.cols, "swigluoai_and_mul", "x is not twice as wide as y", &error);
  a.x = ref_map_matrix(device, "swigluoai_and_mul x", a.x, &error);
  a.y = ref_map_matrix(device, "swigluoai_and_mul y", a.y, &error);
  return error != NULL ? error : ref_submit(device, stream, run_swigluoai_and_mul, &a, sizeof a);
}

static void run_scale(const void* p, ref_failure* failure) {
  const choral_scale_args* a = p;
  (void)failure;
  for (int64_t i = 0; i < a->y.rows; ++i) {
    float* y = ref_row(&a->y, i);
    for (int64_t j = 0; j < a->y.cols; ++j) y[j] *= a->factor;
  }
}

choral_status* ref_scale(choral_device* device, choral_stream* stream, const void* args) {
  choral_scale_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  a.y = ref_map_matrix(device, "scale y", a.y, &error);
  return error != NULL ? error : ref_submit(device, stream, run_scale, &a, sizeof a);
}

static void run_moe_combine(const void* p, ref_failure* failure) {
  const choral_moe_combine_args* a = p;
  const int64_t slots = a->weights.cols;
  for (int64_t t = 0; t < a->y.rows; ++t) {
    const int32_t* places = a->places + t * slots;
    const float* weights = ref_row(&a->weights, t);
    float* y = ref_row(&a->y, t);
    for (int64_t s = 0; s < slots; ++s) {
      if (places[s] < 0 || places[s] >= a->x.rows) {
        ref_fail(failure, CHORAL_INVALID_ARGUMENT, "moe_combine: place %d of %lld", places[s], (long long)a->x.rows);
        return;
      }
    }
    for (int64_t c = 0; c < a->y.cols; ++c) {
      float sum = a->add != 0 ? y[c] : 0.0f;
      for (int64_t s = 0; s < slots; ++s) sum = fmaf(weights[s], ref_row(&a->x, places[s])[c], sum);
      y[c] = sum;
    }
  }
}

choral_status* ref_moe_combine(choral_device* device, choral_stream* stream, const void* args) {
  choral_moe_combine_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  const char* name = "moe_combine";
  ref_expect(a.x.cols == a.y.cols && a.weights.rows == a.y.rows, name, "x, weights and y do not fit", &error);
  a.x = ref_map_matrix(device, name, a.x, &error);
  a.y = ref_map_matrix(device, name, a.y, &error);
  a.places = ref_map_array(device, name, a.places, a.weights.rows, a.weights.cols * (int64_t)sizeof *a.places, &error);
  a.weights = ref_map_matrix(device, name, a.weights, &error);
  return error != NULL ? error : ref_submit(device, stream, run_moe_combine, &a, sizeof a);
}
