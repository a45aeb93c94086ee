#include "io/bounded_reader.h"

#include <bit>
#include <cstring>

namespace choral::io {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they stand; a big-endian port must swap here");

Result<std::span<const std::byte>> BoundedReader::take(uint64_t count, std::string_view what) {
  if (count > remaining()) {
    return corrupt("{}: offset {}: {} needs {} bytes, but only {} are left; the file is cut short or damaged", file_, offset_,
                   what, count, remaining());
  }
  const auto out = bytes_.subspan(offset_, count);
  offset_ += count;
  return out;
}

template <class T>
Result<T> BoundedReader::number(std::string_view what) {
  CHORAL_TRY(const auto bytes, take(sizeof(T), what));
  T out;
  std::memcpy(&out, bytes.data(), sizeof(T));
  return out;
}
template Result<uint8_t> BoundedReader::number(std::string_view);
template Result<uint16_t> BoundedReader::number(std::string_view);
template Result<uint32_t> BoundedReader::number(std::string_view);
template Result<uint64_t> BoundedReader::number(std::string_view);
template Result<float> BoundedReader::number(std::string_view);
template Result<double> BoundedReader::number(std::string_view);

Result<std::string_view> BoundedReader::string(uint64_t max_length, std::string_view what) {
  const size_t start = offset_;
  CHORAL_TRY(const uint64_t length, u64(what));
  if (length > max_length) {
    offset_ = start;
    return too_large("{}: offset {}: {} is {} bytes long, at most {} are allowed", file_, start, what, length, max_length);
  }
  auto bytes = take(length, what);
  if (!bytes.ok()) {
    offset_ = start;
    return std::move(bytes).status();
  }
  return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

Status BoundedReader::skip(uint64_t count, std::string_view what) { return take(count, what).status(); }

Status BoundedReader::align(uint64_t alignment, std::string_view what) {
  CHORAL_CHECK(std::has_single_bit(alignment), "an alignment is a power of two");
  return skip((alignment - (offset_ & (alignment - 1))) & (alignment - 1), what);
}

}  // namespace choral::io
