/* Adapters on stacks. A row's sum runs over k in order in one float, and knows nothing of how its slot was named: so the sgmv
 * forms give the bits of the bgmv ones. It ends where the slot's rank does: the zeros beyond would only make a sum of -0 one of
 * +0, which every sum of an expand becomes. */
#include "device.h"
#include "mapping.h"
#include "numbers.h"
#include "ops.h"
#include "queue.h"

typedef enum form { kShrink, kExpand, kScale } form;

static float stack_element(const choral_lora_stack* stack, int64_t index) {
  const uint16_t* halves = stack->data;
  if (stack->dtype == CHORAL_F32) return ((const float*)stack->data)[index];
  return stack->dtype == CHORAL_BF16 ? ref_from_bf16(halves[index]) : ref_from_f16(halves[index]);
}

static void run_row(const choral_lora_args* a, form what, int64_t row, int32_t slot) {
  float* y = (float*)a->y.data + row * a->y.stride;
  if (what == kScale) {
    for (int64_t c = 0; c < a->y.cols; ++c) y[c] *= stack_element(&a->stack, slot * a->stack.cols + c);
    return;
  }
  const float* x = (const float*)a->x.data + row * a->x.stride;
  const int64_t most = what == kShrink ? a->stack.rows : a->stack.cols, rank = a->ranks == NULL ? most : a->ranks[slot];
  for (int64_t j = 0; j < a->stack.rows; ++j) {
    const int64_t first = (slot * a->stack.rows + j) * a->stack.cols;
    const int64_t cols = what == kExpand ? rank : j < rank ? a->stack.cols : 0;
    float sum = 0.0f;
    for (int64_t k = 0; k < cols; ++k) sum += x[k] * stack_element(&a->stack, first + k);
    if (what == kShrink) {
      y[j] = a->scaling * sum;
    } else {
      sum += 0.0f;
      y[a->slice_begin + j] = a->add ? y[a->slice_begin + j] + sum : sum;
    }
  }
}

/* Whether the slot is one of the stack's, of a rank that it may have, or -1; else it is an error. */
static int known_slot(const choral_lora_args* a, form what, int32_t slot, ref_failure* failure) {
  const int64_t most = what == kShrink ? a->stack.rows : a->stack.cols;
  if (slot < -1 || slot >= a->stack.slots) {
    ref_fail(failure, CHORAL_INVALID_ARGUMENT, "adapters: slot %d of %lld", slot, (long long)a->stack.slots);
  } else if (slot >= 0 && a->ranks != NULL && (a->ranks[slot] < 0 || a->ranks[slot] > most)) {
    ref_fail(failure, CHORAL_INVALID_ARGUMENT, "adapters: rank %d of %lld", a->ranks[slot], (long long)most);
  } else {
    return 1;
  }
  return 0;
}

static void by_row(const choral_lora_args* a, form what, ref_failure* failure) {
  for (int64_t row = 0; row < a->y.rows; ++row) {
    if (!known_slot(a, what, a->slot_of[row], failure)) return;
    if (a->slot_of[row] >= 0) run_row(a, what, row, a->slot_of[row]);
  }
}

static void by_sequence(const choral_lora_args* a, form what, ref_failure* failure) {
  for (int64_t s = 0; s < a->sequence_count; ++s) {
    if (!known_slot(a, what, a->slot_of[s], failure)) return;
    if (a->starts[s] < 0 || a->lengths[s] < 0 || (int64_t)a->starts[s] + a->lengths[s] > a->y.rows) {
      ref_fail(failure, CHORAL_INVALID_ARGUMENT, "adapters: sequence %lld has rows that are not there", (long long)s);
      return;
    }
    for (int64_t i = 0; i < a->lengths[s] && a->slot_of[s] >= 0; ++i) run_row(a, what, a->starts[s] + i, a->slot_of[s]);
  }
}

static void run_bgmv_shrink(const void* args, ref_failure* failure) { by_row(args, kShrink, failure); }
static void run_bgmv_expand(const void* args, ref_failure* failure) { by_row(args, kExpand, failure); }
static void run_bgmv_scale(const void* args, ref_failure* failure) { by_row(args, kScale, failure); }
static void run_sgmv_shrink(const void* args, ref_failure* failure) { by_sequence(args, kShrink, failure); }
static void run_sgmv_expand(const void* args, ref_failure* failure) { by_sequence(args, kExpand, failure); }

/* Arguments as they are queued, or an error. */
static choral_status* map(choral_device* device, choral_lora_args* args, const char* name, form what, int sequences) {
  choral_lora_args a = *args;
  choral_status* error = NULL;
  const int64_t element = ref_float_bytes(a.stack.dtype);
  ref_expect(element != 0 && (what != kScale || a.stack.dtype == CHORAL_F32), name, "stacks hold f32, f16 or bf16; factors f32",
             &error);
  ref_expect(a.stack.slots >= 0 && a.stack.rows >= 0 && a.stack.cols >= 0, name, "a stack has no negative size", &error);
  ref_expect(what == kScale || (a.x.rows == a.y.rows && a.x.cols == a.stack.cols), name, "x [rows, k] and the stack do not fit",
             &error);
  ref_expect(what != kShrink || a.y.cols == a.stack.rows, name, "y is not as wide as the rank", &error);
  ref_expect(what != kExpand || (a.slice_begin >= 0 && a.slice_begin <= a.y.cols - a.stack.rows), name,
             "the slice lies beyond y's columns", &error);
  ref_expect(what != kScale || (a.stack.rows == 1 && a.y.cols == a.stack.cols), name, "factors do not fit y", &error);
  if (a.stack.dtype == CHORAL_BF16 && ref_passes_over(name, "bf16_stack", &error)) a.stack.dtype = CHORAL_F16;
  const uint64_t count = ref_times(ref_times((uint64_t)a.stack.slots, (uint64_t)a.stack.rows), (uint64_t)a.stack.cols);
  ref_expect(error == NULL && count <= INT64_MAX, name, "a stack is too large", &error);
  a.stack.data = ref_map_array(device, name, a.stack.data, (int64_t)count, element, &error);
  if (what != kScale) a.x = ref_map_matrix(device, name, a.x, &error);
  a.y = ref_map_matrix(device, name, a.y, &error);
  if (what == kScale) a.ranks = NULL;
  if (a.ranks != NULL) a.ranks = ref_map_array(device, name, a.ranks, a.stack.slots, sizeof *a.ranks, &error);
  const int64_t named = sequences ? a.sequence_count : a.y.rows;
  a.slot_of = ref_map_array(device, name, a.slot_of, named, sizeof *a.slot_of, &error);
  if (sequences) {
    a.starts = ref_map_array(device, name, a.starts, named, sizeof *a.starts, &error);
    a.lengths = ref_map_array(device, name, a.lengths, named, sizeof *a.lengths, &error);
  }
  *args = a;
  return error;
}

static choral_status* submit(choral_device* device, choral_stream* stream, const void* args, const char* name, form what,
                             int sequences, ref_run_fn run) {
  choral_lora_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = map(device, &a, name, what, sequences);
  return error != NULL ? error : ref_submit(device, stream, run, &a, sizeof a);
}

/* One after the other: what a device gains by one launch for all is its own business. All are looked at before the first is
 * queued, so a call that fails has changed nothing. */
static choral_status* submit_slices(choral_device* device, choral_stream* stream, const void* args, const char* name, form what,
                                    ref_run_fn run_rows, ref_run_fn run_sequences) {
  choral_lora_slices_args a;
  choral_lora_args parts[CHORAL_LORA_SLICES];
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.slice_count >= 1 && a.slice_count <= CHORAL_LORA_SLICES, name, "there is no such number of slices", &error);
  for (int64_t i = 0; error == NULL && i < a.slice_count; ++i) {
    const choral_lora_slice* slice = &a.slices[i];
    const choral_lora_args part = {.x = what == kShrink ? a.x : slice->middle,
                                   .stack = slice->stack,
                                   .y = what == kShrink ? slice->middle : a.y,
                                   .slot_of = a.slot_of,
                                   .starts = a.starts,
                                   .lengths = a.lengths,
                                   .sequence_count = a.sequence_count,
                                   .slice_begin = slice->y_begin,
                                   .scaling = a.scaling,
                                   .add = a.add,
                                   .ranks = slice->ranks};
    parts[i] = part;
    error = map(device, &parts[i], name, what, a.starts != NULL);
  }
  const ref_run_fn run = a.starts != NULL ? run_sequences : run_rows;
  if (error == NULL) error = ref_submit(device, stream, run, &parts[0], sizeof parts[0]);
  for (int64_t i = 1; error == NULL && i < a.slice_count; ++i) ref_push(stream, run, &parts[i], sizeof parts[i], 0);
  return error;
}

choral_status* ref_bgmv_shrink(choral_device* device, choral_stream* stream, const void* args) {
  return submit(device, stream, args, "bgmv_shrink", kShrink, 0, run_bgmv_shrink);
}
choral_status* ref_bgmv_expand(choral_device* device, choral_stream* stream, const void* args) {
  return submit(device, stream, args, "bgmv_expand", kExpand, 0, run_bgmv_expand);
}
choral_status* ref_bgmv_scale(choral_device* device, choral_stream* stream, const void* args) {
  return submit(device, stream, args, "bgmv_scale", kScale, 0, run_bgmv_scale);
}
choral_status* ref_sgmv_shrink(choral_device* device, choral_stream* stream, const void* args) {
  return submit(device, stream, args, "sgmv_shrink", kShrink, 1, run_sgmv_shrink);
}
choral_status* ref_sgmv_expand(choral_device* device, choral_stream* stream, const void* args) {
  return submit(device, stream, args, "sgmv_expand", kExpand, 1, run_sgmv_expand);
}
choral_status* ref_lora_shrink(choral_device* device, choral_stream* stream, const void* args) {
  return submit_slices(device, stream, args, "lora_shrink", kShrink, run_bgmv_shrink, run_sgmv_shrink);
}
choral_status* ref_lora_expand(choral_device* device, choral_stream* stream, const void* args) {
  return submit_slices(device, stream, args, "lora_expand", kExpand, run_bgmv_expand, run_sgmv_expand);
}
