#include "io/zip_directory.h"

#include <cstring>
#include <optional>

#include "base/checked_math.h"
#include "base/printable.h"
#include "io/bounded_reader.h"

namespace choral::io {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kLocalHeaderBytes = 30;
constexpr uint16_t kZip64Extra = 1;

struct DirectoryPlace {
  uint64_t offset = 0, size = 0, entries = 0;
};

Result<BoundedReader> reader_at(std::span<const std::byte> file, std::string_view name, uint64_t offset) {
  BoundedReader reader(file, name);
  CHORAL_RETURN_IF_ERROR(reader.skip(offset, "zip record"));
  return reader;
}

// The end record stands last, before a comment of up to 65535 bytes.
std::optional<uint64_t> find_end(std::span<const std::byte> file) {
  if (file.size() < kEndBytes) return std::nullopt;
  const uint64_t last = file.size() - kEndBytes;
  const uint64_t first = last > 65'535 ? last - 65'535 : 0;
  for (uint64_t at = last;; --at) {
    uint32_t signature;
    std::memcpy(&signature, file.data() + at, 4);
    uint16_t comment;
    std::memcpy(&comment, file.data() + at + 20, 2);
    if (signature == kEnd && at + kEndBytes + comment == file.size()) return at;
    if (at == first) return std::nullopt;
  }
}

Result<DirectoryPlace> find_directory(std::span<const std::byte> file, std::string_view name) {
  const auto end = find_end(file);
  if (!end) return corrupt("{} is no zip archive, or it is cut short: it has no end record", name);
  CHORAL_TRY(BoundedReader reader, reader_at(file, name, *end));
  CHORAL_RETURN_IF_ERROR(reader.skip(4, "zip end record"));
  CHORAL_TRY(const uint16_t disk, reader.u16("disk"));
  CHORAL_TRY(const uint16_t first_disk, reader.u16("disk"));
  CHORAL_RETURN_IF_ERROR(reader.skip(2, "entries of this disk"));
  CHORAL_TRY(const uint16_t entries, reader.u16("entries"));
  CHORAL_TRY(const uint32_t size, reader.u32("directory size"));
  CHORAL_TRY(const uint32_t offset, reader.u32("directory offset"));
  DirectoryPlace place{offset, size, entries};
  if ((disk != 0 && disk != 0xFFFF) || (first_disk != 0 && first_disk != 0xFFFF)) {
    return unsupported("{} is one part of a divided zip archive", name);
  }
  uint64_t limit = *end;
  if (entries == 0xFFFF || size == 0xFFFFFFFF || offset == 0xFFFFFFFF) {
    if (*end < kLocatorBytes) return corrupt("{}: the zip64 locator is missing", name);
    CHORAL_TRY(BoundedReader locator, reader_at(file, name, *end - kLocatorBytes));
    CHORAL_TRY(const uint32_t signature, locator.u32("zip64 locator"));
    if (signature != kZip64Locator) return corrupt("{}: the zip64 locator is missing", name);
    CHORAL_RETURN_IF_ERROR(locator.skip(4, "disk"));
    CHORAL_TRY(limit, locator.u64("zip64 end record's offset"));
    CHORAL_TRY(BoundedReader wide, reader_at(file, name, limit));
    CHORAL_TRY(const uint32_t wide_signature, wide.u32("zip64 end record"));
    if (wide_signature != kZip64End) return corrupt("{}: the zip64 end record is missing", name);
    CHORAL_RETURN_IF_ERROR(wide.skip(8 + 2 + 2 + 4 + 4 + 8, "zip64 end record"));
    CHORAL_TRY(place.entries, wide.u64("entries"));
    CHORAL_TRY(place.size, wide.u64("directory size"));
    CHORAL_TRY(place.offset, wide.u64("directory offset"));
  }
  const auto stop = checked_add(place.offset, place.size);
  if (!stop || *stop > limit) return corrupt("{}: the zip directory lies outside the file", name);
  return place;
}

struct Entry {
  std::string_view name;
  uint64_t offset = 0, size = 0;
};

// The 64-bit values of those fields that are all ones, in their fixed order.
Status read_zip64(std::span<const std::byte> extra, std::string_view file, uint64_t* plain, uint64_t* packed, uint64_t* offset) {
  BoundedReader reader(extra, file);
  while (reader.remaining() >= 4) {
    CHORAL_TRY(const uint16_t id, reader.u16("extra field"));
    CHORAL_TRY(const uint16_t size, reader.u16("extra field"));
    CHORAL_TRY(const auto body, reader.take(size, "extra field"));
    if (id != kZip64Extra) continue;
    BoundedReader wide(body, file);
    for (uint64_t* field : {plain, packed, offset}) {
      if (*field != 0xFFFFFFFF) continue;
      CHORAL_TRY(*field, wide.u64("zip64 size"));
    }
    return {};
  }
  return {};
}

Result<Entry> read_entry(BoundedReader& reader, const ZipLimits& limits) {
  CHORAL_TRY(const uint32_t signature, reader.u32("zip directory entry"));
  if (signature != kDirectoryEntry) return corrupt("{}: offset {}: no zip directory entry", reader.file(), reader.offset() - 4);
  CHORAL_RETURN_IF_ERROR(reader.skip(4, "versions"));
  CHORAL_TRY(const uint16_t flags, reader.u16("flags"));
  CHORAL_TRY(const uint16_t method, reader.u16("method"));
  CHORAL_RETURN_IF_ERROR(reader.skip(8, "time and CRC"));
  CHORAL_TRY(const uint32_t packed32, reader.u32("packed size"));
  CHORAL_TRY(const uint32_t plain32, reader.u32("size"));
  CHORAL_TRY(const uint16_t name_bytes, reader.u16("name length"));
  CHORAL_TRY(const uint16_t extra_bytes, reader.u16("extra length"));
  CHORAL_TRY(const uint16_t comment_bytes, reader.u16("comment length"));
  CHORAL_RETURN_IF_ERROR(reader.skip(8, "disk and attributes"));
  CHORAL_TRY(const uint32_t offset32, reader.u32("offset"));
  if (name_bytes > limits.max_name_bytes) return too_large("{}: a zip entry's name has {} bytes", reader.file(), name_bytes);
  CHORAL_TRY(const auto name, reader.take(name_bytes, "name"));
  CHORAL_TRY(const auto extra, reader.take(extra_bytes, "extra"));
  CHORAL_RETURN_IF_ERROR(reader.skip(comment_bytes, "comment"));

  Entry entry{{reinterpret_cast<const char*>(name.data()), name.size()}, offset32, plain32};
  uint64_t packed = packed32;
  CHORAL_RETURN_IF_ERROR(read_zip64(extra, reader.file(), &entry.size, &packed, &entry.offset));
  if ((flags & 1) != 0) return unsupported("{}: '{}' is encrypted", reader.file(), printable(entry.name));
  if (method != 0 || packed != entry.size) {
    return unsupported("{}: '{}' is compressed; torch.save stores its entries uncompressed", reader.file(),
                       printable(entry.name));
  }
  return entry;
}

}  // namespace

Result<ZipDirectory> ZipDirectory::parse(std::span<const std::byte> file, std::string_view file_name, const ZipLimits& limits) {
  CHORAL_TRY(const DirectoryPlace place, find_directory(file, file_name));
  if (place.entries > limits.max_entries) {
    return too_large("{} has {} zip entries; {} are allowed", file_name, place.entries, limits.max_entries);
  }
  ZipDirectory out;
  BoundedReader reader(file.subspan(place.offset, place.size), file_name);
  for (uint64_t i = 0; i < place.entries; ++i) {
    CHORAL_TRY(const Entry entry, read_entry(reader, limits));
    CHORAL_TRY(BoundedReader local, reader_at(file.first(place.offset), file_name, entry.offset));
    CHORAL_TRY(const uint32_t signature, local.u32("zip entry"));
    if (signature != kLocalHeader)
      return corrupt("{}: '{}' does not begin where the directory says", file_name, printable(entry.name));
    CHORAL_RETURN_IF_ERROR(local.skip(kLocalHeaderBytes - 8, "zip entry"));
    CHORAL_TRY(const uint16_t name_bytes, local.u16("name length"));
    CHORAL_TRY(const uint16_t extra_bytes, local.u16("extra length"));
    CHORAL_RETURN_IF_ERROR(local.skip(uint64_t{name_bytes} + extra_bytes, "zip entry"));
    CHORAL_TRY(const auto data, local.take(entry.size, "data of a zip entry"));
    if (!out.entries_.emplace(std::string(entry.name), data).second) {
      return corrupt("{}: '{}' stands in the archive twice", file_name, printable(entry.name));
    }
  }
  return out;
}

const std::span<const std::byte>* ZipDirectory::find(std::string_view name) const {
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : &at->second;
}

}  // namespace choral::io
