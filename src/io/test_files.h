// For tests only: builds safetensors and GGUF files byte by byte, right or wrong in any single place.
// Nothing is checked here; what a builder writes is what the test says. Header-only, used by tests of other folders too.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace choral::io::testing {

template <class T>
std::string le(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// A safetensors file: `json` as it stands, then `data`.
inline std::string safetensors_file(std::string_view json, std::string_view data) {
  return le<uint64_t>(json.size()) + std::string(json) + std::string(data);
}

inline std::string gguf_string(std::string_view text) { return le<uint64_t>(text.size()) + std::string(text); }

struct GgufTensorSpec {
  std::string name;
  std::vector<uint64_t> dims;  // GGUF's order: columns first
  uint32_t type = 0;
  std::string data;
  int64_t offset = -1;  // -1: after the tensor before it, aligned
};

// Fields are written as given; change one to break one rule.
struct GgufSpec {
  std::string magic = "GGUF";
  uint32_t version = 3;
  int64_t tensor_count = -1, metadata_count = -1;  // -1: the true ones
  uint64_t alignment = 32;                         // of what build() writes; say so in the metadata when it is not 32
  std::vector<std::string> metadata;               // made by kv()
  std::vector<GgufTensorSpec> tensors;

  static std::string kv(std::string_view key, uint32_t type, std::string_view raw) {
    return gguf_string(key) + le<uint32_t>(type) + std::string(raw);
  }
  static std::string kv_u32(std::string_view key, uint32_t value) { return kv(key, 4, le(value)); }
  static std::string kv_f32(std::string_view key, float value) { return kv(key, 6, le(value)); }
  static std::string kv_string(std::string_view key, std::string_view value) { return kv(key, 8, gguf_string(value)); }

  std::string build() const {
    std::string out = magic + le(version) +
                      le<uint64_t>(tensor_count < 0 ? tensors.size() : static_cast<uint64_t>(tensor_count)) +
                      le<uint64_t>(metadata_count < 0 ? metadata.size() : static_cast<uint64_t>(metadata_count));
    for (const auto& entry : metadata) out += entry;
    std::string data;
    for (const auto& tensor : tensors) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      out += gguf_string(tensor.name) + le<uint32_t>(static_cast<uint32_t>(tensor.dims.size()));
      for (const uint64_t extent : tensor.dims) out += le(extent);
      out += le(tensor.type) + le<uint64_t>(tensor.offset < 0 ? data.size() : static_cast<uint64_t>(tensor.offset));
      data += tensor.data;
    }
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

}  // namespace choral::io::testing
