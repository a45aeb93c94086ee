#include "serve/openai/number_list.h"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace choral::serve {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire's floats are this machine's");

std::string base64(std::span<const float> values) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? bytes[i + j] : 0u);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kLetters[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace

Json number_list(std::span<const float> values, bool as_base64) {
  return as_base64 ? Json(base64(values)) : Json(std::vector<float>(values.begin(), values.end()));
}

}  // namespace choral::serve
