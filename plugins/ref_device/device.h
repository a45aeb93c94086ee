/* The reference device: what its files share. A device in software with a memory of its own, which the host cannot touch, and a
 * queue that runs behind the host's back: all that makes a device difficult, without hardware. It is for tests and for reading;
 * every loop is a plain one. C99 and choral/plugin.h only.
 *
 * One device belongs to one thread of the host at a time (the header's rule), so nothing here is locked but the queues, and the
 * list of allocations for the one thread that copies beside. What runs on a queue's thread gets mapped pointers, touches nothing
 * of choral_device, and reports through ref_failure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "choral/plugin.h"
#include "memory.h"

extern const choral_host* ref_host; /* set by the query, before anything else is called */

struct choral_device {
  ref_memory memory;
  choral_pool* pool;
  choral_stream* streams;
  int64_t op_calls;    /* this and the next: read by copies beside, so atomically */
  int64_t tried_calls; /* of op_calls: those before the first forward pass, by which the host tries the operators */
  int64_t oot_calls;   /* of the custom op */
  int64_t steps;
  void* fused_library;
};

/* An error of this device as the host's status: what, where, what to do. */
choral_status* ref_error(int32_t code, const char* format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void ref_log(int32_t level, const char* format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Structs of the host may be older or newer than ours: each side touches what both know. ref_read fills the rest with zeros,
 * ref_write leaves the header alone. */
void ref_read(void* ours, const void* theirs, size_t our_size);
void ref_write(void* theirs, const void* ours, size_t our_size);

/* device.c, config.c, transfer.c, weights.c, fused_load.c: the parts of the plug-in's table. */
choral_status* ref_open(const choral_device_config* config, choral_device** device);
void ref_close(choral_device* device);
choral_status* ref_check_and_update_config(choral_config* config);
choral_status* ref_supports_op(choral_device* device, const choral_op_query* query, choral_support* support);
choral_status* ref_load_fused_ops(choral_device* device, const choral_op** ops, int64_t* op_count);
extern const choral_memory_api ref_memory_api;
extern const choral_weight_api ref_weight_api;
extern const choral_worker_class ref_workers[1];
#define REF_DEVICES 2 /* each has memory of its own */
uint64_t ref_region_bytes(void);

/* plugin.c: the whole table. The query gives it out; a fault build (faults.c) spoils a copy first. */
const choral_plugin* ref_describe(const choral_host* host);

/* What a fault build changes while the device runs. All zero in the real one. */
typedef struct ref_faults {
  int32_t fail_op;   /* the op call at the mark returns an error */
  int32_t lose;      /* from the op call at the mark on, the device is gone */
  float norm_factor; /* norms are off by this much */
  int company;       /* norms of several rows have another last bit than those of one */
  int32_t lose_rows; /* read_row returns an error */
  int32_t fill;      /* from the op call at the mark on, there is no more memory */
  int32_t no_empty;  /* no bytes are no memory */
  int32_t dirty;     /* memory is not cleared */
  int32_t features;  /* features.c */
} ref_faults;
extern const ref_faults ref_fault;
/* Whether the operator is to pass over this feature of its arguments; an error if it is to refuse it. */
int ref_passes_over(const char* op, const char* feature, choral_status** error);
int64_t ref_fault_mark(void); /* CHORAL_REF_FAULT_AT, else 100; counts from 1 in the first forward pass */
int64_t ref_counted_calls(const choral_device* device);
int ref_is_lost(const choral_device* device);
