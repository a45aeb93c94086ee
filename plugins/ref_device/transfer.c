/* Copies, and the table of memory and order. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "mapping.h"
#include "queue.h"

typedef struct transfer {
  unsigned char* to;
  const unsigned char* from;
  int64_t to_pitch, from_pitch, row_bytes, rows;
  void* staged; /* freed afterwards */
} transfer;

static void run_transfer(const void* p, ref_failure* failure) {
  const transfer* t = p;
  (void)failure;
  for (int64_t row = 0; row < t->rows; ++row) {
    memmove(t->to + row * t->to_pitch, t->from + row * t->from_pitch, (size_t)t->row_bytes);
  }
  free(t->staged);
}

/* From the first byte to the last, if rows do not overlap. */
static uint64_t span_bytes(int64_t pitch, int64_t row_bytes, int64_t rows) {
  const uint64_t before_last = ref_times((uint64_t)(rows - 1), (uint64_t)pitch);
  return before_last > UINT64_MAX - (uint64_t)row_bytes ? UINT64_MAX : before_last + (uint64_t)row_bytes;
}

/* So that a test can see what happens meanwhile: a copy beside steps waits as long as the file of this name is there. */
static void wait_while_held(const choral_stream* stream) {
  const char* held = ref_stream_is_beside(stream) ? getenv("CHORAL_REF_HOLD") : NULL;
  const struct timespec millisecond = {0, 1000000};
  while (held != NULL && access(held, F_OK) == 0) nanosleep(&millisecond, NULL);
}

static choral_status* copy(choral_device* device, choral_stream* stream, const choral_copy* theirs) {
  choral_copy c;
  ref_read(&c, theirs, sizeof c);
  choral_status* error = NULL;
  ref_expect(stream != NULL, "copy", "needs a stream", &error);
  ref_expect(c.kind >= CHORAL_HOST_TO_DEVICE && c.kind <= CHORAL_DEVICE_TO_DEVICE, "copy", "unknown kind", &error);
  ref_expect(c.rows >= 0 && c.row_bytes >= 0, "copy", "sizes are not negative", &error);
  ref_expect(c.rows <= 1 || (c.to_pitch >= c.row_bytes && c.from_pitch >= c.row_bytes), "copy", "rows overlap", &error);
  if (error != NULL) return error;
  wait_while_held(stream);
  if (c.rows == 0 || c.row_bytes == 0) {
    if (c.kind != CHORAL_DEVICE_TO_HOST) return NULL;
    c.rows = 0;
  }
  const uint64_t to_bytes = c.rows == 0 ? 0 : span_bytes(c.to_pitch, c.row_bytes, c.rows);
  const uint64_t from_bytes = c.rows == 0 ? 0 : span_bytes(c.from_pitch, c.row_bytes, c.rows);
  if (to_bytes > INT64_MAX || from_bytes > INT64_MAX) {
    return ref_error(CHORAL_INVALID_ARGUMENT, "copy: %lld rows of %lld bytes are beyond every memory", (long long)c.rows,
                     (long long)c.row_bytes);
  }
  transfer t = {c.to, c.from, c.to_pitch, c.from_pitch, c.row_bytes, c.rows, NULL};
  if (c.kind != CHORAL_DEVICE_TO_HOST) t.to = ref_map_array(device, "copy to device", c.to, (int64_t)to_bytes, 1, &error);
  if (c.kind != CHORAL_HOST_TO_DEVICE) t.from = ref_map_array(device, "copy from device", c.from, (int64_t)from_bytes, 1, &error);
  if (error != NULL) return error;
  if (ref_is_lost(device)) return ref_error(CHORAL_UNAVAILABLE, "the device does not answer any more: this is a fault build");

  if (c.kind == CHORAL_HOST_TO_DEVICE) { /* the host's memory is only ours during this call */
    t.staged = malloc((size_t)from_bytes);
    if (t.staged == NULL)
      return ref_error(CHORAL_RESOURCE_EXHAUSTED, "no host memory to copy %llu bytes", (unsigned long long)from_bytes);
    for (int64_t row = 0; row < t.rows; ++row) { /* what lies between rows is not ours to read */
      memcpy((unsigned char*)t.staged + row * t.row_bytes, t.from + row * t.from_pitch, (size_t)t.row_bytes);
    }
    t.from = t.staged;
    t.from_pitch = t.row_bytes;
  }
  ref_push(stream, run_transfer, &t, sizeof t, c.kind == CHORAL_HOST_TO_DEVICE); /* always: it has something to free */
  return c.kind == CHORAL_DEVICE_TO_HOST ? ref_stream_synchronize(device, stream) : NULL;
}

static choral_status* allocate(choral_device* device, uint64_t size_bytes, void** memory) {
  if (ref_fault.fill && ref_counted_calls(device) >= ref_fault_mark()) {
    return ref_error(CHORAL_RESOURCE_EXHAUSTED, "no room for %llu bytes: this is a fault build", (unsigned long long)size_bytes);
  }
  if (ref_fault.no_empty && size_bytes == 0) return *memory = NULL, NULL;
  choral_status* status = ref_memory_take(&device->memory, size_bytes, memory);
  if (ref_fault.dirty && status == NULL) memset(ref_memory_map(&device->memory, *memory), 0xA5, (size_t)size_bytes);
  return status;
}

static void release(choral_device* device, void* memory) {
  ref_drain_all(device);
  ref_memory_give(&device->memory, memory);
}

static choral_status* capacity(choral_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  *free_bytes = device->memory.size - device->memory.used;
  *total_bytes = device->memory.size;
  return NULL;
}

const choral_memory_api ref_memory_api = {
    CHORAL_HEADER(choral_memory_api),
    allocate,
    release,
    copy,
    ref_stream_create,
    ref_stream_destroy,
    ref_stream_synchronize,
    capacity,
    .copies_beside = 1,
};
