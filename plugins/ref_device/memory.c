#define _GNU_SOURCE /* memfd_create, fallocate */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"

enum { kAlignment = 64, kGap = 64 };

choral_status* ref_memory_open(ref_memory* memory, uint64_t size) {
  memset(memory, 0, sizeof *memory);
  pthread_mutex_init(&memory->mutex, NULL);
  memory->size = size;
  memory->file = memfd_create("choral_ref_device", MFD_CLOEXEC);
  memory->accessible = ref_memory_is_accessible();
  memory->base = memory->mapped = MAP_FAILED;
  if (memory->file >= 0 && ftruncate(memory->file, (off_t)size) == 0) {
    memory->base = memory->accessible ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file, 0)
                                      : mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory->mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file, 0);
  }
  if (memory->base != MAP_FAILED && memory->mapped != MAP_FAILED) return NULL;
  const int reason = errno;
  ref_memory_close(memory);
  return ref_error(CHORAL_RESOURCE_EXHAUSTED, "cannot reserve %llu bytes of address space: %s; set CHORAL_REF_MEMORY_MIB lower",
                   (unsigned long long)size, strerror(reason));
}

void ref_memory_close(ref_memory* memory) {
  if (memory->base != MAP_FAILED && memory->base != NULL) munmap(memory->base, memory->size);
  if (memory->mapped != MAP_FAILED && memory->mapped != NULL) munmap(memory->mapped, memory->size);
  if (memory->file >= 0) close(memory->file);
  free(memory->blocks);
  pthread_mutex_destroy(&memory->mutex);
  memset(memory, 0, sizeof *memory);
  memory->file = -1;
}

int ref_memory_is_accessible(void) {
  const char* value = getenv("CHORAL_REF_HOST_ACCESSIBLE");
  return value != NULL && strcmp(value, "1") == 0;
}

void ref_memory_lock(const ref_memory* memory) {
  if (memory->accessible) mprotect(memory->base, memory->size, PROT_NONE);
}

void ref_memory_unlock(const ref_memory* memory) {
  if (memory->accessible) mprotect(memory->base, memory->size, PROT_READ | PROT_WRITE);
}

/* First fit: the first gap that is wide enough. */
static choral_status* take(ref_memory* memory, uint64_t size, void** pointer) {
  const uint64_t wanted = size == 0 ? 1 : size;
  if (memory->count == memory->capacity) {
    const int64_t capacity = memory->capacity == 0 ? 64 : 2 * memory->capacity;
    ref_block* blocks = realloc(memory->blocks, (size_t)capacity * sizeof *blocks);
    if (blocks == NULL) return ref_error(CHORAL_RESOURCE_EXHAUSTED, "no host memory for the list of allocations");
    memory->blocks = blocks;
    memory->capacity = capacity;
  }
  uint64_t begin = 0;
  int64_t place = 0;
  for (; place < memory->count; ++place) {
    const ref_block* next = &memory->blocks[place];
    if (next->begin >= begin + kGap && next->begin - begin - kGap >= wanted) break;
    begin = (next->end + kGap + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (begin > memory->size || memory->size - begin < wanted) {
    return ref_error(CHORAL_RESOURCE_EXHAUSTED,
                     "no room for %llu bytes: %llu of %llu are in use; use a smaller cache or fewer sequences",
                     (unsigned long long)size, (unsigned long long)memory->used, (unsigned long long)memory->size);
  }
  ref_block* block = &memory->blocks[place];
  memmove(block + 1, block, (size_t)(memory->count - place) * sizeof *block);
  block->begin = begin;
  block->end = begin + wanted;
  ++memory->count;
  memory->used += wanted;
  *pointer = memory->base + begin;
  return NULL;
}

choral_status* ref_memory_take(ref_memory* memory, uint64_t size, void** pointer) {
  pthread_mutex_lock(&memory->mutex);
  choral_status* status = take(memory, size, pointer);
  pthread_mutex_unlock(&memory->mutex);
  return status;
}

/* The block that holds an offset, or -1. */
static int64_t find(const ref_memory* memory, uint64_t offset) {
  int64_t low = 0, high = memory->count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (memory->blocks[middle].end <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < memory->count && memory->blocks[low].begin <= offset ? low : -1;
}

static uint64_t offset_of(const ref_memory* memory, const void* pointer) {
  return (uint64_t)((uintptr_t)pointer - (uintptr_t)memory->base);
}

/* Whole pages go back to the system, which hands them out as zeros; the ends are cleared by hand. */
static void clear(ref_memory* memory, uint64_t begin, uint64_t end) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  const uint64_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last &&
      fallocate(memory->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first, (off_t)(last - first)) == 0) {
    memset(memory->mapped + begin, 0, first - begin);
    memset(memory->mapped + last, 0, end - last);
  } else {
    memset(memory->mapped + begin, 0, end - begin);
  }
}

static void give(ref_memory* memory, const void* pointer) {
  const uint64_t offset = offset_of(memory, pointer);
  const int64_t place = find(memory, offset);
  if (place < 0 || memory->blocks[place].begin != offset) {
    ref_log(CHORAL_LOG_ERROR, "release of %p, which is not an allocation of this device; ignored", pointer);
    return;
  }
  ref_block* block = &memory->blocks[place];
  clear(memory, block->begin, block->end);
  memory->used -= block->end - block->begin;
  --memory->count;
  memmove(block, block + 1, (size_t)(memory->count - place) * sizeof *block);
}

void ref_memory_give(ref_memory* memory, const void* pointer) {
  if (pointer == NULL) return;
  pthread_mutex_lock(&memory->mutex);
  give(memory, pointer);
  pthread_mutex_unlock(&memory->mutex);
}

int ref_memory_holds(ref_memory* memory, const void* pointer, uint64_t bytes) {
  const uint64_t offset = offset_of(memory, pointer);
  if (offset >= memory->size) return 0;
  pthread_mutex_lock(&memory->mutex);
  const int64_t place = find(memory, offset);
  const int holds = place >= 0 && memory->blocks[place].end - offset >= bytes;
  pthread_mutex_unlock(&memory->mutex);
  return holds;
}

void* ref_memory_map(const ref_memory* memory, const void* pointer) { return memory->mapped + offset_of(memory, pointer); }
