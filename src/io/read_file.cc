#include "io/read_file.h"

namespace choral::io {
namespace {

class ReadFile : public FileBytes {
 public:
  ReadFile(std::string path, std::shared_ptr<const AlignedBuffer> memory, size_t size)
      : FileBytes(std::move(path)), memory_(std::move(memory)) {
    bytes_ = {memory_->data(), size};
  }

  void release(std::span<const std::byte>) const override {}  // goes as a whole
  Status check_unchanged() const override { return {}; }      // was checked when it was read

 private:
  std::shared_ptr<const AlignedBuffer> memory_;
};

// The bytes that the file had at open(); fewer when it was cut.
Result<size_t> read_all(RegularFile& file, std::span<std::byte> to) {
  size_t used = 0;
  while (used < to.size()) {
    CHORAL_TRY(const size_t got, file.read(to.subspan(used)));
    if (got == 0) break;
    used += got;
  }
  return used;
}

}  // namespace

Result<std::shared_ptr<AlignedBuffer>> ReadMemory::take(uint64_t size) {
  if (kept_ != nullptr && kept_.use_count() == 1 && kept_->size_bytes() >= size) return kept_;
  CHORAL_TRY(auto fresh, AlignedBuffer::allocate(size));
  auto buffer = std::make_shared<AlignedBuffer>(std::move(fresh));
  if (size <= kept_bytes_) kept_ = buffer;
  return buffer;
}

Result<std::shared_ptr<const FileBytes>> read_file(RegularFile& file, uint64_t max_bytes, ReadMemory& memory) {
  const uint64_t size = file.stamp().size;
  if (size > max_bytes) return too_large("{} has {} bytes; {} are allowed", file.path(), size, max_bytes);
  CHORAL_TRY(auto buffer, memory.take(size));
  CHORAL_TRY(const size_t got, read_all(file, {buffer->data(), static_cast<size_t>(size)}));
  if (got < size) return changed_while_read(file.path());
  CHORAL_RETURN_IF_ERROR(file.check_unchanged());
  return std::make_shared<const ReadFile>(file.path(), std::move(buffer), got);
}

Result<std::shared_ptr<const FileBytes>> read_file(const std::filesystem::path& path, uint64_t max_bytes, ReadMemory& memory) {
  CHORAL_TRY(RegularFile file, RegularFile::open(path));
  return read_file(file, max_bytes, memory);
}

}  // namespace choral::io
