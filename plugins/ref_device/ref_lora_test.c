/* The operators on adapters' stacks against sums in double, in both ways of naming slots. */
#include <math.h>
#include <string.h>

#include "numbers.h"
#include "test_device.h"

enum { kRows = 7, kIn = 37, kRank = 5, kOut = 11, kWide = 20, kBegin = 6, kSlots = 3 };

static const int32_t of_row[kRows] = {1, -1, 0, 0, 0, 1, -1}, of_sequence[] = {1, -1, 0, 1, -1};
static const int32_t starts[] = {0, 1, 2, 5, 6}, lengths[] = {1, 1, 3, 1, 1};

static void release(const void* memory) { plugin->memory->release(device, (void*)(uintptr_t)memory); }

static choral_lora_args by_row(choral_lora_args args) {
  args.slot_of = to_device(of_row, sizeof of_row);
  return args;
}

static choral_lora_args by_sequence(choral_lora_args args) {
  args.slot_of = to_device(of_sequence, sizeof of_sequence);
  args.starts = to_device(starts, sizeof starts);
  args.lengths = to_device(lengths, sizeof lengths);
  args.sequence_count = 5;
  args.max_length = 3;
  return args;
}

static void release_slots(const choral_lora_args* args) {
  release(args->slot_of);
  release(args->starts);
  release(args->lengths);
}

/* Runs bgmv_`name` and sgmv_`name` from the same y and wants the same bits; they are left in y [kRows · cols]. */
static void run_both(const char* name, const choral_lora_args* base, float* y, int64_t cols) {
  static float results[2][kRows * kWide];
  for (int way = 0; way < 2; ++way) {
    char full[32] = "bgmv_";
    if (way == 1) full[0] = 's';
    strcat(full, name);
    choral_lora_args args = way == 0 ? by_row(*base) : by_sequence(*base);
    args.y = matrix_to_device(y, kRows, cols, cols);
    OK(run(full, &args));
    from_device(results[way], args.y.data, kRows * cols * (int64_t)sizeof *y);
    release(args.y.data);
    release_slots(&args);
  }
  CHECK(memcmp(results[0], results[1], (size_t)(kRows * cols) * sizeof *y) == 0);
  memcpy(y, results[0], (size_t)(kRows * cols) * sizeof *y);
}

static void test_products(int32_t dtype) {
  float x[kRows * kIn], a[kSlots * kRank * kIn], b[kSlots * kOut * kRank], y[kRows * kWide], before[kRows * kWide];
  unsigned char stored[sizeof a];
  fill(x, kRows * kIn);
  fill(a, kSlots * kRank * kIn);
  fill(b, kSlots * kOut * kRank);
  for (int64_t k = 0; k < kIn; ++k) x[kIn + k] = NAN; /* a row of no slot */
  ref_narrow(dtype, a, kSlots * kRank * kIn, stored);
  ref_widen(dtype, stored, kSlots * kRank * kIn, a);
  choral_lora_args args = {
      .header = CHORAL_HEADER(choral_lora_args),
      .x = matrix_to_device(x, kRows, kIn, kIn),
      .stack = {to_device(stored, kSlots * kRank * kIn * ref_float_bytes(dtype)), kSlots, kRank, kIn, dtype, 0},
      .scaling = 0.5f};
  fill(y, kRows * kRank);
  memcpy(before, y, sizeof before);
  run_both("shrink", &args, y, kRank);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kRank; ++j) {
      double sum = 0;
      for (int k = 0; k < kIn && of_row[i] >= 0; ++k) sum += (double)x[i * kIn + k] * a[(of_row[i] * kRank + j) * kIn + k];
      CHECK(near(y[i * kRank + j], of_row[i] < 0 ? before[i * kRank + j] : 0.5 * sum, 1e-5));
    }
  }
  release(args.stack.data);
  release(args.x.data);

  ref_narrow(dtype, b, kSlots * kOut * kRank, stored);
  ref_widen(dtype, stored, kSlots * kOut * kRank, b);
  args.stack =
      (choral_lora_stack){to_device(stored, kSlots * kOut * kRank * ref_float_bytes(dtype)), kSlots, kOut, kRank, dtype, 0};
  args.x = matrix_to_device(x, kRows, kRank, kIn);
  for (int form = 0; form < 4; ++form) { /* assigned and added, the whole row and a slice */
    const int slice = form / 2, cols = slice ? kWide : kOut;
    args.add = form % 2;
    args.slice_begin = slice ? kBegin : 0;
    fill(y, kRows * cols);
    memcpy(before, y, sizeof before);
    run_both(slice ? "expand_slice" : "expand", &args, y, cols);
    for (int i = 0; i < kRows; ++i) {
      for (int c = 0; c < cols; ++c) {
        const int j = c - (int)args.slice_begin, touched = of_row[i] >= 0 && j >= 0 && j < kOut;
        double sum = !touched || args.add ? before[i * cols + c] : 0;
        for (int k = 0; touched && k < kRank; ++k) sum += (double)x[i * kIn + k] * b[(of_row[i] * kOut + j) * kRank + k];
        CHECK(near(y[i * cols + c], sum, 1e-5));
      }
    }
  }
  release(args.stack.data);
  release(args.x.data);
}

/* Zeros beyond a slot's rank change no bit, read or not; noise there shows that they are not. */
static void test_ranks(void) {
  const int32_t ranks[kSlots] = {3, kRank, 0};
  float x[kRows * kIn], zeros[kSlots * kRank * kIn], filled[kSlots * kRank * kIn], wanted[kRows * kWide], got[kRows * kWide];
  for (int shrink = 0; shrink < 2; ++shrink) {
    const int64_t rows = shrink ? kRank : kOut, cols = shrink ? kIn : kRank, count = kSlots * rows * cols;
    fill(x, kRows * kIn);
    fill(zeros, count);
    for (int64_t i = 0; i < count; ++i) {
      const int beyond = (shrink ? i / cols % rows : i % cols) >= ranks[i / (rows * cols)];
      if (beyond) zeros[i] = 0.0f;
      filled[i] = beyond ? 1000.0f : zeros[i];
    }
    if (!shrink) { /* a sum of -0, with zeros behind it or without */
      for (int k = 0; k < kRank; ++k) x[2 * kIn + k] = k == 0 ? 1e-30f : 0.0f;
      zeros[0] = filled[0] = -1e-30f;
    }
    choral_lora_args args = {.header = CHORAL_HEADER(choral_lora_args),
                             .x = matrix_to_device(x, kRows, cols, kIn),
                             .stack = {to_device(zeros, count * (int64_t)sizeof *zeros), kSlots, rows, cols, CHORAL_F32, 0},
                             .scaling = 1.0f};
    fill(wanted, kRows * rows);
    memcpy(got, wanted, sizeof got);
    run_both(shrink ? "shrink" : "expand", &args, wanted, rows);
    release(args.stack.data);
    args.stack.data = to_device(filled, count * (int64_t)sizeof *filled);
    args.ranks = to_device(ranks, sizeof ranks);
    run_both(shrink ? "shrink" : "expand", &args, got, rows);
    CHECK(memcmp(got, wanted, (size_t)(kRows * rows) * sizeof *got) == 0);
    CHECK(shrink || !signbit(got[2 * rows]));
    release(args.stack.data);
    release(args.x.data);
    release(args.ranks);
  }
}

/* Projections that are computed together. */
enum { kSlices = 3 };
static const int64_t outs[kSlices] = {kOut, 2, 7}, begins[kSlices] = {0, kOut, kOut + 2};
static const int32_t slot_ranks[kSlices][kSlots] = {{3, kRank, 0}, {0, 1, kRank}, {kRank, 0, 2}};

/* For the shrink, with its values from `noise`; for_expand() makes it an expand's. */
static choral_lora_slices_args make_slices(const choral_lora_args* named, const float* noise) {
  choral_lora_slices_args args = {.header = CHORAL_HEADER(choral_lora_slices_args),
                                  .x = matrix_to_device(noise, kRows, kIn, kIn),
                                  .y = matrix_to_device(noise, kRows, kWide, kWide),
                                  .slot_of = named->slot_of,
                                  .starts = named->starts,
                                  .lengths = named->lengths,
                                  .sequence_count = named->sequence_count,
                                  .max_length = named->max_length,
                                  .scaling = 0.5f,
                                  .add = 1,
                                  .slice_count = kSlices};
  for (int i = 0; i < kSlices; ++i) {
    const choral_lora_slice slice = {
        .stack = {to_device(noise + i, kSlots * kRank * kIn * (int64_t)sizeof *noise), kSlots, kRank, kIn, CHORAL_F32, 0},
        .ranks = to_device(slot_ranks[i], sizeof slot_ranks[i]),
        .middle = matrix_to_device(noise + i, kRows, kRank, kWide),
        .y_begin = begins[i]};
    args.slices[i] = slice;
  }
  return args;
}

static void for_expand(choral_lora_slices_args* args) {
  for (int i = 0; i < kSlices; ++i) {
    choral_lora_stack* stack = &args->slices[i].stack;
    stack->rows = outs[i];
    stack->cols = kRank;
  }
}

static void release_slices(const choral_lora_slices_args* args) {
  for (int i = 0; i < kSlices; ++i) {
    release(args->slices[i].stack.data);
    release(args->slices[i].ranks);
    release(args->slices[i].middle.data);
  }
  release(args->x.data);
  release(args->y.data);
}

/* The same by the operators of one projection. */
static void run_parts(const choral_lora_slices_args* args, const choral_lora_args* named, int expands) {
  for (int i = 0; i < kSlices; ++i) {
    const choral_lora_slice* slice = &args->slices[i];
    choral_lora_args part = *named;
    part.x = expands ? slice->middle : args->x;
    part.y = expands ? args->y : slice->middle;
    part.stack = slice->stack;
    part.ranks = slice->ranks;
    part.slice_begin = slice->y_begin;
    part.scaling = args->scaling;
    part.add = args->add;
    const char* name = expands ? "bgmv_expand_slice" : "bgmv_shrink";
    if (named->starts != NULL) name = expands ? "sgmv_expand_slice" : "sgmv_shrink";
    OK(run(name, &part));
  }
}

static void expect_same(const choral_matrix* a, const choral_matrix* b) {
  static float got[2][kRows * kWide];
  from_device(got[0], a->data, sizeof got[0]);
  from_device(got[1], b->data, sizeof got[1]);
  CHECK(memcmp(got[0], got[1], sizeof got[0]) == 0);
}

static void test_slices(void) {
  float values[kSlots * kRank * kIn + kSlices];
  const choral_op* ops = NULL;
  int64_t count = 0;
  OK(plugin->load_fused_ops(device, &ops, &count));
  const choral_op *shrink = find_op(ops, count, "lora_shrink"), *expand = find_op(ops, count, "lora_expand");
  CHECK(shrink != NULL && expand != NULL);
  fill(values, sizeof values / sizeof *values);
  for (int sequences = 0; sequences < 2; ++sequences) {
    const choral_lora_args none = {.header = CHORAL_HEADER(choral_lora_args)};
    const choral_lora_args named = sequences ? by_sequence(none) : by_row(none);
    choral_lora_slices_args together = make_slices(&named, values), parts = make_slices(&named, values);
    OK(shrink->run(device, stream, &together));
    run_parts(&parts, &named, 0);
    for (int i = 0; i < kSlices; ++i) expect_same(&together.slices[i].middle, &parts.slices[i].middle);
    for_expand(&together);
    for_expand(&parts);
    OK(expand->run(device, stream, &together));
    run_parts(&parts, &named, 1);
    expect_same(&together.y, &parts.y);

    choral_lora_slices_args wrong = together; /* and nothing of it is done */
    wrong.slices[kSlices - 1].y_begin = kWide - outs[kSlices - 1] + 1;
    REFUSED(expand->run(device, stream, &wrong), "beyond y's columns");
    wrong.slice_count = CHORAL_LORA_SLICES + 1;
    REFUSED(expand->run(device, stream, &wrong), "number of slices");
    expect_same(&together.y, &parts.y);
    release_slices(&together);
    release_slices(&parts);
    release_slots(&named);
  }
}

void test_lora(void) {
  test_products(CHORAL_F32);
  test_products(CHORAL_F16);
  test_products(CHORAL_BF16);
  test_ranks();
  test_slices();

  float factors[kSlots * kOut], y[kRows * kOut], scaled[kRows * kOut];
  fill(factors, kSlots * kOut);
  fill(y, kRows * kOut);
  choral_lora_args args = {.header = CHORAL_HEADER(choral_lora_args),
                           .stack = {to_device(factors, sizeof factors), kSlots, 1, kOut, CHORAL_F32, 0},
                           .y = matrix_to_device(y, kRows, kOut, kOut)};
  args = by_row(args);
  OK(run("bgmv_scale", &args));
  from_device(scaled, args.y.data, sizeof scaled);
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < kOut; ++c) {
      const float factor = of_row[i] < 0 ? 1.0f : factors[of_row[i] * kOut + c];
      CHECK(scaled[i * kOut + c] == y[i * kOut + c] * factor);
    }
  }

  choral_lora_args wrong = args;
  wrong.stack.dtype = CHORAL_BF16;
  REFUSED(run("bgmv_scale", &wrong), "factors f32");
  wrong = args;
  wrong.stack.cols = kOut + 1;
  REFUSED(run("bgmv_scale", &wrong), "do not fit");
  wrong.stack.slots = INT64_MAX;
  REFUSED(run("bgmv_scale", &wrong), "fit");
  wrong = args;
  wrong.x = args.y;
  wrong.stack.rows = kOut;
  wrong.stack.cols = kOut;
  wrong.stack.slots = 0;
  wrong.slice_begin = 1;
  REFUSED(run("bgmv_expand_slice", &wrong), "beyond y's columns");
  REFUSED(run("sgmv_shrink", &(choral_lora_args){.header = args.header, .stack = args.stack, .x = args.y, .y = args.y}), "rank");
  const int32_t unknown[kRows] = {0, 0, kSlots, 0, 0, 0, 0};
  wrong = args;
  wrong.slot_of = to_device(unknown, sizeof unknown);
  OK(run("bgmv_scale", &wrong));
  REFUSED(plugin->memory->stream_synchronize(device, stream), "slot 3 of 3");
  release(wrong.slot_of);
  release(args.stack.data);
  release(args.y.data);
  release_slots(&args);
}
