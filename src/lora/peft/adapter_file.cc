#include "lora/peft/adapter_file.h"

#include <algorithm>

#include "base/free_memory.h"
#include "base/function_ref.h"
#include "base/printable.h"
#include "io/mapped_file.h"
#include "io/regular_file.h"
#include "io/safetensors.h"
#include "io/torch_pickle.h"
#include "kernels/quant/dequantise.h"
#include "lora/peft/adapter_bytes.h"
#include "lora/peft/gguf_adapter.h"
#include "lora/peft/peft_helper.h"

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
    if (file.shapes_only) {
      tensor.view.dtype = DType::kF32;
    } else {
      CHORAL_TRY(Tensor as_float, to_float_tensor(tensor.view));
      tensor = AdapterTensor(std::move(as_float));
    }
  }
  file.tensors.push_back({std::move(name), std::move(tensor)});
  return {};
}

Status read_safetensors(AdapterFile& file, std::shared_ptr<const io::FileBytes> bytes, const AdapterLimits& limits) {
  io::SafetensorsLimits header;
  header.max_header_bytes = limits.max_header_bytes;
  header.max_tensors = limits.max_tensors;
  CHORAL_TRY(const auto source, io::SafetensorsFile::parse(std::move(bytes), header));
  uint64_t converted = 0;
  for (const auto& entry : source->entries()) {
    CHORAL_TRY(const TensorView view, source->find(entry.name));
    CHORAL_RETURN_IF_ERROR(add(file, entry.name, {view, source}, converted, limits));
  }
  return {};
}

Status read_torch(AdapterFile& file, std::shared_ptr<const io::FileBytes> bytes, const AdapterLimits& limits) {
  io::TorchLimits torch;
  torch.max_pickle_bytes = limits.max_header_bytes;
  torch.max_tensors = torch.zip.max_entries = limits.max_tensors;
  torch.max_copied_bytes = limits.max_converted_bytes;
  torch.shapes_only = file.shapes_only;
  auto tensors = io::parse_torch_tensors(bytes->bytes(), bytes->path(), bytes, torch);
  CHORAL_RETURN_IF_ERROR(bytes->check_unchanged());
  if (!tensors.ok()) return std::move(tensors).status();
  uint64_t converted = 0;
  for (auto& tensor : *tensors) {
    CHORAL_RETURN_IF_ERROR(add(file, std::move(tensor.name), {tensor.view, std::move(tensor.owner)}, converted, limits));
  }
  return {};
}

Status read_gguf(AdapterFile& file, std::shared_ptr<const io::FileBytes> bytes, const AdapterLimits& limits) {
  io::GgufLimits gguf;
  gguf.max_tensors = limits.max_tensors;
  CHORAL_TRY(file.gguf, io::GgufFile::parse(std::move(bytes), gguf));
  uint64_t converted = 0;
  for (const auto& tensor : file.gguf->tensors()) {  // before anything is turned round, which takes memory
    if (tensor.dtype != DType::kF32) converted += static_cast<uint64_t>(tensor.shape.elements()) * sizeof(float);
  }
  if (converted > limits.max_converted_bytes) {
    return too_large("{}: its tensors take more than {} bytes as float32", file.path.string(), limits.max_converted_bytes);
  }
  CHORAL_TRY(auto tensors, read_gguf_adapter(file.gguf, file.shapes_only));
  converted = 0;
  for (auto& tensor : tensors) {
    CHORAL_RETURN_IF_ERROR(add(file, std::move(tensor.name), std::move(tensor.tensor), converted, limits));
  }
  return {};
}

// Vocabularies added beside the adapter, as vLLM once read them.
constexpr const char* kNames[] = {"adapter_config.json", "adapter_model.safetensors",  "adapter_model.bin",
                                  "adapter_model.pt",    "new_embeddings.safetensors", "new_embeddings.bin"};

struct Kind {
  const char* name;
  const char* format;
  Status (*read)(AdapterFile&, std::shared_ptr<const io::FileBytes>, const AdapterLimits&);
};
constexpr Kind kKinds[] = {
    {kNames[1], "safetensors", read_safetensors}, {kNames[2], "torch", read_torch}, {kNames[3], "torch", read_torch}};
constexpr Kind kGguf = {"", "gguf", read_gguf};
constexpr Kind kNewEmbeddings[] = {{kNames[4], "safetensors", read_safetensors}, {kNames[5], "torch", read_torch}};

struct Location {
  std::filesystem::path path;
  const Kind* kind = nullptr;
};

// The file of new tokens' rows beside an adapter in PEFT's form; its kind is null when there is none.
Location locate_new_embeddings(const Location& adapter, FunctionRef<bool(const std::filesystem::path&)> exists) {
  if (adapter.kind == &kGguf) return {};
  for (const auto& kind : kNewEmbeddings) {
    if (auto path = adapter.path.parent_path() / kind.name; exists(path)) return {std::move(path), &kind};
  }
  return {};
}

// `folder`: empty in memory.
Result<Location> locate(const std::filesystem::path& folder, FunctionRef<bool(const std::filesystem::path&)> exists,
                        FunctionRef<std::optional<std::filesystem::path>()> find_gguf) {
  for (const auto& kind : kKinds) {
    if (exists(folder / kind.name)) return Location{folder / kind.name, &kind};
  }
  if (auto gguf = find_gguf()) return Location{*std::move(gguf), &kGguf};
  return not_found("{} no adapter_model.safetensors, adapter_model.bin or adapter_model.pt, nor a single .gguf file",
                   folder.empty() ? "there is" : folder.string() + " has");
}

constexpr auto is_there = [](const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
};

Result<Location> locate(const std::filesystem::path& path) {
  return locate(path, is_there, [&path] { return gguf_adapter_path(path); });
}

Result<AdapterFile> parse(const Location& at, std::shared_ptr<const io::FileBytes> bytes, bool shapes_only,
                          const AdapterLimits& limits) {
  AdapterFile file;
  file.path = at.path;
  file.format = at.kind->format;
  file.size_bytes = bytes->bytes().size();
  file.shapes_only = shapes_only;
  if (file.size_bytes > limits.max_file_bytes) {
    return too_large("{} has {} bytes; {} are allowed", file.path.string(), file.size_bytes, limits.max_file_bytes);
  }
  CHORAL_RETURN_IF_ERROR(at.kind->read(file, std::move(bytes), limits));
  std::sort(file.tensors.begin(), file.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return file;
}

// `before`: what the file was when it was opened, or earlier.
Result<AdapterFile> parse(const Location& at, const io::FileStamp& before, std::shared_ptr<const io::FileBytes> bytes,
                          bool shapes_only, const AdapterLimits& limits) {
  auto file = parse(at, std::move(bytes), shapes_only, limits);
  // Half a file is no sign of a broken one when somebody is writing to it.
  if (!file.ok()) CHORAL_RETURN_IF_ERROR(io::check_unchanged(at.path, before));
  return file;
}

// A file of this size can be read without taking the memory that others run in.
Status check_memory_for(const std::filesystem::path& path, const io::FileStamp& stamp) {
  constexpr uint64_t kAlwaysRead = 64 << 20;
  if (stamp.size <= kAlwaysRead) return {};
  const MemoryLimit least = free_memory().least_free;
  const auto free_bytes = static_cast<uint64_t>(std::max<int64_t>(least.free_bytes, 0));
  if (stamp.size <= free_bytes / 2) return {};
  return resource_exhausted("{} has {} bytes, which are read into memory; {} are free{}, of which half is left to others: {}",
                            path.string(), stamp.size, free_bytes, least.name.empty() ? "" : fmt::format(" ({})", least.name),
                            least.cure);
}

// Its tensors become the adapter's.
Status add_new_embeddings(AdapterFile& file, AdapterFile more) {
  for (auto& tensor : more.tensors) {
    if (tensor.name != kInputEmbeddings && tensor.name != kOutputEmbeddings) {
      return unsupported("{}: '{}' is neither {} nor {}, which is what this file can bring", more.path.string(),
                         printable(tensor.name), kInputEmbeddings, kOutputEmbeddings);
    }
    file.tensors.push_back(std::move(tensor));
  }
  file.size_bytes += more.size_bytes;
  std::sort(file.tensors.begin(), file.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return {};
}

// The adapter's file with that of its new tokens.
Result<AdapterFile> read_all(const Location& at, FunctionRef<bool(const std::filesystem::path&)> exists,
                             FunctionRef<Result<AdapterFile>(const Location&)> read) {
  CHORAL_TRY(AdapterFile file, read(at));
  if (const Location more = locate_new_embeddings(at, exists); more.kind != nullptr) {
    CHORAL_TRY(AdapterFile new_tokens, read(more));
    CHORAL_RETURN_IF_ERROR(add_new_embeddings(file, std::move(new_tokens)));
  }
  return file;
}

}  // namespace

std::span<const char* const> adapter_file_names() { return kNames; }

Result<AdapterFile> read_adapter_file(const std::filesystem::path& path, const AdapterLimits& limits, io::ReadMemory& memory) {
  CHORAL_TRY(const Location adapter, locate(path));
  return read_all(adapter, is_there, [&](const Location& at) -> Result<AdapterFile> {
    io::ReadMemory none(0);  // what is kept for the next adapter holds this one's own file
    CHORAL_TRY(const io::FileStamp stamp, io::file_stamp(at.path));
    CHORAL_RETURN_IF_ERROR(check_memory_for(at.path, stamp));
    CHORAL_TRY(auto bytes, io::read_file(at.path, limits.max_file_bytes, at.path == adapter.path ? memory : none));
    return parse(at, stamp, std::move(bytes), /*shapes_only=*/false, limits);
  });
}

Result<AdapterFile> read_adapter_file(const std::filesystem::path& path, const AdapterLimits& limits) {
  io::ReadMemory memory(0);
  return read_adapter_file(path, limits, memory);
}

Result<AdapterFile> read_adapter_shapes(const std::filesystem::path& path, const AdapterLimits& limits) {
  CHORAL_TRY(const Location adapter, locate(path));
  return read_all(adapter, is_there, [&](const Location& at) -> Result<AdapterFile> {
    CHORAL_TRY(const io::FileStamp stamp, io::file_stamp(at.path));
    CHORAL_TRY(auto bytes, io::MappedFile::open(at.path));
    return parse(at, stamp, std::move(bytes), /*shapes_only=*/true, limits);
  });
}

Result<AdapterFile> read_adapter_bytes(const HeldFiles& files, bool shapes_only, const AdapterLimits& limits) {
  const auto held = [&files](const std::filesystem::path& name) { return files.contains(name.native()); };
  const auto find_gguf = [&files]() -> std::optional<std::filesystem::path> {
    const std::string* const name = gguf_name(files);
    return name != nullptr ? std::optional<std::filesystem::path>(*name) : std::nullopt;
  };
  CHORAL_TRY(const Location adapter, locate({}, held, find_gguf));
  return read_all(adapter, held, [&](const Location& at) {
    const auto& bytes = files.find(at.path.native())->second;
    return parse({bytes->path(), at.kind}, bytes, shapes_only, limits);
  });
}

const std::string* gguf_name(const HeldFiles& files) {
  const auto of_peft = std::span(kNames).first(4);
  const std::string* found = nullptr;
  for (const auto& [name, bytes] : files) {
    if (std::find(of_peft.begin(), of_peft.end(), name) != of_peft.end()) return nullptr;
    if (!name.ends_with(".gguf")) continue;
    if (found != nullptr) return nullptr;
    found = &name;
  }
  return found;
}

}  // namespace choral::lora
