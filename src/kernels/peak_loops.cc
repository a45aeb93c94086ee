#include "kernels/peak_loops.h"

namespace choral::kernels {
namespace {

// Which compilers have instructions for on every CPU of today.
using Words [[gnu::vector_size(16)]] = uint64_t;

// `kStreams` are read side by side.
template <int kStreams, bool kPrefetch>
uint64_t read(const std::byte* data, int64_t bytes) {
  const int64_t each = bytes / kStreams;
  Words sum[kStreams] = {};
  for (int64_t i = 0; i < each; i += 64) {
    _Pragma("GCC unroll 16") for (int s = 0; s < kStreams; ++s) {
      const auto* p = reinterpret_cast<const Words*>(data + s * each + i);
      if (kPrefetch) __builtin_prefetch(data + s * each + i + kReadAheadBytes);
      sum[s] ^= p[0] ^ p[1] ^ p[2] ^ p[3];
    }
  }
  uint64_t all = 0;
  for (const Words& s : sum) all ^= s[0];
  return all;
}

}  // namespace

std::span<const Reader> base_readers() {
  static constexpr Reader kReaders[] = {read<1, true>, read<2, true>, read<4, true>, read<4, false>};
  return kReaders;
}

}  // namespace choral::kernels
