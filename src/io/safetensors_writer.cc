#include "io/safetensors_writer.h"

#include <bit>
#include <nlohmann/json.hpp>
#include <set>

namespace choral::io {
namespace {

// Names of the format; empty for types it lacks.
std::string_view format_name(DType type) {
  switch (type) {
    case DType::kF64: return "F64";
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF8E4M3: return "F8_E4M3";
    case DType::kF8E5M2: return "F8_E5M2";
    case DType::kF8E8M0: return "F8_E8M0";
    case DType::kI64: return "I64";
    case DType::kI32: return "I32";
    case DType::kI16: return "I16";
    case DType::kI8: return "I8";
    case DType::kU8: return "U8";
    case DType::kBool: return "BOOL";
    default: return "";
  }
}

Result<std::string> header_text(std::span<const TensorToCome> tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string_view> seen;
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    const auto& [name, dtype, shape] = tensor;
    const std::string_view type = format_name(dtype);
    if (type.empty()) return unsupported("tensor {}: safetensors has no type {}", name, dtype_name(dtype));
    if (name == "__metadata__" || !seen.insert(name).second) return invalid_argument("tensor {} stands twice", name);
    const int64_t end = offset + tensor.size_bytes();
    header[name] = {{"dtype", type}, {"shape", shape.dims()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    return invalid_argument("a tensor's name or the metadata is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<TensorToCome> to_come;
  for (const auto& [name, view] : tensors) to_come.push_back({name, view.dtype, view.shape});
  CHORAL_TRY(const auto writer, SafetensorsWriter::create(path, to_come, metadata));
  for (const auto& tensor : tensors) {
    CHORAL_RETURN_IF_ERROR(writer->append({tensor.view.data, static_cast<size_t>(tensor.view.size_bytes())}));
  }
  return writer->finish();
}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(const std::filesystem::path& path,
                                                                     std::span<const TensorToCome> tensors,
                                                                     const std::map<std::string, std::string>& metadata) {
  static_assert(std::endian::native == std::endian::little);
  CHORAL_TRY(const std::string header, header_text(tensors, metadata));
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter);
  CHORAL_TRY(writer->file_, NewFile::create(path));
  for (const auto& tensor : tensors) writer->left_ += tensor.size_bytes();
  const uint64_t size = header.size();
  CHORAL_RETURN_IF_ERROR(writer->file_->write(std::as_bytes(std::span(&size, 1))));
  CHORAL_RETURN_IF_ERROR(writer->file_->write(std::as_bytes(std::span(header))));
  return writer;
}

Status SafetensorsWriter::append(std::span<const std::byte> data) {
  left_ -= std::ssize(data);
  CHORAL_CHECK(left_ >= 0, "no more data than the header says");
  return file_->write(data);
}

Status SafetensorsWriter::finish() {
  CHORAL_CHECK(left_ == 0, "as much data as the header says");
  return file_->finish();
}

}  // namespace choral::io
