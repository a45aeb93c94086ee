// Structs of the host may be older or newer than ours: each side touches what both know.
#pragma once

#include <algorithm>
#include <cstring>

#include "choral/plugin.h"

namespace choral_cuda {

// What the other side does not have is zero.
template <class Struct>
Struct read(const void* theirs) {
  Struct ours;
  std::memset(&ours, 0, sizeof ours);
  std::memcpy(&ours, theirs, std::min<size_t>(static_cast<const choral_header*>(theirs)->struct_size, sizeof ours));
  return ours;
}

// All but the header.
template <class Struct>
void write(Struct* theirs, const Struct& ours) {
  const size_t known = std::min<size_t>(theirs->header.struct_size, sizeof ours);
  constexpr size_t kBegin = sizeof(choral_header);
  if (known <= kBegin) return;
  std::memcpy(reinterpret_cast<char*>(theirs) + kBegin, reinterpret_cast<const char*>(&ours) + kBegin, known - kBegin);
}

}  // namespace choral_cuda
