/* What this device says to a configuration, and what it serves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "mapping.h"
#include "numbers.h"
#include "weights.h"

enum { kMostSequences = 4096 };

choral_status* ref_check_and_update_config(choral_config* theirs) {
  choral_config config;
  ref_read(&config, theirs, sizeof config);
  if (config.max_num_seqs > kMostSequences) {
    return ref_error(CHORAL_INVALID_ARGUMENT,
                     "max_num_seqs is %d, this device computes at most %d at the same time; set it lower", config.max_num_seqs,
                     kMostSequences);
  }
  if (strcmp(config.worker_cls, "auto") == 0) snprintf(config.worker_cls, sizeof config.worker_cls, "ref_device");
  if (config.custom_ops[0] == '\0' || strcmp(config.custom_ops, "auto") == 0) {
    snprintf(config.custom_ops, sizeof config.custom_ops, "all");
  }
  /* For tests: what a device does that multiplies integers best. */
  const char* wish = getenv("CHORAL_REF_QUANTIZATION");
  if (wish != NULL && strcmp(config.quantization, "auto") == 0) {
    snprintf(config.quantization, sizeof config.quantization, "%s", wish);
  }
  ref_write(theirs, &config, sizeof config);
  return NULL;
}

static int one_of(const char* name, const char* const* names) {
  while (*names != NULL && strcmp(name, *names) != 0) ++names;
  return *names != NULL;
}

choral_status* ref_supports_op(choral_device* device, const choral_op_query* theirs, choral_support* answer) {
  static const char* const of_cache[] = {"write_kv", "paged_attention", "rope_write_kv", NULL};
  (void)device;
  choral_op_query query;
  ref_read(&query, theirs, sizeof query);
  choral_support support;
  memset(&support, 0, sizeof support);
  support.verdict = CHORAL_YES;
  if (query.version != 1) {
    support.verdict = CHORAL_NO;
    snprintf(support.reason, sizeof support.reason, "%s is known in version 1, not in %d", query.name, query.version);
  } else if (one_of(query.name, of_cache) && ref_float_bytes(query.kv_dtype) == 0) {
    support.verdict = CHORAL_NO;
    snprintf(support.reason, sizeof support.reason, "the cache holds f32, f16 or bf16, not element type %d", query.kv_dtype);
  }
  ref_write(answer, &support, sizeof support);
  return NULL;
}

static choral_status* on_start(choral_device* device) {
  device->steps = 0;
  return NULL;
}

static choral_status* begin_step(choral_device* device, choral_stream* stream, const choral_step* step) {
  (void)device, (void)stream, (void)step;
  return NULL;
}

static choral_status* end_step(choral_device* device, choral_stream* stream, const choral_step* step) {
  (void)stream, (void)step;
  ++device->steps;
  return NULL;
}

static void on_stop(choral_device* device) {
  ref_log(CHORAL_LOG_DEBUG, "the worker stops after %lld steps", (long long)device->steps);
}

const choral_worker_class ref_workers[1] = {
    {CHORAL_HEADER(choral_worker_class), "ref_device", on_start, begin_step, end_step, on_stop},
};
