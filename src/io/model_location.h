// What a path to a model is: a directory of Hugging Face files, one .safetensors file, or a GGUF file. Decided by what the file
// begins with, not by its extension. Checkpoint, model_config and who copies a model start here, so that they always mean the
// same files.
#pragma once

#include <filesystem>
#include <memory>

#include "base/status.h"
#include "io/gguf.h"

namespace choral::io {

// What a file begins as, whatever its name: Ollama keeps GGUF files as sha256-….
enum class FileKind { kGguf, kSafetensors, kOther };
Result<FileKind> file_kind(const std::filesystem::path& file);

struct ModelLocation {
  enum class Kind { kDirectory, kSafetensors, kGguf };
  Kind kind = Kind::kDirectory;
  std::filesystem::path directory;       // where config.json and its kin stand
  std::filesystem::path file;            // the weights' file; empty for kDirectory
  std::shared_ptr<const GgufFile> gguf;  // opened, for kGguf: it is read once, whoever asks what it says
};

// A directory without safetensors weights but with exactly one GGUF file, or the files of one split model, is that file.
Result<ModelLocation> locate_model(const std::filesystem::path& path);

bool is_file(const std::filesystem::path& path);  // exists, also through links, and is a regular file

}  // namespace choral::io
