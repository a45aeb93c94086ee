/* Streams. A stream is a thread with a bounded queue of commands, run in order; a full queue makes the host wait.
 * After a command has failed, those behind it are passed over until the host has fetched the error. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "choral/plugin.h"

/* Of the first command that failed; the host's status is made from it by the thread that asks. */
typedef struct ref_failure {
  int32_t code; /* 0: none */
  char text[CHORAL_REASON_SIZE];
} ref_failure;

void ref_fail(ref_failure* failure, int32_t code, const char* format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* Runs on the queue's thread. `args` are the command's own copy; pointers in them are mapped. */
typedef void (*ref_run_fn)(const void* args, ref_failure* failure);

choral_status* ref_stream_create(choral_device* device, choral_stream** stream);
void ref_stream_destroy(choral_device* device, choral_stream* stream);
choral_status* ref_stream_synchronize(choral_device* device, choral_stream* stream);

/* An operator: counted, then queued. */
choral_status* ref_submit(choral_device* device, choral_stream* stream, ref_run_fn run, const void* args, size_t arg_bytes);
/* Anything else. `always` commands run after a failure too. */
void ref_push(choral_stream* stream, ref_run_fn run, const void* args, size_t arg_bytes, int always);
/* Whether it is not the device's first: of another thread, which copies beside the host's. */
int ref_stream_is_beside(const choral_stream* stream);
/* Waits until the queues are empty; errors stay where they are. */
void ref_drain(choral_stream* stream);
void ref_drain_all(choral_device* device);
