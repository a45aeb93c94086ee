#include "lora/adapter_file.h"

#include <algorithm>

#include "base/printable.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "io/torch_pickle.h"
#include "kernels/dequantise.h"
#include "lora/gguf_adapter.h"
#include "lora/peft_helper.h"

namespace choral::lora {
namespace {

bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

// Blocks that are packed as they are, in the tensors that packing takes them of.
bool stays_q8(std::string_view name, DType type) {
  return type == DType::kQ8_0 && (name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight"));
}

// Adds `tensor`, converted where its type is not one that is served.
Status add(AdapterFile& file, std::string name, AdapterTensor tensor, uint64_t& converted_bytes, const AdapterLimits& limits) {
  const DType type = tensor.view.dtype;
  if (!is_float(type) && !stays_q8(name, type)) {
    if (!kernels::can_dequantise(type)) {
      return unsupported("{}: '{}' is {}; adapters are float32, float16 or bfloat16", file.path.string(), printable(name),
                         dtype_name(type));
    }
    converted_bytes += static_cast<uint64_t>(tensor.view.shape.elements()) * sizeof(float);
    if (converted_bytes > limits.max_converted_bytes) {
      return too_large("{}: its tensors take more than {} bytes as float32", file.path.string(), limits.max_converted_bytes);
    }
    CHORAL_TRY(Tensor as_float, to_float_tensor(tensor.view));
    tensor = AdapterTensor(std::move(as_float));
  }
  file.tensors.push_back({std::move(name), std::move(tensor)});
  return {};
}

Status read_safetensors(AdapterFile& file, const AdapterLimits& limits) {
  io::SafetensorsLimits header;
  header.max_header_bytes = limits.max_header_bytes;
  header.max_tensors = limits.max_tensors;
  CHORAL_TRY(const auto source, io::SafetensorsFile::open(file.path, header));
  uint64_t converted = 0;
  for (const auto& entry : source->entries()) {
    CHORAL_TRY(const TensorView view, source->find(entry.name));
    CHORAL_RETURN_IF_ERROR(add(file, entry.name, {view, source}, converted, limits));
  }
  return {};
}

Status read_torch(AdapterFile& file, const AdapterLimits& limits) {
  io::TorchLimits torch;
  torch.max_pickle_bytes = limits.max_header_bytes;
  torch.max_tensors = torch.zip.max_entries = limits.max_tensors;
  torch.max_copied_bytes = limits.max_converted_bytes;
  CHORAL_TRY(auto tensors, io::read_torch_tensors(file.path, torch));
  uint64_t converted = 0;
  for (auto& tensor : tensors) {
    CHORAL_RETURN_IF_ERROR(add(file, std::move(tensor.name), {tensor.view, std::move(tensor.owner)}, converted, limits));
  }
  return {};
}

Status read_gguf(AdapterFile& file, const AdapterLimits& limits) {
  io::GgufLimits gguf;
  gguf.max_tensors = limits.max_tensors;
  CHORAL_TRY(const auto source, io::GgufFile::open(file.path, gguf));
  uint64_t converted = 0;
  for (const auto& tensor : source->tensors()) {  // before anything is turned round, which takes memory
    if (tensor.dtype != DType::kF32) converted += static_cast<uint64_t>(tensor.shape.elements()) * sizeof(float);
  }
  if (converted > limits.max_converted_bytes) {
    return too_large("{}: its tensors take more than {} bytes as float32", file.path.string(), limits.max_converted_bytes);
  }
  CHORAL_TRY(auto tensors, read_gguf_adapter(source));
  converted = 0;
  for (auto& tensor : tensors) {
    CHORAL_RETURN_IF_ERROR(add(file, std::move(tensor.name), std::move(tensor.tensor), converted, limits));
  }
  return {};
}

// Vocabularies added beside the adapter, as vLLM once read them.
constexpr const char* kNewEmbeddings[] = {"new_embeddings.safetensors", "new_embeddings.bin"};

}  // namespace

Result<AdapterFile> read_adapter_file(const std::filesystem::path& path, const AdapterLimits& limits) {
  struct Kind {
    const char* name;
    const char* format;
    Status (*read)(AdapterFile&, const AdapterLimits&);
  };
  constexpr Kind kKinds[] = {{"adapter_model.safetensors", "safetensors", read_safetensors},
                             {"adapter_model.bin", "torch", read_torch},
                             {"adapter_model.pt", "torch", read_torch}};
  AdapterFile file;
  Status (*read)(AdapterFile&, const AdapterLimits&) = nullptr;
  std::error_code error;
  for (const auto& kind : kKinds) {
    if (read != nullptr || !std::filesystem::exists(path / kind.name, error)) continue;
    file.path = path / kind.name;
    file.format = kind.format;
    read = kind.read;
  }
  if (read == nullptr) {
    if (const auto gguf = gguf_adapter_path(path)) {
      file.path = *gguf;
      file.format = "gguf";
      read = read_gguf;
    }
  }
  if (read == nullptr) {
    return not_found("{} has no adapter_model.safetensors, adapter_model.bin or adapter_model.pt, nor a single .gguf file",
                     path.string());
  }
  for (const char* name : kNewEmbeddings) {
    if (std::filesystem::exists(path / name, error)) {
      return unsupported("{}: {} is not read; save the resized embedding through modules_to_save", path.string(), name);
    }
  }
  file.size_bytes = std::filesystem::file_size(file.path, error);
  if (error) return not_found("{}: {}", file.path.string(), error.message());
  if (file.size_bytes > limits.max_file_bytes) {
    return too_large("{} has {} bytes; {} are allowed", file.path.string(), file.size_bytes, limits.max_file_bytes);
  }
  CHORAL_RETURN_IF_ERROR(read(file, limits));
  std::sort(file.tensors.begin(), file.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return file;
}

}  // namespace choral::lora
