#include "base/checksum.h"

#include <array>
#include <bit>
#include <cstring>

namespace choral {
namespace {

constexpr uint64_t kFactor = 0x9E3779B185EBCA87, kMixer = 0xC2B2AE3D27D4EB4F;
constexpr size_t kLanes = 8;  // a multiplication takes three or four cycles, and one begins in each

// One to one in both arguments, so no change of a word is lost. The word is multiplied too: else a change of its highest bit
// would be undone by one of a single bit in the next word of the lane.
uint64_t add_word(uint64_t sum, uint64_t word) { return std::rotl(sum + word * kMixer, 31) * kFactor; }

uint64_t mixed(uint64_t sum) {
  sum = (sum ^ (sum >> 29)) * kMixer;
  return sum ^ (sum >> 32);
}

}  // namespace

uint64_t checksum64(std::span<const std::byte> bytes) {
  std::array<uint64_t, kLanes> lanes;
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = kMixer * (i + 1);
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof lanes; at += sizeof lanes, left -= sizeof lanes) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), at, sizeof words);
#pragma GCC unroll 8  // lanes in registers
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = add_word(lanes[i], words[i]);
  }
  if (left > 0) {
    std::array<uint64_t, kLanes> words{};
    std::memcpy(words.data(), at, left);
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = add_word(lanes[i], words[i]);
  }
  uint64_t sum = mixed(bytes.size());
  for (const uint64_t lane : lanes) sum = add_word(sum, mixed(lane));
  return mixed(sum);
}

}  // namespace choral
