#include "io/safetensors_writer.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/system_error.h"

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
    case DType::kI64: return "I64";
    case DType::kI32: return "I32";
    case DType::kI16: return "I16";
    case DType::kI8: return "I8";
    case DType::kU8: return "U8";
    case DType::kBool: return "BOOL";
    default: return "";
  }
}

Result<std::string> header_text(std::span<const TensorToWrite> tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string_view> seen;
  int64_t offset = 0;
  for (const auto& [name, view] : tensors) {
    const std::string_view type = format_name(view.dtype);
    if (type.empty()) return unsupported("tensor {}: safetensors has no type {}", name, dtype_name(view.dtype));
    if (name == "__metadata__" || !seen.insert(name).second) return invalid_argument("tensor {} stands twice", name);
    const int64_t end = offset + view.size_bytes();
    header[name] = {{"dtype", type}, {"shape", view.shape.dims()}, {"data_offsets", {offset, end}}};
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
  static_assert(std::endian::native == std::endian::little);
  CHORAL_TRY(const std::string header, header_text(tensors, metadata));
  auto beside = path;
  beside += ".part";
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  const uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const auto& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.view.data), static_cast<std::streamsize>(tensor.view.size_bytes()));
  }
  file.close();
  std::error_code error;
  if (!file) {
    const Status status = system_error(errno, "cannot write " + beside.string());
    std::filesystem::remove(beside, error);
    return status;
  }
  std::filesystem::rename(beside, path, error);
  if (error) return system_error(error.value(), fmt::format("cannot rename {} to {}", beside.string(), path.string()));
  return {};
}

}  // namespace choral::io
