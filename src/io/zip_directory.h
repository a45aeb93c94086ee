// The files inside a zip archive whose entries are stored, not compressed: what torch.save writes. Nothing is copied or unpacked;
// each entry is a view of the archive. Hostile until parse() has checked it: the directory's place and count, each entry's
// header, name and extent, with and without zip64. Compressed and encrypted entries are refused by name. CRCs are not checked.
// Immutable; any thread. Views live as long as the archive's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::io {

struct ZipLimits {
  uint64_t max_entries = 200'000;
  uint64_t max_name_bytes = 1024;
};

class ZipDirectory {
 public:
  // `file_name` is for messages.
  static Result<ZipDirectory> parse(std::span<const std::byte> file, std::string_view file_name, const ZipLimits& limits = {});

  // Null when there is no such entry.
  const std::span<const std::byte>* find(std::string_view name) const;
  const std::map<std::string, std::span<const std::byte>, std::less<>>& entries() const { return entries_; }

 private:
  std::map<std::string, std::span<const std::byte>, std::less<>> entries_;
};

}  // namespace choral::io
