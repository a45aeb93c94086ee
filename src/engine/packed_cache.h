// A model's packed weights on disk (docs/design/packed-weights.md): a start maps what an earlier one packed, and replicas on one
// machine share its pages. A file is named by all that decides its bytes; one that is damaged, or says something else than its
// name, is removed with a line in the log, and the model is packed as ever. So is one that cannot be written. Engine thread,
// while a model loads.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/thread_pool.h"
#include "io/checkpoint.h"
#include "io/section_file.h"
#include "quant/packed_layers.h"

namespace choral::engine {

// All that decides the bytes of packed weights.
struct PackedModel {
  std::vector<io::FileIdentity> files;
  std::string forms;  // what is asked of all layers, and whose share they are
  Sha256Digest config = {};
  std::string weights;  // CheckpointWeights::digest()
};

// Under EngineOptions::packed_cache "auto": beside the hub's cache; empty where there is no home.
std::filesystem::path packed_cache_folder();
// Under "auto", weights that take less are packed each time: in less than a second.
inline constexpr int64_t kLeastKeptBytes = int64_t{1} << 30;

class PackedCache {
 public:
  // `option`: EngineOptions::packed_cache. Null: nothing is kept of this model, since it is off, or its files can't be told from
  // what they were before.
  static std::unique_ptr<PackedCache> open(const PackedModel& model, const std::string& option, ThreadPool& pool);

  quant::PackedLayers& layers() { return *layers_; }
  // Once all is packed, which took so long: writes it, if it was packed now and shall be kept. How it went, in words; empty:
  // nothing is kept of it.
  std::string finish(double seconds);
  // That weights lie in, from finish() on; null: in memory of their own.
  std::shared_ptr<const io::SectionFile> file() const { return file_; }

 private:
  PackedCache(std::filesystem::path path, const io::SectionFileId& id, int64_t least_bytes, ThreadPool& pool)
      : path_(std::move(path)), id_(id), least_bytes_(least_bytes), pool_(pool) {}
  void read();
  Status write() const;
  void remove_old_files() const;

  std::filesystem::path path_;
  io::SectionFileId id_;
  int64_t least_bytes_;
  ThreadPool& pool_;
  std::shared_ptr<const io::SectionFile> file_;
  std::unique_ptr<quant::PackedLayers> layers_;
};

// What lies in such a folder, for who shows it.
struct PackedCacheContent {
  int64_t files = 0, bytes = 0;
};
PackedCacheContent packed_cache_content(const std::filesystem::path& folder);

}  // namespace choral::engine
