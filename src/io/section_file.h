// A file of sections: bytes that are used where they lie in the mapped file, each with a name and numbers that say what it is.
// It is written once, and is there only when it is whole. It belongs to one content that its id stands for, and every byte is
// under a checksum: a file that is cut, damaged, of another id, version or byte order, or that contradicts itself is an error
// before a byte of a section is used.
//   header   128 bytes: "CHORALSF", u32 byte order, u32 version, u64 sizes of file and index, where data begins, how many
//            sections there are, 32 bytes of id, u64 checksum of all between header and data, and in the last 8 bytes that of the
//            header
//   index    of each section u64 length and bytes of name and text, u64 count and i64 facts, u64 offset and size; then u64
//            checksum of each 8 MiB of data
//   data     from a multiple of 2 MiB on, which huge pages begin at; sections at multiples of 4 KiB, in the order of the index
// Numbers are little-endian. Thread-safe once opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "io/mapped_file.h"

namespace choral::io {

struct SectionInfo {
  std::string name = {}, text = {};
  std::vector<int64_t> facts = {};
};

struct Section : SectionInfo {
  std::span<const std::byte> bytes = {};
};

struct SectionFileId {
  uint32_t version = 0;
  Sha256Digest digest = {};
};

struct SectionIndex {
  std::vector<Section> sections;  // views of the file
  std::span<const std::byte> data;
  std::vector<uint64_t> checksums;  // of each piece of data

  std::span<const std::byte> piece(size_t index) const;
};

// Checks all but the checksums of data. `name` is for messages.
Result<SectionIndex> parse_section_file(std::span<const std::byte> file, std::string_view name, const SectionFileId& id);

class SectionFile {
 public:
  // Reads all of it, on all threads, and keeps it mapped. Not this user's or root's, or written by others as they like:
  // kPermissionDenied.
  static Result<std::shared_ptr<const SectionFile>> open(const std::filesystem::path& path, const SectionFileId& id,
                                                         ThreadPool& pool);

  std::span<const Section> sections() const { return index_.sections; }
  const std::string& path() const { return file_->path(); }
  uint64_t size_bytes() const { return file_->bytes().size(); }
  // An error once somebody wrote to the file or cut it: what was read since may be anything. To be asked after reading.
  Status check_unchanged() const { return file_->check_unchanged(); }

 private:
  std::shared_ptr<const MappedFile> file_;
  SectionIndex index_;
};

// What such a file will take.
uint64_t section_file_bytes(std::span<const Section> sections);
// Written as a NewFile is, readable by this user alone. From all threads of the pool.
Status write_section_file(const std::filesystem::path& path, const SectionFileId& id, std::span<const Section> sections,
                          ThreadPool& pool);

}  // namespace choral::io
