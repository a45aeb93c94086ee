#include "io/gguf_writer.h"

#include <bit>
#include <cstring>

#include "base/checked_math.h"

namespace choral::io {
namespace {

constexpr uint64_t kAlignment = 32;
constexpr uint32_t kVersion = 3;

static_assert(std::endian::native == std::endian::little);

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out.append(text);
}

}  // namespace

uint64_t gguf_aligned(uint64_t size_bytes) { return ceil_div(size_bytes, kAlignment) * kAlignment; }

void GgufMetadata::begin(std::string_view key, GgufValueType type) {
  put_text(bytes_, key);
  put(bytes_, static_cast<uint32_t>(type));
  ++count_;
}

void GgufMetadata::begin_array(std::string_view key, GgufValueType type, size_t count) {
  begin(key, GgufValueType::kArray);
  put(bytes_, static_cast<uint32_t>(type));
  put<uint64_t>(bytes_, count);
}

void GgufMetadata::set_u32(std::string_view key, uint32_t value) {
  begin(key, GgufValueType::kU32);
  put(bytes_, value);
}

void GgufMetadata::set_f32(std::string_view key, float value) {
  begin(key, GgufValueType::kF32);
  put(bytes_, value);
}

void GgufMetadata::set_bool(std::string_view key, bool value) {
  begin(key, GgufValueType::kBool);
  put<uint8_t>(bytes_, value ? 1 : 0);
}

void GgufMetadata::set_string(std::string_view key, std::string_view value) {
  begin(key, GgufValueType::kString);
  put_text(bytes_, value);
}

void GgufMetadata::set_strings(std::string_view key, std::span<const std::string> values) {
  begin_array(key, GgufValueType::kString, values.size());
  for (const auto& value : values) put_text(bytes_, value);
}

void GgufMetadata::set_f32s(std::string_view key, std::span<const float> values) {
  begin_array(key, GgufValueType::kF32, values.size());
  for (const float value : values) put(bytes_, value);
}

void GgufMetadata::set_i32s(std::string_view key, std::span<const int32_t> values) {
  begin_array(key, GgufValueType::kI32, values.size());
  for (const int32_t value : values) put(bytes_, value);
}

void GgufMetadata::set_bools(std::string_view key, const std::vector<bool>& values) {
  begin_array(key, GgufValueType::kBool, values.size());
  for (const bool value : values) put<uint8_t>(bytes_, value ? 1 : 0);
}

GgufBeginning gguf_beginning(const GgufMetadata& metadata, std::span<const TensorToCome> tensors) {
  std::string header = "GGUF";
  put(header, kVersion);
  put<uint64_t>(header, tensors.size());
  put<uint64_t>(header, metadata.count());
  header += metadata.bytes();
  uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    put_text(header, tensor.name);
    const auto dims = tensor.shape.dims();
    put(header, static_cast<uint32_t>(dims.size()));
    for (size_t i = dims.size(); i-- > 0;) put(header, static_cast<uint64_t>(dims[i]));
    put(header, ggml_from_dtype(tensor.dtype));
    put(header, offset);
    offset += gguf_aligned(static_cast<uint64_t>(tensor.size_bytes()));
  }
  header.resize(gguf_aligned(header.size()));
  const uint64_t size = header.size() + offset;
  return {std::move(header), size};
}

Result<std::unique_ptr<GgufWriter>> GgufWriter::create(const std::filesystem::path& path, const GgufMetadata& metadata,
                                                       std::vector<TensorToCome> tensors) {
  const GgufBeginning beginning = gguf_beginning(metadata, tensors);
  std::unique_ptr<GgufWriter> writer(new GgufWriter);
  CHORAL_TRY(writer->file_, NewFile::create(path));
  writer->tensors_ = std::move(tensors);
  CHORAL_RETURN_IF_ERROR(writer->file_->write(std::as_bytes(std::span(beginning.bytes))));
  return writer;
}

Status GgufWriter::append(std::span<const std::byte> data) {
  CHORAL_CHECK(next_ < tensors_.size() && given_ + std::ssize(data) <= tensors_[next_].size_bytes(), "of the next tensor");
  CHORAL_RETURN_IF_ERROR(file_->write(data));
  given_ += std::ssize(data);
  const auto size = static_cast<uint64_t>(tensors_[next_].size_bytes());
  if (static_cast<uint64_t>(given_) < size) return {};
  ++next_;
  given_ = 0;
  constexpr std::byte kZeros[kAlignment] = {};
  return file_->write(std::span(kZeros).first(gguf_aligned(size) - size));
}

Status GgufWriter::finish() {
  CHORAL_CHECK(next_ == tensors_.size(), "every tensor was given");
  return file_->finish();
}

}  // namespace choral::io
