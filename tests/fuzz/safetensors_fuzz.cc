// Any bytes as a .safetensors file. An odd first byte makes the rest a JSON header over as many data bytes as the second byte
// says, so that mutations need not keep the length field right. What is accepted must lie inside the file and cover it without
// overlap.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "io/safetensors.h"
#include "tensor/view.h"

namespace {

std::vector<std::byte> file_from(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  if (size < 2 || data[0] % 2 == 0) return {bytes + std::min<size_t>(size, 1), bytes + size};
  const uint64_t header_bytes = size - 2;
  std::vector<std::byte> file(8 + header_bytes + data[1]);
  std::memcpy(file.data(), &header_bytes, 8);
  std::copy(bytes + 2, bytes + size, file.begin() + 8);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::byte> file = file_from(data, size);
  const auto header = choral::io::parse_safetensors(file, "fuzzed");
  if (!header.ok()) return 0;
  uint64_t covered = 0;
  for (const auto& entry : header->entries) {
    CHORAL_CHECK(entry.begin <= entry.end && header->data_offset + entry.end <= file.size(), "a tensor outside the file");
    CHORAL_CHECK(header->find(entry.name) == &entry, "a name that is not found again");
    covered += entry.end - entry.begin;
    if (entry.rank > choral::Shape::kMaxRank || entry.begin == entry.end) continue;
    const choral::TensorView view{file.data() + header->data_offset + entry.begin, entry.dtype, entry.shape, {}};
    CHORAL_CHECK(static_cast<uint64_t>(view.size_bytes()) == entry.end - entry.begin, "shape and offsets disagree");
  }
  CHORAL_CHECK(header->data_offset + covered == file.size(), "data that belongs to no tensor, or to two");
  return 0;
}
