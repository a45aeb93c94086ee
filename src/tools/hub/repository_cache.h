// One repository in huggingface_hub's cache: blobs under their hashes, snapshots that link to them, refs that name snapshots, and
// its locks. A blob has its name only when its content has its hash; what is not whole yet stands beside as HASH.incomplete and
// is gone on with. One thread at a time; processes take turns by the locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "base/status.h"
#include "tools/hub/listing.h"

namespace choral::tools {

class RepositoryCache {
 public:
  // `name`: org/name.
  RepositoryCache(const std::filesystem::path& root, const std::string& name);

  bool has(const HubFile& file) const;

  // What is there of a blob that is being fetched.
  class Partial {
   public:
    virtual ~Partial() = default;
    virtual int64_t size_bytes() const = 0;
    virtual Status cut(int64_t size_bytes) = 0;
    virtual Status append(std::span<const std::byte> bytes) = 0;  // kTooLarge beyond the file's size
  };
  // Fills the blob under its lock with `fetch`, unless somebody else did meanwhile; checks its hash. `wait` is called again and
  // again while another process has the lock.
  Status fill(const HubFile& file, FunctionRef<Status(Partial&)> fetch, FunctionRef<void()> wait);
  // The file's place in the snapshot, a link to its blob.
  Status link(const std::string& commit, const HubFile& file);
  // Which commit a branch or tag is. Last: a snapshot that a ref names is complete.
  Status set_ref(const std::string& revision, const std::string& commit);

  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  Status make_folders();
  // resource_exhausted when the disk has no room for so much.
  Status check_room(int64_t size_bytes) const;

 private:
  std::filesystem::path blob(const HubFile& file) const { return folder_ / "blobs" / file.hash; }

  std::filesystem::path folder_, locks_;
};

}  // namespace choral::tools
