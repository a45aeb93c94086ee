/* Instead of query.c: the same device with one thing wrong, for the host's tests. Compiled once for each fault with
 * -DREF_FAULT_<name> and -DREF_FAULT_NAME="ref_fault_<name>"; what each does stands beside its #if. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "queue.h"

/* The device works up to the mark, CHORAL_REF_FAULT_AT or 100, and then … */
#if defined(REF_FAULT_fails_at_100) /* … one operator call returns an error */
const ref_faults ref_fault = {.fail_op = 1};
#elif defined(REF_FAULT_lost_at_100)   /* … synchronising and copies say CHORAL_UNAVAILABLE for good */
const ref_faults ref_fault = {.lose = 1};
#elif defined(REF_FAULT_wrong_numbers) /* rms_norm and rms_norm_heads are 1 % too large */
const ref_faults ref_fault = {.norm_factor = 0.01f};
#elif defined(REF_FAULT_company)       /* rms_norm and rms_norm_heads of several rows are off by a rounding */
const ref_faults ref_fault = {.company = 1};
#elif defined(REF_FAULT_rows_lost)     /* … one operator call returns an error; weights are never read back */
const ref_faults ref_fault = {.fail_op = 1, .lose_rows = 1};
#elif defined(REF_FAULT_full_at_100)   /* … there is no more memory */
const ref_faults ref_fault = {.fill = 1};
#elif defined(REF_FAULT_no_empty)      /* an allocation of no bytes is null */
const ref_faults ref_fault = {.no_empty = 1};
#elif defined(REF_FAULT_dirty)         /* memory is not cleared */
const ref_faults ref_fault = {.dirty = 1};
#elif defined(REF_FAULT_features)      /* a feature of arguments is passed over or refused (features.c) */
const ref_faults ref_fault = {.features = 1};
#else
const ref_faults ref_fault = {0};
#endif

#if defined(REF_FAULT_missing_symbol) /* a library that is no plug-in */
CHORAL_PLUGIN_EXPORT int choral_ref_no_plugin(void);
int choral_ref_no_plugin(void) { return ref_fault.lose; }

#elif defined(REF_FAULT_garbage) /* the table is 0xA5 all over */
const choral_plugin* choral_plugin_query(const choral_host* host) {
  static uint64_t bytes[512];
  (void)host;
  memset(bytes, 0xA5, sizeof bytes);
  return (const choral_plugin*)(const void*)bytes;
}

#elif defined(REF_FAULT_null) /* no table */
const choral_plugin* choral_plugin_query(const choral_host* host) {
  (void)host;
  return NULL;
}

#else
#if defined(REF_FAULT_probe_fails)
static choral_status* bad_probe(choral_probe* probe) {
  (void)probe;
  return ref_error(CHORAL_INTERNAL, "the driver does not answer: this is a fault build");
}
#elif defined(REF_FAULT_no_device)
static choral_status* empty_probe(choral_probe* theirs) {
  choral_probe ours;
  memset(&ours, 0, sizeof ours);
  snprintf(ours.reason, sizeof ours.reason, "there is no device in this machine: this is a fault build");
  ref_write(theirs, &ours, sizeof ours);
  return NULL;
}
#elif defined(REF_FAULT_open_fails)
static choral_status* bad_open(const choral_device_config* config, choral_device** device) {
  (void)config, (void)device;
  return ref_error(CHORAL_RESOURCE_EXHAUSTED, "the device is in use by another process: this is a fault build");
}
#elif defined(REF_FAULT_stray_loop)
/* A thread that uses the host's threads whenever it likes, until it is refused. What it was told comes out where the stream is
 * waited for. */
static pthread_t stray;
static choral_pool* stray_pool;
static choral_status* stray_told;
static int stray_ends;
static void do_nothing(void* context, int64_t begin, int64_t end) { (void)context, (void)begin, (void)end; }
static void* loop_anywhere(void* context) {
  const struct timespec moment = {0, 200000};
  choral_status* told = NULL;
  while (told == NULL && !__atomic_load_n(&stray_ends, __ATOMIC_RELAXED)) {
    nanosleep(&moment, NULL);
    told = ref_host->parallel_for(stray_pool, 100, 1, do_nothing, NULL);
  }
  __atomic_store_n(&stray_told, told, __ATOMIC_RELEASE);
  return context;
}
static choral_status* stray_open(const choral_device_config* theirs, choral_device** device) {
  choral_status* status = ref_open(theirs, device);
  if (status != NULL) return status;
  stray_pool = theirs->pool;
  stray_ends = 0;
  if (pthread_create(&stray, NULL, loop_anywhere, NULL) == 0) return NULL;
  ref_close(*device);
  return ref_error(CHORAL_RESOURCE_EXHAUSTED, "cannot start a thread");
}
static choral_status* stray_synchronize(choral_device* device, choral_stream* stream) {
  choral_status* told = __atomic_exchange_n(&stray_told, NULL, __ATOMIC_ACQUIRE);
  return told != NULL ? told : ref_stream_synchronize(device, stream);
}
static void stray_close(choral_device* device) {
  __atomic_store_n(&stray_ends, 1, __ATOMIC_RELAXED);
  pthread_join(stray, NULL);
  ref_host->status_release(__atomic_exchange_n(&stray_told, NULL, __ATOMIC_ACQUIRE));
  ref_close(device);
}
#elif defined(REF_FAULT_newer_minor)
/* From a later minor version: structs are longer than this host knows, elements of tables as well. It must just work. */
typedef struct newer_op {
  choral_op op;
  unsigned char unknown[24];
} newer_op;
static newer_op newer_ops[32];
typedef struct newer_plugin {
  choral_plugin plugin;
  unsigned char unknown[64];
} newer_plugin;
#endif

const choral_plugin* choral_plugin_query(const choral_host* host) {
  const choral_plugin* good = ref_describe(host);
  if (good == NULL) return NULL;
#if defined(REF_FAULT_newer_minor)
  static newer_plugin longer;
  memset(&longer, 0xEE, sizeof longer);
  memset(newer_ops, 0xEE, sizeof newer_ops);
  for (int64_t i = 0; i < good->op_count; ++i) {
    newer_ops[i].op = good->ops[i];
    newer_ops[i].op.header.struct_size = sizeof *newer_ops;
    newer_ops[i].op.header.abi_minor = CHORAL_ABI_MINOR + 1;
  }
  longer.plugin = *good;
  longer.plugin.name = REF_FAULT_NAME;
  longer.plugin.header.struct_size = sizeof longer;
  longer.plugin.header.abi_minor = CHORAL_ABI_MINOR + 1;
  longer.plugin.ops = &newer_ops[0].op;
  return &longer.plugin;
#else
  static choral_plugin plugin;
  plugin = *good;
  plugin.name = REF_FAULT_NAME;
#if defined(REF_FAULT_wrong_version) /* made for another major version */
  plugin.header.abi_major = 99;
#elif defined(REF_FAULT_bare)        /* without what is optional of memory */
  static choral_memory_api memory;
  memory = *good->memory;
  memory.capacity = NULL;
  memory.copies_beside = 0;
  plugin.memory = &memory;
#elif defined(REF_FAULT_stray_loop)
  static choral_memory_api memory;
  memory = *good->memory;
  memory.stream_synchronize = stray_synchronize;
  plugin.memory = &memory;
  plugin.open_device = stray_open;
  plugin.close_device = stray_close;
#elif defined(REF_FAULT_unasked)   /* does not say what it serves: every form of an operator that it has */
  plugin.supports_op = NULL;
#elif defined(REF_FAULT_truncated) /* ends before the functions that every plug-in has */
  plugin.header.struct_size = offsetof(choral_plugin, open_device);
#elif defined(REF_FAULT_probe_fails)
  plugin.probe = bad_probe;
#elif defined(REF_FAULT_no_device)
  plugin.probe = empty_probe;
#elif defined(REF_FAULT_open_fails)
  plugin.open_device = bad_open;
#elif defined(REF_FAULT_slow_load)    /* takes its time */
  const struct timespec three_seconds = {3, 0};
  nanosleep(&three_seconds, NULL);
#elif defined(REF_FAULT_bad_override) /* a CustomOp that no layer declares */
  static choral_op custom_op;
  custom_op = good->custom_ops[0];
  custom_op.name = "SiluAndMulClamp";
  plugin.custom_ops = &custom_op;
#endif
  return &plugin;
#endif
}
#endif
