// Reads an adapter's tensors, under PEFT's names, from the file that holds them: adapter_model.safetensors, else .bin, else .pt
// (both read by io/torch_pickle.h, which executes nothing), or a llama.cpp GGUF adapter.
// Tensors come out as float32, float16, bfloat16 or, for A and B in GGUF, Q8_0. Other types are converted (float64, GGUF's
// quantised ones) or refused by name. Values are not checked.
// The file is read into memory once (io/read_file.h), so later changes of it do not matter. Tensors keep that memory as long as
// they live. Safe on any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/gguf.h"
#include "io/read_file.h"
#include "lora/peft/adapter_tensor.h"

namespace choral::lora {

struct AdapterLimits {
  uint64_t max_file_bytes = uint64_t{16} << 30;
  uint64_t max_header_bytes = 16 << 20;  // names, shapes and metadata of all tensors
  uint64_t max_tensors = 100'000;
  uint64_t max_converted_bytes = uint64_t{4} << 30;  // memory for tensors that cannot stay in the file
};

// Names of the files of a folder that an adapter is read from, or refused for, beside a single .gguf.
std::span<const char* const> adapter_file_names();

// Rows of tokens that the base does not have, in a file beside the adapter's (vLLM's new_embeddings.safetensors or .bin).
inline constexpr std::string_view kInputEmbeddings = "input_embeddings", kOutputEmbeddings = "output_embeddings";

struct AdapterFile {
  std::filesystem::path path;
  std::string format;  // "safetensors", "torch" or "gguf"
  uint64_t size_bytes = 0;
  std::vector<NamedTensor> tensors;          // sorted by name
  bool shapes_only = false;                  // no value of a tensor may be read
  std::shared_ptr<const io::GgufFile> gguf;  // of a GGUF adapter, whose config it holds too
};

// `path`: a directory or a .gguf file. kNotFound names the files looked for. kUnavailable: somebody writes to it.
Result<AdapterFile> read_adapter_file(const std::filesystem::path& path, const AdapterLimits& limits, io::ReadMemory& memory);
Result<AdapterFile> read_adapter_file(const std::filesystem::path& path, const AdapterLimits& limits = {});
// The same but for the values, of which none is read, converted or copied: what an adapter would take can be known before any
// memory is spent on it. Types are those that read_adapter_file() would give.
Result<AdapterFile> read_adapter_shapes(const std::filesystem::path& path, const AdapterLimits& limits = {});

// GGUF files of the llama family hold the rows of q's and k's B in pairs, as their base does; this puts them into PEFT's order.
struct GgufRowOrder {
  bool interleaved_qk = false;
  int64_t head_dim = 0;  // rows of a head; must be known when there is something to undo
};
Result<std::vector<NamedTensor>> undo_gguf_row_order(const AdapterFile& file, const GgufRowOrder& order);

}  // namespace choral::lora
