// The rules of an operator's arguments, of which the first that is broken becomes the status: shapes fit, types are known,
// nothing is missing. Whether pointers lie on the device is the host's promise; what lies there the kernels check.
#pragma once

#include <cstdint>

#include "choral/plugin.h"

namespace choral_cuda {

class Rules {
 public:
  explicit Rules(const char* op) : op_(op) {}

  void expect(bool good, const char* rule);
  void take(bool good, const char* what, int32_t dtype);  // else it is unsupported
  void matrix(const choral_matrix& m, const char* name);
  void vector(const choral_vector& v, int64_t size, const char* name);
  void array(const void* data, int64_t count, const char* name);
  void same_shape(const choral_matrix& a, const choral_matrix& b, const char* rule);
  void cache(const choral_kv_cache& cache);
  void stack(const choral_lora_stack& stack);

  choral_status* status() const { return status_; }

 private:
  const char* op_;
  choral_status* status_ = nullptr;
};

}  // namespace choral_cuda
