#include "io/model_location.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/printable.h"
#include "base/system_error.h"
#include "io/mapped_file.h"

namespace choral::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGgufMagic = "GGUF";

bool begins_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// Eight bytes that say how long a header of JSON follows.
bool begins_as_safetensors(std::span<const std::byte> bytes) {
  uint64_t header = 0;
  if (bytes.size() <= sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header >= 2 && header <= bytes.size() - sizeof header && bytes[sizeof header] == std::byte{'{'};
}

Result<ModelLocation> locate_file(const fs::path& path) {
  CHORAL_TRY(const FileKind kind, file_kind(path));
  ModelLocation out;
  out.file = path;
  out.directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (kind == FileKind::kGguf) {
    out.kind = ModelLocation::Kind::kGguf;
    CHORAL_TRY(out.gguf, GgufFile::open(path));
  } else if (kind == FileKind::kSafetensors || path.extension() == ".safetensors") {
    out.kind = ModelLocation::Kind::kSafetensors;
  } else if (path.extension() == ".gguf") {
    return corrupt("{} does not begin as a GGUF file does; fetch it again", path.string());
  } else {
    return unsupported("{} is neither a GGUF nor a safetensors file; a model is a GGUF file, or a folder with config.json",
                       path.string());
  }
  return out;
}

// The names of the directory's files that end in `extension`, sorted.
Result<std::vector<std::string>> files_with(const fs::path& directory, std::string_view extension) {
  constexpr int kMaxEntries = 100'000;
  std::vector<std::string> out;
  std::error_code error;
  int seen = 0;
  for (fs::directory_iterator at(directory, error), end; !error && at != end && seen < kMaxEntries; at.increment(error), ++seen) {
    if (at->path().extension() == extension) out.push_back(at->path().filename().string());
  }
  if (error) return system_error(error.value(), "cannot read " + directory.string());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Result<FileKind> file_kind(const fs::path& file) {
  CHORAL_TRY(const auto mapped, MappedFile::open(file));
  if (begins_with(mapped->bytes(), kGgufMagic)) return FileKind::kGguf;
  return begins_as_safetensors(mapped->bytes()) ? FileKind::kSafetensors : FileKind::kOther;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Result<ModelLocation> locate_model(const fs::path& path) {
  std::error_code error;
  const fs::file_status facts = fs::status(path, error);
  if (facts.type() == fs::file_type::not_found) return not_found("{}: no such file or directory", path.string());
  if (facts.type() != fs::file_type::directory) return locate_file(path);

  ModelLocation out;
  out.directory = path;
  if (is_file(path / "model.safetensors") || is_file(path / "model.safetensors.index.json")) return out;
  CHORAL_TRY(auto ggufs, files_with(path, ".gguf"));
  keep_first_parts(ggufs);
  if (ggufs.size() > 1) {
    return invalid_argument("{} holds {} GGUF files ({}, {}{}); name the file to load", path.string(), ggufs.size(),
                            printable(ggufs[0]), printable(ggufs[1]), ggufs.size() > 2 ? ", ..." : "");
  }
  if (ggufs.size() == 1) return locate_file(path / ggufs[0]);
  return out;
}

}  // namespace choral::io
