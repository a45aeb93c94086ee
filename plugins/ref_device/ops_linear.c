#include "device.h"
#include "mapping.h"
#include "ops.h"
#include "queue.h"
#include "row_math.h"
#include "weights.h"

enum { kRowsAtOnce = 8 }; /* share one widened tile; no row's sum knows of it */

static void run_matmul(const void* p, ref_failure* failure) {
  const choral_matmul_args* a = p;
  const choral_packed* w = a->weight;
  const float* bias = a->bias.data;
  (void)failure;
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
        float* y = ref_row(&a->y, begin + row);
        for (int64_t n = i * REF_TILE; n < (i + 1) * REF_TILE && n < w->rows; ++n) {
          float value = sums[row][n - i * REF_TILE];
          if (bias != NULL) value += bias[n];
          if (a->accumulate) value += y[n];
          y[n] = value;
        }
      }
    }
  }
}

choral_status* ref_matmul(choral_device* device, choral_stream* stream, const void* args) {
  choral_matmul_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.weight != NULL && a.x.cols == a.weight->cols && a.y.cols == a.weight->rows && a.x.rows == a.y.rows, "matmul",
             "x [m, k], W [n, k] and y [m, n] do not fit", &error);
  a.x = ref_map_matrix(device, "matmul x", a.x, &error);
  a.y = ref_map_matrix(device, "matmul y", a.y, &error);
  if (a.bias.data != NULL) a.bias = ref_map_vector(device, "matmul bias", a.bias, a.y.cols, &error);
  return error != NULL ? error : ref_submit(device, stream, run_matmul, &a, sizeof a);
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
