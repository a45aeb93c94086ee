#define _POSIX_C_SOURCE 200809L /* pthread_sigmask */
#include "queue.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { kQueueLength = 256, kArgWords = 64 };

typedef struct command {
  ref_run_fn run;
  int always;
  uint64_t args[kArgWords];
} command;

struct choral_stream {
  choral_stream* next; /* of the device's list */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t work;       /* for the thread */
  pthread_cond_t room;       /* for the host: a command is done */
  const ref_memory* guarded; /* of the first stream: the host must not touch it while commands are queued */
  int locked;                /* the host's thread only, as the one before */
  uint64_t pushed, done;
  int stopping;
  ref_failure failure;
  command commands[kQueueLength];
};

void ref_fail(ref_failure* failure, int32_t code, const char* format, ...) {
  if (failure->code != 0) return;
  va_list list;
  va_start(list, format);
  vsnprintf(failure->text, sizeof failure->text, format, list);
  va_end(list);
  failure->code = code;
}

static void* run_commands(void* context) {
  choral_stream* stream = context;
  pthread_mutex_lock(&stream->mutex);
  for (;;) {
    while (stream->done == stream->pushed && !stream->stopping) pthread_cond_wait(&stream->work, &stream->mutex);
    if (stream->done == stream->pushed) break;
    const command* next = &stream->commands[stream->done % kQueueLength]; /* not reused before it counts as done */
    if (stream->failure.code == 0 || next->always) {
      ref_failure failure;
      failure.code = 0;
      pthread_mutex_unlock(&stream->mutex);
      next->run(next->args, &failure);
      pthread_mutex_lock(&stream->mutex);
      if (failure.code != 0 && stream->failure.code == 0) stream->failure = failure;
    }
    ++stream->done;
    pthread_cond_broadcast(&stream->room);
  }
  pthread_mutex_unlock(&stream->mutex);
  return NULL;
}

choral_status* ref_stream_create(choral_device* device, choral_stream** result) {
  choral_stream* stream = calloc(1, sizeof *stream);
  if (stream == NULL) return ref_error(CHORAL_RESOURCE_EXHAUSTED, "no host memory for a stream");
  pthread_mutex_init(&stream->mutex, NULL);
  pthread_cond_init(&stream->work, NULL);
  pthread_cond_init(&stream->room, NULL);
  sigset_t all, before; /* signals are the host's business: Ctrl-C must not land here */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int reason = pthread_create(&stream->thread, NULL, run_commands, stream);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (reason != 0) {
    free(stream);
    return ref_error(CHORAL_RESOURCE_EXHAUSTED, "cannot start a stream's thread: %s", strerror(reason));
  }
  if (device->streams == NULL) stream->guarded = &device->memory;
  stream->next = device->streams;
  device->streams = stream;
  *result = stream;
  return NULL;
}

void ref_stream_destroy(choral_device* device, choral_stream* stream) {
  if (stream == NULL) return;
  pthread_mutex_lock(&stream->mutex);
  stream->stopping = 1; /* what is queued is still done */
  pthread_cond_signal(&stream->work);
  pthread_mutex_unlock(&stream->mutex);
  pthread_join(stream->thread, NULL);
  for (choral_stream** link = &device->streams; *link != NULL; link = &(*link)->next) {
    if (*link == stream) {
      *link = stream->next;
      break;
    }
  }
  pthread_cond_destroy(&stream->room);
  pthread_cond_destroy(&stream->work);
  pthread_mutex_destroy(&stream->mutex);
  free(stream);
}

void ref_push(choral_stream* stream, ref_run_fn run, const void* args, size_t arg_bytes, int always) {
  if (arg_bytes > sizeof stream->commands[0].args) abort(); /* a mistake of this plug-in, found by its first test */
  if (stream->guarded != NULL && !stream->locked) {
    ref_memory_lock(stream->guarded);
    stream->locked = 1;
  }
  pthread_mutex_lock(&stream->mutex);
  while (stream->pushed - stream->done == kQueueLength) pthread_cond_wait(&stream->room, &stream->mutex);
  command* slot = &stream->commands[stream->pushed % kQueueLength];
  slot->run = run;
  slot->always = always;
  memcpy(slot->args, args, arg_bytes);
  ++stream->pushed;
  pthread_cond_signal(&stream->work);
  pthread_mutex_unlock(&stream->mutex);
}

choral_status* ref_submit(choral_device* device, choral_stream* stream, ref_run_fn run, const void* args, size_t arg_bytes) {
  if (stream == NULL) return ref_error(CHORAL_INVALID_ARGUMENT, "an operator needs a stream");
  __atomic_add_fetch(&device->op_calls, 1, __ATOMIC_RELAXED);
  if (ref_fault.fail_op && ref_counted_calls(device) == ref_fault_mark()) {
    return ref_error(CHORAL_INTERNAL, "operator call %lld fails: this is a fault build", (long long)device->op_calls);
  }
  ref_push(stream, run, args, arg_bytes, 0);
  return NULL;
}

int ref_stream_is_beside(const choral_stream* stream) { return stream->next != NULL; }

void ref_drain(choral_stream* stream) {
  pthread_mutex_lock(&stream->mutex);
  while (stream->done != stream->pushed) pthread_cond_wait(&stream->room, &stream->mutex);
  pthread_mutex_unlock(&stream->mutex);
}

void ref_drain_all(choral_device* device) {
  for (choral_stream* stream = device->streams; stream != NULL; stream = stream->next) ref_drain(stream);
}

choral_status* ref_stream_synchronize(choral_device* device, choral_stream* stream) {
  if (stream == NULL) return ref_error(CHORAL_INVALID_ARGUMENT, "stream_synchronize needs a stream");
  ref_drain(stream);
  if (stream->locked) ref_memory_unlock(stream->guarded);
  stream->locked = 0;
  if (ref_is_lost(device)) return ref_error(CHORAL_UNAVAILABLE, "the device does not answer any more: this is a fault build");
  pthread_mutex_lock(&stream->mutex);
  const ref_failure failure = stream->failure;
  stream->failure.code = 0;
  pthread_mutex_unlock(&stream->mutex);
  return failure.code == 0 ? NULL : ref_error(failure.code, "%s", failure.text);
}
