// Loops that do nothing but read or compute, as fast as a CPU level can: what measured peaks are the best of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu_level.h"

namespace choral::kernels {

// XOR of all bytes. The result only keeps the loads alive.
using Reader = uint64_t (*)(const std::byte* data, int64_t bytes);
// A register loop: runs `steps` rounds and returns the operations it did.
using Burner = double (*)(int64_t steps);

inline constexpr int kChains = 12;                // of a burner: latency 4 x 2 units, and some
inline constexpr int64_t kReadAheadBytes = 1536;  // that readers ask for before they come there

struct PeakLoops {
  std::span<const Reader> readers;
  Burner fma;
  Burner int8;
  Burner bf16;  // of a tile unit; null: there is none
};
const PeakLoops& peak_loops(CpuLevel level);
// By vectors of 16 bytes.
std::span<const Reader> base_readers();

}  // namespace choral::kernels
