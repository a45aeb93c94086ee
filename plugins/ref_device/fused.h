/* Between the plug-in and its library of fused operators, libchoral_ref_fused.so. Both come from one build, so this is no ABI to
 * keep: the number must simply be equal. The library gets what it needs of the plug-in handed in, for it links to nothing of it.
 */
#pragma once

#include "mapping.h"
#include "queue.h"

#define REF_FUSED_NUMBER 4

typedef struct ref_services {
  uint32_t number; /* REF_FUSED_NUMBER */
  void (*read)(void* ours, const void* theirs, size_t our_size);
  void (*fail)(ref_failure* failure, int32_t code, const char* format, ...);
  void (*expect)(int good, const char* what, const char* rule, choral_status** error);
  void* (*map_array)(choral_device*, const char* what, const void* pointer, int64_t count, int64_t element_bytes,
                     choral_status**);
  choral_matrix (*map_matrix)(choral_device*, const char* what, choral_matrix matrix, choral_status** error);
  choral_vector (*map_vector)(choral_device*, const char* what, choral_vector vector, int64_t size, choral_status** error);
  choral_kv_cache (*map_cache)(choral_device*, const char* what, choral_kv_cache cache, choral_status** error);
  choral_op_fn grouped_matmul; /* needs the plug-in's own weights */
  choral_op_fn lora_shrink;    /* these two are their parts, whose code is the plug-in's */
  choral_op_fn lora_expand;
  choral_status* (*submit)(choral_device*, choral_stream*, ref_run_fn run, const void* args, size_t arg_bytes);
} ref_services;

/* Null when the numbers differ. */
typedef const choral_op* (*ref_fused_ops_fn)(const ref_services* services, int64_t* count);
#define REF_FUSED_OPS "choral_ref_fused_ops"
