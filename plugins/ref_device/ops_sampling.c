/* What is done to logits: the soft cap, and the choice of a token, by sorting the whole row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "mapping.h"
#include "ops.h"
#include "queue.h"
#include "row_math.h"

#define GREEDY_TEMPERATURE 1e-5f

static void run_soft_cap(const void* p, ref_failure* failure) {
  const choral_soft_cap_args* a = p;
  (void)failure;
  for (int64_t i = 0; i < a->y.rows; ++i) {
    float* y = ref_row(&a->y, i);
    for (int64_t j = 0; j < a->y.cols; ++j) y[j] = a->cap * tanhf(y[j] / a->cap);
  }
}

choral_status* ref_soft_cap(choral_device* device, choral_stream* stream, const void* args) {
  choral_soft_cap_args a;
  ref_read(&a, args, sizeof a);
  choral_status* error = NULL;
  ref_expect(a.cap > 0.0f, "soft_cap", "the cap is positive", &error);
  a.y = ref_map_matrix(device, "soft_cap y", a.y, &error);
  return error != NULL ? error : ref_submit(device, stream, run_soft_cap, &a, sizeof a);
}

typedef struct candidate {
  float logit;
  int32_t token;
} candidate;

/* More likely first, ties by the lower id. */
static int by_likelihood(const void* a, const void* b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->token < y->token ? -1 : x->token > y->token;
}

static int by_token(const void* a, const void* b) {
  const candidate *x = a, *y = b;
  return x->token < y->token ? -1 : x->token > y->token;
}

/* The tokens that are left, the most likely first; how many. NaNs are none. */
static int32_t rank(const float* logits, int32_t vocab, candidate* to) {
  int32_t count = 0;
  for (int32_t t = 0; t < vocab; ++t) {
    if (logits[t] > -INFINITY) to[count++] = (candidate){logits[t], t};
  }
  qsort(to, (size_t)count, sizeof *to, by_likelihood);
  return count;
}

static double log_sum_exp(const float* logits, int32_t vocab) {
  float most = -INFINITY;
  for (int32_t t = 0; t < vocab; ++t) {
    if (isnan(logits[t])) return NAN;
    if (logits[t] > most) most = logits[t];
  }
  if (isinf(most)) return most;
  double sum = 0.0;
  for (int32_t t = 0; t < vocab; ++t) sum += exp((double)(logits[t] - most));
  return most + log(sum);
}

static float logprob_of(const float* logits, int32_t vocab, double log_sum, int32_t token) {
  return token >= 0 && token < vocab ? (float)(logits[token] - log_sum) : -INFINITY;
}

static int32_t place_top(const choral_sample_args* a, const choral_sampling_row* row, const float* logits, double log_sum,
                         candidate* ranked) {
  choral_token_logprob* top = a->top + row->top_begin;
  const int32_t count = row->named_begin < 0 ? rank(logits, row->vocab, ranked) : row->top_count;
  const int32_t filled = count < row->top_count ? count : row->top_count;
  for (int32_t i = 0; i < filled; ++i) {
    const int32_t token = row->named_begin < 0 ? ranked[i].token : a->named[row->named_begin + i];
    top[i] = (choral_token_logprob){token, logprob_of(logits, row->vocab, log_sum, token)};
  }
  return filled;
}

static void edit(const choral_sample_args* a, const choral_sampling_row* row, float* logits) {
  for (int32_t i = row->edit_begin; i < row->edit_begin + row->edit_count; ++i) {
    const choral_logit_edit* e = &a->edits[i];
    float* logit = &logits[e->token];
    if (e->bias == -INFINITY) {
      *logit = -INFINITY;
      continue;
    }
    const float biased = *logit + e->bias;
    *logit = (biased > 0.0f ? biased / e->repetition : biased * e->repetition) - e->frequency - e->presence;
  }
  for (int32_t t = 0; t < row->vocab && row->mask_words > 0; ++t) {
    const uint32_t word = t / 32 < row->mask_words ? a->mask_words[row->mask_begin + t / 32] : 0;
    if ((word >> t % 32 & 1u) == 0) logits[t] = -INFINITY;
  }
}

/* How many of the ranked ones the filters keep, a leading part of them. `weights` are theirs. */
static int32_t filter(const choral_sampling_row* row, const candidate* ranked, const double* weights, int32_t count) {
  while (weights[count - 1] < row->min_p) --count;
  if (row->top_k > 0 && row->top_k < count) {
    const float kth = ranked[row->top_k - 1].logit;
    while (ranked[count - 1].logit < kth) --count;
  }
  if (row->top_p >= 1.0f) return count;
  double total = 0.0, sum = 0.0;
  for (int32_t i = 0; i < count; ++i) total += weights[i];
  int32_t kept = 0;
  while (kept < count && (kept == 0 || sum < row->top_p * total)) sum += weights[kept++];
  return kept;
}

static int32_t draw(const choral_sampling_row* row, candidate* ranked, double* weights, int32_t count) {
  const float most = ranked[0].logit;
  if (row->temperature < GREEDY_TEMPERATURE) return ranked[0].token;
  for (int32_t i = 0; i < count; ++i) weights[i] = exp(((double)ranked[i].logit - most) / row->temperature);
  count = filter(row, ranked, weights, count);
  qsort(ranked, (size_t)count, sizeof *ranked, by_token);
  double total = 0.0, sum = 0.0;
  for (int32_t i = 0; i < count; ++i) total += weights[i] = exp(((double)ranked[i].logit - most) / row->temperature);
  int32_t chosen = ranked[0].token;
  for (int32_t i = 0; i < count && sum <= row->uniform * total; ++i) {
    if (weights[i] > 0.0) chosen = ranked[i].token;
    sum += weights[i];
  }
  return chosen;
}

static int32_t outcome_of(const float* logits, int32_t vocab) {
  int32_t outcome = CHORAL_NO_TOKEN_LEFT;
  for (int32_t t = 0; t < vocab; ++t) {
    if (isnan(logits[t])) return CHORAL_LOGITS_NAN;
    if (logits[t] == INFINITY) outcome = CHORAL_LOGITS_INFINITE;
    if (logits[t] > -INFINITY && outcome == CHORAL_NO_TOKEN_LEFT) outcome = CHORAL_TOKEN_CHOSEN;
  }
  return outcome;
}

/* What a fault build may pass over of a row. */
enum { kMasks = 1, kEdits = 2, kTopK = 4, kTopP = 8, kMinP = 16 };

typedef struct sample_call {
  choral_sample_args args;
  int passed_over;
} sample_call;

static choral_sampling_row row_of(const sample_call* call, int64_t i) {
  choral_sampling_row row = call->args.rows[i];
  if ((call->passed_over & kMasks) != 0) row.mask_words = 0;
  if ((call->passed_over & kEdits) != 0) row.edit_count = 0;
  if ((call->passed_over & kTopK) != 0) row.top_k = 0;
  if ((call->passed_over & kTopP) != 0) row.top_p = 1.0f;
  if ((call->passed_over & kMinP) != 0) row.min_p = 0.0f;
  return row;
}

/* What a row is worked on with, [vocab] each. */
typedef struct workspace {
  float* raw;
  double* weights;
  candidate* ranked;
} workspace;

static void sample_row(const choral_sample_args* a, const choral_sampling_row* row, int64_t i, const workspace* work) {
  float* logits = ref_row(&a->logits, i);
  choral_sampled_row out = {-1, CHORAL_TOKEN_CHOSEN, 0.0f, 0};
  double log_sum = 0.0;
  memcpy(work->raw, logits, (size_t)row->vocab * sizeof *logits);
  if (row->wants_logprob != 0) {
    log_sum = log_sum_exp(logits, row->vocab);
    out.top_count = place_top(a, row, logits, log_sum, work->ranked);
  }
  edit(a, row, logits);
  out.outcome = outcome_of(logits, row->vocab);
  if (out.outcome == CHORAL_TOKEN_CHOSEN) {
    out.token = draw(row, work->ranked, work->weights, rank(logits, row->vocab, work->ranked));
    if (row->wants_logprob != 0) out.logprob = logprob_of(work->raw, row->vocab, log_sum, out.token);
  }
  a->sampled[i] = out;
}

static int within(int64_t begin, int64_t count, int64_t size) { return begin >= 0 && count >= 0 && begin + count <= size; }

/* Whether what the row speaks of is there. */
static int is_sound(const choral_sample_args* a, const choral_sampling_row* row) {
  if (row->vocab < 1 || row->vocab > a->logits.cols || !within(row->edit_begin, row->edit_count, a->edit_count) ||
      !within(row->mask_begin, row->mask_words, a->mask_word_count))
    return 0;
  for (int32_t i = row->edit_begin; i < row->edit_begin + row->edit_count; ++i) {
    if (a->edits[i].token < 0 || a->edits[i].token >= row->vocab) return 0;
  }
  if (row->wants_logprob == 0) return 1;
  if (row->named_begin >= 0 && !within(row->named_begin, row->top_count, a->named_count)) return 0;
  return within(row->top_begin, row->top_count, a->top_count);
}

static void run_sample(const void* p, ref_failure* failure) {
  const sample_call* call = p;
  const choral_sample_args* a = &call->args;
  const size_t cols = (size_t)a->logits.cols;
  const workspace work = {malloc(cols * sizeof(float)), malloc(cols * sizeof(double)), malloc(cols * sizeof(candidate))};
  if (work.raw == NULL || work.weights == NULL || work.ranked == NULL) {
    ref_fail(failure, CHORAL_RESOURCE_EXHAUSTED, "sample: no room to sort %lld logits", (long long)a->logits.cols);
  }
  for (int64_t i = 0; i < a->logits.rows && failure->code == 0; ++i) {
    const choral_sampling_row row = row_of(call, i);
    if (is_sound(a, &row)) {
      sample_row(a, &row, i, &work);
    } else {
      ref_fail(failure, CHORAL_INVALID_ARGUMENT, "sample: row %lld speaks of what is not there", (long long)i);
    }
  }
  free(work.raw);
  free(work.weights);
  free(work.ranked);
}

choral_status* ref_sample(choral_device* device, choral_stream* stream, const void* args) {
  sample_call call = {.passed_over = 0};
  choral_sample_args* a = &call.args;
  ref_read(a, args, sizeof *a);
  choral_status* error = NULL;
  const char* name = "sample";
  a->logits = ref_map_matrix(device, name, a->logits, &error);
  a->rows = ref_map_array(device, name, a->rows, a->logits.rows, sizeof *a->rows, &error);
  a->edits = ref_map_array(device, name, a->edits, a->edit_count, sizeof *a->edits, &error);
  a->mask_words = ref_map_array(device, name, a->mask_words, a->mask_word_count, sizeof *a->mask_words, &error);
  a->named = ref_map_array(device, name, a->named, a->named_count, sizeof *a->named, &error);
  a->sampled = ref_map_array(device, name, a->sampled, a->logits.rows, sizeof *a->sampled, &error);
  a->top = ref_map_array(device, name, a->top, a->top_count, sizeof *a->top, &error);
  static const char* const features[] = {"masks", "edits", "top_k", "top_p", "min_p"};
  for (int i = 0; i < 5; ++i) call.passed_over |= ref_passes_over(name, features[i], &error) << i;
  return error != NULL ? error : ref_submit(device, stream, run_sample, &call, sizeof call);
}
