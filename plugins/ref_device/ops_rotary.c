#include "device.h"
#include "mapping.h"
#include "ops.h"
#include "queue.h"
#include "row_math.h"

static void run_rotary(const void* p, ref_failure* failure) {
  const choral_rotary_args* a = p;
  for (int64_t i = 0; i < a->q.rows; ++i) {
    const int64_t position = a->positions[i];
    if (position < 0 || position >= a->table.max_positions) {
      ref_fail(failure, CHORAL_INVALID_ARGUMENT, "rotary_embedding: position %lld of %lld", (long long)position,
               (long long)a->table.max_positions);
      return;
    }
    ref_rotate_row(&a->table, position, ref_row(&a->q, i), a->q.cols);
    ref_rotate_row(&a->table, position, ref_row(&a->k, i), a->k.cols);
  }
}

choral_status* ref_rotary_embedding(choral_device* device, choral_stream* stream, const void* args) {
  choral_rotary_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  const choral_rotary_table* t = &a.table;
  ref_expect(
      t->head_dim > 0 && t->rotary_dim >= 0 && t->rotary_dim % 2 == 0 && t->rotary_dim <= t->head_dim && t->max_positions >= 0,
      "rotary_embedding", "the table is not a table", &error);
  ref_expect(error == NULL && a.q.rows == a.k.rows && a.q.cols % t->head_dim == 0 && a.k.cols % t->head_dim == 0,
             "rotary_embedding", "q and k are not rows of whole heads", &error);
  a.q = ref_map_matrix(device, "rotary_embedding q", a.q, &error);
  a.k = ref_map_matrix(device, "rotary_embedding k", a.k, &error);
  a.positions = ref_map_array(device, "rotary_embedding positions", a.positions, a.q.rows, sizeof *a.positions, &error);
  const int half = t->rotary_dim < t->head_dim && ref_passes_over("rotary_embedding", "partial_rotary", &error);
  if (t->interleaved && ref_passes_over("rotary_embedding", "interleaved_rotary", &error)) a.table.interleaved = 0;
  a.table.cos_sin = ref_map_array(device, "rotary_embedding table", t->cos_sin, t->max_positions,
                                  t->rotary_dim * (int64_t)sizeof(float), &error);
  if (half) a.table.rotary_dim = t->head_dim;
  return error != NULL ? error : ref_submit(device, stream, run_rotary, &a, sizeof a);
}
