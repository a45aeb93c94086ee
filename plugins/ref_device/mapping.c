#include "mapping.h"

#include "device.h"
#include "numbers.h"
#include "row_math.h"

uint64_t ref_times(uint64_t a, uint64_t b) { return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b; }

void ref_expect(int good, const char* what, const char* rule, choral_status** error) {
  if (*error == NULL && !good) *error = ref_error(CHORAL_INVALID_ARGUMENT, "%s: %s", what, rule);
}

static void* map_bytes(choral_device* device, const char* what, const void* pointer, uint64_t bytes, choral_status** error) {
  if (*error != NULL || bytes == 0) return NULL;
  if (!ref_memory_holds(&device->memory, pointer, bytes)) {
    *error = ref_error(CHORAL_INVALID_ARGUMENT, "%s: %llu bytes at %p are not within one allocation of this device", what,
                       (unsigned long long)bytes, pointer);
    return NULL;
  }
  return ref_memory_map(&device->memory, pointer);
}

void* ref_map_array(choral_device* device, const char* what, const void* pointer, int64_t count, int64_t element_bytes,
                    choral_status** error) {
  return map_bytes(device, what, pointer, ref_times((uint64_t)count, (uint64_t)element_bytes), error);
}

static void expect_floats(int32_t dtype, const char* what, choral_status** error) {
  if (*error == NULL && dtype != CHORAL_F32) {
    *error = ref_error(CHORAL_UNSUPPORTED, "%s: elements of type %d; this device knows f32 (%d)", what, dtype, CHORAL_F32);
  }
}

choral_vector ref_map_vector(choral_device* device, const char* what, choral_vector vector, int64_t size, choral_status** error) {
  expect_floats(vector.dtype, what, error);
  ref_expect(vector.size == size, what, "a vector has not as many elements as the operator reads", error);
  vector.data = ref_map_array(device, what, vector.data, size, sizeof(float), error);
  return vector;
}

choral_matrix ref_map_matrix(choral_device* device, const char* what, choral_matrix matrix, choral_status** error) {
  expect_floats(matrix.dtype, what, error);
  const int sound = matrix.rows >= 0 && matrix.cols >= 0 && (matrix.rows <= 1 || matrix.stride >= matrix.cols);
  ref_expect(sound, what, "rows and columns are not negative, and the stride is not less than the columns", error);
  if (*error != NULL) return matrix;
  uint64_t elements = 0;
  if (matrix.rows > 0 && matrix.cols > 0) {
    elements = ref_times((uint64_t)(matrix.rows - 1), (uint64_t)matrix.stride);
    elements = elements > UINT64_MAX - (uint64_t)matrix.cols ? UINT64_MAX : elements + (uint64_t)matrix.cols;
  }
  matrix.data = map_bytes(device, what, matrix.data, ref_times(elements, sizeof(float)), error);
  return matrix;
}

choral_kv_cache ref_map_cache(choral_device* device, const char* what, choral_kv_cache cache, choral_status** error) {
  const uint64_t element = (uint64_t)ref_float_bytes(cache.dtype);
  ref_expect(element != 0, what, "the cache holds f32, f16 or bf16", error);
  ref_expect(cache.block_tokens == REF_BLOCK_TOKENS, what, "blocks have 32 tokens", error);
  ref_expect(cache.blocks >= 0 && cache.kv_heads > 0, what, "blocks and heads are not negative", error);
  ref_expect(cache.head_dim > 0 && cache.head_dim <= REF_MAX_HEAD && cache.v_head_dim > 0 && cache.v_head_dim <= REF_MAX_HEAD,
             what, "heads have 1 to 1024 elements", error);
  ref_expect(cache.values != NULL || cache.v_head_dim <= cache.head_dim, what, "a value is no longer than the key it lies in",
             error);
  if (*error != NULL) return cache;
  const uint64_t tokens = ref_times(ref_times((uint64_t)cache.blocks, REF_BLOCK_TOKENS), (uint64_t)cache.kv_heads);
  const uint64_t key_bytes = ref_times(ref_times(tokens, (uint64_t)cache.head_dim), element);
  const uint64_t value_bytes = ref_times(ref_times(tokens, (uint64_t)ref_value_stride(&cache)), element);
  cache.keys = map_bytes(device, what, cache.keys, key_bytes, error);
  if (cache.values != NULL) cache.values = map_bytes(device, what, cache.values, value_bytes, error);
  return cache;
}
