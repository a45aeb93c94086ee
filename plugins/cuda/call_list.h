// Operators in the order in which a step called them, with copies of their arguments: what a CUDA graph is known by, and what can
// be launched again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace choral_cuda {

// One call, its arguments checked. All that its kernels are launched with follows from `launch`, `args` and `weight`, but for
// what Launch says.
struct OpCall {
  const char* name;
  cudaError_t (*launch)(const Launch&, const void* args);
  std::span<const std::byte> args;
  std::span<const std::byte> weight;  // what a handle in the arguments stands for; as long as the call is launched it lives
};

class CallList {
 public:
  static constexpr size_t kMostCallBytes = 1024;

  // No memory is taken for so many.
  void reserve(size_t calls);
  void add(const OpCall& call);
  void clear();

  size_t size() const { return calls_.size(); }
  const char* name(size_t index) const { return calls_[index].name; }
  cudaError_t launch(size_t index, const Launch& launch) const;
  // Whether both lists have this call, the same to the last byte.
  bool has_same(size_t index, const CallList& other) const;
  uint64_t hash_of_first() const;
  uint64_t hash() const;

 private:
  struct Call {
    const char* name;
    cudaError_t (*launch)(const Launch&, const void* args);
    size_t begin, end;  // in bytes_
  };

  std::vector<Call> calls_;
  std::vector<std::byte> bytes_;
};

}  // namespace choral_cuda
