/* Arguments of operators: checked against the allocations when they are queued, and turned into the device's own addresses.
 * Each call does nothing once *error is set, so a list of them needs one look at the end. `what` names the argument: "matmul x".
 */
#pragma once

#include <stdint.h>

#include "choral/plugin.h"

/* A product that stays at UINT64_MAX instead of going round. Negative sizes count as too large. */
uint64_t ref_times(uint64_t a, uint64_t b);

/* Null stays null, which is an error unless `count` is 0. */
void* ref_map_array(choral_device* device, const char* what, const void* pointer, int64_t count, int64_t element_bytes,
                    choral_status** error);
/* Matrices and vectors of floats; other types are unsupported. */
choral_matrix ref_map_matrix(choral_device* device, const char* what, choral_matrix matrix, choral_status** error);
/* `size` is how many elements the operator reads. */
choral_vector ref_map_vector(choral_device* device, const char* what, choral_vector vector, int64_t size, choral_status** error);
choral_kv_cache ref_map_cache(choral_device* device, const char* what, choral_kv_cache cache, choral_status** error);
/* An error that names `what` unless `good`. */
void ref_expect(int good, const char* what, const char* rule, choral_status** error);
