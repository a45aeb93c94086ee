/* Device memory. The host gets pointers into a reservation that nobody can read or write; the device works on a second mapping of
 * the same offsets. So a host that forgets that memory is not its own faults at once instead of being right by chance.
 * Free memory is always zero. The list of what is taken has a lock: copies beside the host's thread look things up in it. */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "choral/plugin.h"

typedef struct ref_block {
  uint64_t begin, end; /* offsets; sorted, with a gap between neighbours so that overruns are seen */
} ref_block;

typedef struct ref_memory {
  unsigned char* base;   /* what the host sees */
  unsigned char* mapped; /* the same bytes for the device */
  uint64_t size;
  int file;
  int accessible;        /* to the host, by what it sees */
  pthread_mutex_t mutex; /* guards what follows */
  ref_block* blocks;
  int64_t count, capacity;
  uint64_t used;
} ref_memory;

choral_status* ref_memory_open(ref_memory* memory, uint64_t size);
/* CHORAL_REF_HOST_ACCESSIBLE: the host may touch this memory too, but for the time between lock and unlock. */
int ref_memory_is_accessible(void);
void ref_memory_lock(const ref_memory* memory);
void ref_memory_unlock(const ref_memory* memory);
void ref_memory_close(ref_memory* memory);
choral_status* ref_memory_take(ref_memory* memory, uint64_t size, void** pointer);
void ref_memory_give(ref_memory* memory, const void* pointer);
/* Whether [pointer, pointer + bytes) lies in one allocation. */
int ref_memory_holds(ref_memory* memory, const void* pointer, uint64_t bytes);
/* The device's address of a device pointer that ref_memory_holds. */
void* ref_memory_map(const ref_memory* memory, const void* pointer);
