#include "call_list.h"

#include <algorithm>
#include <functional>
#include <string_view>

namespace choral_cuda {
namespace {

constexpr size_t kAlignment = alignof(std::max_align_t);

uint64_t hash_of(const std::byte* bytes, size_t count) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes), count});
}

}  // namespace

void CallList::reserve(size_t calls) {
  calls_.reserve(calls);
  bytes_.reserve(calls * kMostCallBytes);
}

void CallList::add(const OpCall& call) {
  const size_t begin = bytes_.size();
  bytes_.insert(bytes_.end(), call.args.begin(), call.args.end());
  bytes_.insert(bytes_.end(), call.weight.begin(), call.weight.end());
  bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
  calls_.push_back({call.name, call.launch, begin, bytes_.size()});
}

void CallList::clear() {
  calls_.clear();
  bytes_.clear();
}

cudaError_t CallList::launch(size_t index, const Launch& launch) const {
  return calls_[index].launch(launch, bytes_.data() + calls_[index].begin);
}

bool CallList::has_same(size_t index, const CallList& other) const {
  if (index >= size() || index >= other.size()) return false;
  const Call &a = calls_[index], &b = other.calls_[index];
  return a.launch == b.launch &&
         std::equal(bytes_.begin() + static_cast<ptrdiff_t>(a.begin), bytes_.begin() + static_cast<ptrdiff_t>(a.end),
                    other.bytes_.begin() + static_cast<ptrdiff_t>(b.begin), other.bytes_.begin() + static_cast<ptrdiff_t>(b.end));
}

uint64_t CallList::hash_of_first() const { return calls_.empty() ? 0 : hash_of(bytes_.data(), calls_.front().end); }

uint64_t CallList::hash() const { return hash_of(bytes_.data(), bytes_.size()); }

}  // namespace choral_cuda
