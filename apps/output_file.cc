#include "output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace choral::apps {
namespace {

Status system_error(std::string_view what, std::string_view path) {
  const int error = errno;
  const std::string text = fmt::format("{} {}: {}", what, path, std::strerror(error));
  if (error == ENOENT) return not_found("{}", text);
  if (error == EACCES || error == EPERM) return Status(Code::kPermissionDenied, text);
  if (error == ENOSPC) return resource_exhausted("{}", text);
  return invalid_argument("{}", text);
}

}  // namespace

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path) {
  namespace fs = std::filesystem;
  std::unique_ptr<OutputFile> out(new OutputFile());
  out->path_ = path;
  if (path == "-") {
    out->file_ = stdout;
    return out;
  }
  std::error_code ignored;
  const fs::file_status facts = fs::status(path, ignored);
  if (facts.type() == fs::file_type::directory) return invalid_argument("cannot write {}: it is a directory", path);
  std::string target = path;
  if (facts.type() == fs::file_type::not_found || facts.type() == fs::file_type::regular) {
    // A link stays a link: what it points to is replaced.
    if (const auto real = fs::canonical(path, ignored); !ignored) out->path_ = real.string();
    target = out->partial_ = fmt::format("{}.partial-{}", out->path_, getpid());
  }
  out->file_ = std::fopen(target.c_str(), "wbe");
  if (out->file_ == nullptr) {
    out->partial_.clear();
    return system_error("cannot write", target);
  }
  return out;
}

OutputFile::~OutputFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  if (!partial_.empty()) std::remove(partial_.c_str());
}

Status OutputFile::write_piece(std::string_view piece) {
  return std::fwrite(piece.data(), 1, piece.size(), file_) == piece.size() ? Status() : system_error("cannot write", path_);
}

Status OutputFile::write_line(std::string_view line) {
  const bool written =
      std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fputc('\n', file_) != EOF && std::fflush(file_) == 0;
  return written ? Status() : system_error("cannot write", path_);
}

Status OutputFile::commit() {
  if (partial_.empty()) return {};
  const bool written = fsync(fileno(file_)) == 0;
  if (!written || std::fclose(std::exchange(file_, nullptr)) != 0) return system_error("cannot write", path_);
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) return system_error("cannot write", path_);
  partial_.clear();
  return {};
}

Status print_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return system_error("cannot write", "standard output");
}

}  // namespace choral::apps
