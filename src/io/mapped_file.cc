#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/system_error.h"

namespace choral::io {
namespace {

struct OpenFile {
  explicit OpenFile(int d) : descriptor(d) {}
  OpenFile(OpenFile&& other) noexcept : descriptor(std::exchange(other.descriptor, -1)), size(other.size) {}
  ~OpenFile() {
    if (descriptor >= 0) ::close(descriptor);
  }
  int descriptor;
  uint64_t size = 0;
};

Status file_error(std::string_view what, const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) return not_found("{}: no such file", path);
  return system_error(error, fmt::format("cannot {} {}", what, path));
}

Result<OpenFile> open_regular_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe without a writer must not hang; it means nothing to a regular file.
  OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.descriptor < 0) return file_error("open", path, errno);
  struct stat facts {};
  if (::fstat(file.descriptor, &facts) != 0) return file_error("examine", path, errno);
  if (S_ISDIR(facts.st_mode)) return invalid_argument("{} is a directory, a file is needed", path);
  if (!S_ISREG(facts.st_mode)) return invalid_argument("{} is not a regular file (a pipe, socket or device)", path);
  file.size = static_cast<uint64_t>(facts.st_size);
  return file;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  std::string name = path.string();
  CHORAL_TRY(const OpenFile file, open_regular_file(name));
  const std::byte* data = nullptr;
  if (file.size > 0) {  // mmap refuses zero bytes
    void* mapped = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
    if (mapped == MAP_FAILED) return file_error("map", name, errno);
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(std::move(name), data, file.size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> range) const {
  if (range.empty() || data_ == nullptr) return;
  CHORAL_CHECK(range.data() >= data_ && range.data() + range.size() <= data_ + size_, "the range is not of this file");
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  // Advice: failing costs memory, not correctness.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<std::string> read_whole_file(const std::filesystem::path& path, uint64_t max_bytes) {
  const std::string name = path.string();
  CHORAL_TRY(const OpenFile file, open_regular_file(name));
  if (file.size > max_bytes) return too_large("{} has {} bytes, at most {} are read", name, file.size, max_bytes);
  std::string text;
  text.resize(file.size);
  size_t used = 0;
  while (true) {  // to the true end: the size may have changed since, and is 0 under /proc
    if (used == text.size()) text.resize(used + 4096);
    const ssize_t got = ::read(file.descriptor, text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error("read", name, errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used > max_bytes) return too_large("{} has more than {} bytes", name, max_bytes);
  }
  text.resize(used);
  return text;
}

}  // namespace choral::io
