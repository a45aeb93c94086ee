#include "io/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace choral::io {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  CHORAL_TRY(RegularFile file, RegularFile::open(path));
  return open(std::move(file));
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(RegularFile file) {
  const std::byte* data = nullptr;
  const auto size = static_cast<size_t>(file.stamp().size);
  if (size > 0) {  // mmap refuses zero bytes
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    if (mapped == MAP_FAILED) return file.error("map", errno);
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(std::move(file), {data, size}));
}

MappedFile::MappedFile(RegularFile file, std::span<const std::byte> bytes)
    : FileBytes(file.path()), file_(std::move(file)), guard_(std::in_place, bytes) {
  bytes_ = bytes;
}

MappedFile::~MappedFile() {
  guard_.reset();  // before these addresses can be another mapping's
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Status MappedFile::check_unchanged() const { return guard_->torn() ? changed_while_read(path_) : file_.check_unchanged(); }

void MappedFile::use_huge_pages() const {
  // Advice: failing costs speed, not correctness.
  if (!bytes_.empty()) ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_HUGEPAGE);
}

void MappedFile::release(std::span<const std::byte> range) const {
  if (range.empty() || bytes_.empty()) return;
  CHORAL_CHECK(range.data() >= bytes_.data() && range.data() + range.size() <= bytes_.data() + bytes_.size(),
               "the range is not of this file");
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  // Advice: failing costs memory, not correctness.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

namespace {

Result<std::string> read_to_end(RegularFile& file, uint64_t max_bytes) {
  if (file.stamp().size > max_bytes) {
    return too_large("{} has {} bytes, at most {} are read", file.path(), file.stamp().size, max_bytes);
  }
  std::string text;
  text.resize(file.stamp().size);
  size_t used = 0;
  while (true) {  // to the true end: the size may have changed since, and is 0 under /proc
    if (used == text.size()) text.resize(used + 4096);
    CHORAL_TRY(const size_t got, file.read(std::as_writable_bytes(std::span(text).subspan(used))));
    if (got == 0) break;
    used += got;
    if (used > max_bytes) return too_large("{} has more than {} bytes", file.path(), max_bytes);
  }
  text.resize(used);
  return text;
}

}  // namespace

Result<std::string> read_whole_file(const std::filesystem::path& path, uint64_t max_bytes) {
  CHORAL_TRY(RegularFile file, RegularFile::open(path));
  CHORAL_TRY(std::string text, read_to_end(file, max_bytes));
  CHORAL_RETURN_IF_ERROR(file.check_unchanged());
  return text;
}

}  // namespace choral::io
