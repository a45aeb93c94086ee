// A 64-bit checksum that is read as fast as memory gives bytes. It finds damage; it stands against nobody who means it (sha256.h
// does). Any change within one word of eight bytes is found; of other changes one in 2^64 is not. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace choral {

uint64_t checksum64(std::span<const std::byte> bytes);

}  // namespace choral
