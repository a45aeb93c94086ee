// Runs a pickle as far as a dictionary of tensors needs: a stack, a memo and plain values in one arena. See torch_pickle.h for
// what is refused. Internal to io; used once, by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/bounded_reader.h"
#include "io/torch_pickle.h"

namespace choral::io {

// An index into PickleMachine's values: containers hold these, so a value shared through the memo is one value.
using PickleRef = uint32_t;

struct PickleValue {
  enum class Kind : uint8_t { kNone, kBool, kInt, kFloat, kText, kTuple, kList, kDict, kGlobal, kStorage, kTensor, kMark };
  Kind kind = Kind::kNone;
  int64_t number = 0;                   // kBool, kInt; a storage's count of elements; a tensor's offset in its storage
  std::string_view text;                // kText, kGlobal ("torch.FloatStorage"), a storage's key: views of the pickle
  std::string global;                   // kGlobal
  std::vector<PickleRef> items;         // kTuple, kList; kDict: key, value, key, value …
  PickleRef storage = 0;                // kTensor
  std::vector<int64_t> sizes, strides;  // kTensor, in elements
};

class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> pickle, std::string_view file, const TorchLimits& limits)
      : reader_(pickle, file), limits_(limits) {}

  // The value the pickle leaves behind.
  Result<PickleRef> run();
  const PickleValue& at(PickleRef ref) const { return values_[ref]; }

 private:
  Status step(uint8_t opcode);
  Result<PickleRef> make(PickleValue value);
  Status push(PickleValue value);
  Status push_int(int64_t value);
  Status push_text(uint64_t length);
  Result<PickleRef> pop();
  Result<std::vector<PickleRef>> pop_to_mark();
  Status push_tuple(size_t count);
  Status put(uint64_t slot);
  Status get(uint64_t slot);
  Status global();
  Status long_integer();
  Status persistent_id();
  Status reduce();
  Status build();
  Status set_items(std::vector<PickleRef> pairs);
  Status append(std::vector<PickleRef> items);
  Status rebuild_tensor(std::span<const PickleRef> arguments);
  Result<std::vector<int64_t>> extents(PickleRef ref);
  Status bad(std::string_view what) const;

  BoundedReader reader_;
  const TorchLimits& limits_;
  std::vector<PickleValue> values_;
  std::vector<PickleRef> stack_;
  std::unordered_map<uint64_t, PickleRef> memo_;
  uint64_t held_ = 0;  // items of all containers
};

}  // namespace choral::io
