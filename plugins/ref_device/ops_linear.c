#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "mapping.h"
#include "ops.h"
#include "queue.h"
#include "row_math.h"
#include "weights.h"

enum { kRowsAtOnce = 8 }; /* share one widened tile; no row's sum knows of it */

/* y[row, n] from its bare product. */
static void finish(const choral_matmul_args* a, int64_t row, int64_t n, float value) {
  const float* bias = a->bias.data;
  float* y = ref_row(&a->y, row) + n;
  if (bias != NULL) value += bias[n];
  if (a->accumulate) value += *y;
  *y = value;
}

static void run_float_matmul(const choral_matmul_args* a) {
  const choral_packed* w = a->weight;
  for (int64_t begin = 0; begin < a->x.rows; begin += kRowsAtOnce) {
    const int64_t rows = a->x.rows - begin < kRowsAtOnce ? a->x.rows - begin : kRowsAtOnce;
    for (int64_t i = 0; i < w->row_tiles; ++i) {
      float sums[kRowsAtOnce][REF_TILE] = {{0}};
      for (int64_t j = 0; j < w->col_tiles; ++j) {
        float buffer[REF_TILE_ELEMENTS];
        const float* tile = ref_tile(w, i, j, buffer);
        const int64_t left = w->cols - j * REF_TILE, count = left < REF_TILE ? left : REF_TILE;
        for (int64_t row = 0; row < rows; ++row) {
          const float* x = ref_row(&a->x, begin + row) + j * REF_TILE;
          for (int64_t k = 0; k < count; ++k) {
            for (int64_t channel = 0; channel < REF_TILE; ++channel) sums[row][channel] += x[k] * tile[k * REF_TILE + channel];
          }
        }
      }
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t n = i * REF_TILE; n < (i + 1) * REF_TILE && n < w->rows; ++n)
          finish(a, begin + row, n, sums[row][n % REF_TILE]);
      }
    }
  }
}

/* x as the weight multiplies it, less the offset that a fixed scale has; the scale of the row. */
static float round_row(const choral_packed* w, const float* x, int32_t* q) {
  float largest = 0.0f;
  int finite = 1;
  for (int64_t k = 0; k < w->cols; ++k) {
    finite = finite && isfinite(x[k]);
    if (fabsf(x[k]) > largest) largest = fabsf(x[k]);
  }
  const float step = w->has_fixed_input ? w->input_scale : largest / 127.0f;
  const double offset = w->input_offset, least = w->has_fixed_input ? -128.0 : -127.0;
  for (int64_t k = 0; k < w->cols; ++k) {
    double rounded = 0.0;
    if (finite && step > 0.0f) rounded = (double)(w->truncates ? truncf(x[k] / step) : rintf(x[k] / step)) + offset;
    if (rounded < least) rounded = least;
    if (rounded > 127.0) rounded = 127.0;
    q[k] = (int32_t)(rounded - offset);
  }
  if (!finite) return NAN;
  return w->has_fixed_input ? 1.0f : step;
}

/* Integers are summed exactly, so their order is free. */
static void run_int8_matmul(const choral_matmul_args* a, ref_failure* failure) {
  const choral_packed* w = a->weight;
  int32_t* q = malloc((size_t)w->cols * sizeof *q);
  if (q == NULL) {
    ref_fail(failure, CHORAL_RESOURCE_EXHAUSTED, "matmul: no host memory for a row of %lld integers", (long long)w->cols);
    return;
  }
  for (int64_t row = 0; row < a->x.rows; ++row) {
    const float scale = round_row(w, ref_row(&a->x, row), q);
    for (int64_t i = 0; i < w->row_tiles; ++i) {
      int64_t sums[REF_TILE] = {0};
      for (int64_t k = 0; k < w->cols; ++k) {
        const signed char* column = (const signed char*)ref_stored_tile(w, i, k / REF_TILE) + k % REF_TILE * REF_TILE;
        for (int64_t channel = 0; channel < REF_TILE; ++channel) sums[channel] += (int64_t)q[k] * column[channel];
      }
      for (int64_t n = i * REF_TILE; n < (i + 1) * REF_TILE && n < w->rows; ++n) {
        finish(a, row, n, (float)sums[n % REF_TILE] * w->scales[n] * scale);
      }
    }
  }
  free(q);
}

static void run_matmul(const void* p, ref_failure* failure) {
  const choral_matmul_args* a = p;
  if (a->weight->dtype == CHORAL_I8) {
    run_int8_matmul(a, failure);
  } else {
    run_float_matmul(a);
  }
}

static choral_status* map_matmul(choral_device* device, const void* args, choral_matmul_args* mapped) {
  choral_matmul_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.weight != NULL && a.x.cols == a.weight->cols && a.y.cols == a.weight->rows && a.x.rows == a.y.rows, "matmul",
             "x [m, k], W [n, k] and y [m, n] do not fit", &error);
  a.x = ref_map_matrix(device, "matmul x", a.x, &error);
  a.y = ref_map_matrix(device, "matmul y", a.y, &error);
  if (a.bias.data != NULL) a.bias = ref_map_vector(device, "matmul bias", a.bias, a.y.cols, &error);
  *mapped = a;
  return error;
}

choral_status* ref_matmul(choral_device* device, choral_stream* stream, const void* args) {
  choral_matmul_args a;
  choral_status* error = map_matmul(device, args, &a);
  return error != NULL ? error : ref_submit(device, stream, run_matmul, &a, sizeof a);
}

/* All are looked at before the first is queued: a call that fails has changed nothing. Then they run one after the other; what a
 * device gains by one launch for all is its own business. */
choral_status* ref_grouped_matmul(choral_device* device, choral_stream* stream, const void* args) {
  choral_grouped_matmul_args a;
  ref_read(&a, args, sizeof a);
  if (a.product_count == 0) return NULL;
  choral_matmul_args* mapped = malloc((size_t)a.product_count * sizeof *mapped);
  if (mapped == NULL) {
    return ref_error(CHORAL_RESOURCE_EXHAUSTED, "grouped_matmul: no host memory for %lld products", (long long)a.product_count);
  }
  const char* product = (const char*)a.products;
  choral_status* error = NULL;
  for (int64_t i = 0; i < a.product_count && error == NULL; ++i, product += a.products->header.struct_size) {
    error = map_matmul(device, product, &mapped[i]);
  }
  if (error == NULL) error = ref_submit(device, stream, run_matmul, &mapped[0], sizeof mapped[0]);
  for (int64_t i = 1; i < a.product_count && error == NULL; ++i) ref_push(stream, run_matmul, &mapped[i], sizeof mapped[i], 0);
  free(mapped);
  return error;
}

static void run_gather_rows(const void* p, ref_failure* failure) {
  const choral_gather_rows_args* a = p;
  for (int64_t i = 0; i < a->out.rows; ++i) {
    if (a->ids[i] < 0 || a->ids[i] >= a->weight->rows) {
      ref_fail(failure, CHORAL_INVALID_ARGUMENT, "gather_rows: id %d of %lld rows", a->ids[i], (long long)a->weight->rows);
      return;
    }
    ref_packed_row(a->weight, a->ids[i], ref_row(&a->out, i));
  }
}

choral_status* ref_gather_rows(choral_device* device, choral_stream* stream, const void* args) {
  choral_gather_rows_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.weight != NULL && a.out.cols == a.weight->cols, "gather_rows", "out is not as wide as W", &error);
  a.out = ref_map_matrix(device, "gather_rows out", a.out, &error);
  a.ids = ref_map_array(device, "gather_rows ids", a.ids, a.out.rows, sizeof *a.ids, &error);
  return error != NULL ? error : ref_submit(device, stream, run_gather_rows, &a, sizeof a);
}

static void run_take_rows(const void* p, ref_failure* failure) {
  const choral_take_rows_args* a = p;
  for (int64_t i = 0; i < a->out.rows; ++i) {
    if (a->rows[i] < 0 || a->rows[i] >= a->x.rows) {
      ref_fail(failure, CHORAL_INVALID_ARGUMENT, "take_rows: row %d of %lld", a->rows[i], (long long)a->x.rows);
      return;
    }
    memcpy(ref_row(&a->out, i), ref_row(&a->x, a->rows[i]), (size_t)a->x.cols * sizeof(float));
  }
}

choral_status* ref_take_rows(choral_device* device, choral_stream* stream, const void* args) {
  choral_take_rows_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.x.cols == a.out.cols, "take_rows", "out is not as wide as x", &error);
  a.x = ref_map_matrix(device, "take_rows x", a.x, &error);
  a.out = ref_map_matrix(device, "take_rows out", a.out, &error);
  a.rows = ref_map_array(device, "take_rows rows", a.rows, a.out.rows, sizeof *a.rows, &error);
  return error != NULL ? error : ref_submit(device, stream, run_take_rows, &a, sizeof a);
}
