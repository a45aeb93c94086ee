// What a repository holds at one commit, and which of its files are wanted. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::tools {

struct HubFile {
  std::string name;  // "1_Pooling/config.json": a relative path without . and ..
  int64_t size_bytes = 0;
  std::string hash;  // of large files SHA-256, of others git's SHA-1 of the blob; the blob's name in the cache
};

struct HubListing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;
};

// Of the hub's answer. Names that are no plain relative paths, or hashes that are none, are errors: nobody honest has them.
Result<HubListing> read_listing(std::string_view json);

// Those that Choral reads, if `names` is empty: a folder of safetensors with what belongs to it, an adapter, or the only GGUF
// file. Else those named; a name that no file has may stand in that of one GGUF file.
Result<std::vector<HubFile>> wanted_files(const HubListing& listing, std::span<const std::string> names);

}  // namespace choral::tools
