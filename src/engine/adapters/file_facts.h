// What can be known of an adapter's files without reading them: which there are, and for each its identity, size and times. Equal
// facts mean unchanged files, provided that the clock that stamps them had moved on when they were read
// (wait_until_stamps_settle). Safe on any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace choral::engine {

struct FileFacts {
  std::string name;  // in the folder: the same files are equal over whichever link they are looked at
  uint64_t device = 0, inode = 0;
  int64_t size_bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // the system's own stamp: nobody sets it back
  bool operator==(const FileFacts&) const = default;
};
using AdapterFacts = std::vector<FileFacts>;

// Of the files that `path`, a folder or a file, is read from; those that are missing or cannot be looked at are left out. Of an
// empty path there are none.
AdapterFacts look_at_adapter(const std::string& path);

// Two writes within one tick of the file system's clock bear the same stamp. Waits, a few ticks at most, until the next one
// would bear another than `facts` have.
void wait_until_stamps_settle(const AdapterFacts& facts);

}  // namespace choral::engine
