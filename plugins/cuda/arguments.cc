#include "arguments.h"

#include "device.h"

namespace choral_cuda {

void Rules::expect(bool good, const char* rule) {
  if (!good && status_ == nullptr) status_ = error(CHORAL_INVALID_ARGUMENT, "%s: %s", op_, rule);
}

void Rules::take(bool good, const char* what, int32_t dtype) {
  if (!good && status_ == nullptr) status_ = error(CHORAL_UNSUPPORTED, "%s: %s of element type %d", op_, what, dtype);
}

void Rules::matrix(const choral_matrix& m, const char* name) {
  if (status_ != nullptr) return;
  take(m.dtype == CHORAL_F32, name, m.dtype);
  expect(m.rows >= 0 && m.cols >= 0, "a matrix has no negative size");
  expect(m.rows <= 1 || m.stride >= m.cols, "the stride is not less than the columns");
  if (m.rows > 0 && m.cols > 0) array(m.data, m.rows, name);
}

void Rules::vector(const choral_vector& v, int64_t size, const char* name) {
  if (status_ != nullptr) return;
  take(v.dtype == CHORAL_F32, name, v.dtype);
  expect(v.size == size, "a vector has as many elements as the operator reads");
  array(v.data, size, name);
}

void Rules::array(const void* data, int64_t count, const char* name) {
  if (status_ != nullptr || (data != nullptr && count >= 0) || count == 0) return;
  status_ = error(CHORAL_INVALID_ARGUMENT, "%s: %s is missing", op_, name);
}

void Rules::same_shape(const choral_matrix& a, const choral_matrix& b, const char* rule) {
  expect(a.rows == b.rows && a.cols == b.cols, rule);
}

void Rules::cache(const choral_kv_cache& cache) {
  if (status_ != nullptr) return;
  take(cache.dtype == CHORAL_F32 || cache.dtype == CHORAL_F16 || cache.dtype == CHORAL_BF16, "a cache", cache.dtype);
  expect(cache.block_tokens == 32, "blocks have 32 tokens");
  expect(cache.blocks >= 0 && cache.kv_heads > 0 && cache.head_dim > 0 && cache.v_head_dim > 0, "a cache has heads and blocks");
  expect(cache.values != nullptr || cache.v_head_dim <= cache.head_dim, "a value is no longer than the key that it lies in");
  array(cache.keys, cache.blocks, "the cache");
  if (status_ != nullptr) return;
  if (const char* why_not = cache_misfit(cache)) status_ = error(CHORAL_UNSUPPORTED, "%s: %s", op_, why_not);
}

void Rules::stack(const choral_lora_stack& stack) {
  if (status_ != nullptr) return;
  take(stack.dtype == CHORAL_F32 || stack.dtype == CHORAL_F16 || stack.dtype == CHORAL_BF16, "a stack", stack.dtype);
  expect(stack.slots >= 0 && stack.rows >= 0 && stack.cols >= 0, "a stack has no negative size");
  if (stack.rows > 0 && stack.cols > 0) array(stack.data, stack.slots, "the stack");
}

}  // namespace choral_cuda
