// Adapters that clients send: a folder for each in `adapter_uploads` of the state directory, under a name that is made here, with
// files whose names are in a list. An upload is begun with the sizes of its files, which are held against the limits at once, and
// its files come in pieces, in order. Whole, it is renamed into its place; what is not whole when the server ends, or rests for
// too long, is deleted. Who keeps a whole one, and until when, says the caller. Thread-safe; calls wait for the disk.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::serve {

struct SentFile {
  std::string name;
  int64_t bytes = 0;  // when it is whole
  int64_t received = 0;
};

// They are an adapter: known files, no pickle among them, each once and within its reader's limit.
Status check_adapter_files(std::span<const SentFile> files);

class AdapterUploads {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  struct Limits {
    int64_t bytes = 0;  // of all adapters that were sent, and of those under way as they will be; 0: none are taken
    size_t under_way = 16;
    std::chrono::seconds rest{600};  // without a piece, before an upload makes room for others
    Clock clock = std::chrono::steady_clock::now;
  };
  static constexpr const char* kFolderName = "adapter_uploads";
  static constexpr size_t kMostFiles = 8;

  static Result<std::unique_ptr<AdapterUploads>> open(const std::string& state_directory, Limits limits);
  ~AdapterUploads();

  // Deletes every folder that is not one of `paths`, what was under way when a server ended too. Before the first upload.
  Status keep_only(std::span<const std::string> paths);

  // --- under way ---
  // Gives its id. resource_exhausted: there is no room; too_large: there never will be.
  Result<std::string> begin(std::vector<SentFile> files);
  // What follows what is there of the file. already_exists: `offset` is another place, and the message says which it should be.
  // not_found: no such upload, or no such file in it.
  Result<SentFile> write(std::string_view id, std::string_view name, int64_t offset, std::string_view bytes);
  // The folder of an upload that is whole, safe on the disk, and under way no more.
  Result<std::string> finish(std::string_view id);
  bool drop(std::string_view id);  // false: there is none

  // --- whole ---
  bool has(std::string_view path) const;  // it is the place of one
  Status remove(const std::string& path);

  int64_t held_bytes() const { return held_; }
  int64_t most_bytes() const { return limits_.bytes; }

 private:
  struct Upload;

  AdapterUploads(std::filesystem::path folder, Limits limits);
  Status check_room(int64_t bytes) const;
  Result<std::unique_ptr<Upload>> make(std::vector<SentFile> files);
  Result<Upload*> find(std::string_view id);
  void drop_resting();
  std::filesystem::path place_of(std::string_view id) const { return folder_ / id; }

  const std::filesystem::path folder_;  // absolute
  const Limits limits_;
  std::atomic<int64_t> held_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Upload>, std::less<>> under_way_;
};

}  // namespace choral::serve
