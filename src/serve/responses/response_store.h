// Responses of /v1/responses that outlast their requests, in a file of the state directory: each with what it was asked, for the
// key that asked it and no other. Bounded in bytes, number and age; what was used longest ago goes first. A change is in the file
// when its call returns, whatever ends the process then. Only its user can read the file, and what is deleted is overwritten in
// it. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::serve {

class StateFile;

struct StoredResponse {
  std::string id;
  std::string owner = {};          // KeyHolder::salt; empty: nobody shows a key
  std::string response_json = {};  // an object
  std::string input_json = {};     // {"input": [its own items]}
  std::string previous_id = {};    // that it goes on from; empty: none
  bool is_running = false;         // its answer is not there yet
};

class ResponseStore {
 public:
  struct Limits {
    int64_t bytes = 0;
    int64_t count = 100'000;
    int64_t age_s = int64_t{30} * 24 * 60 * 60;  // since it was last used
  };
  static constexpr size_t kMostTurns = 1024;  // of a conversation

  static Result<std::unique_ptr<ResponseStore>> open(const std::string& state_directory, Limits limits);
  ~ResponseStore();

  // Whoever has the least use goes, to make room. too_large: it alone is more than the store holds.
  Status put(const StoredResponse& response);
  // The answer of one that was running; false: it runs no more, or is gone.
  Result<bool> finish(std::string_view id, std::string_view owner, std::string_view response_json);
  Result<std::optional<StoredResponse>> find(std::string_view id, std::string_view owner);
  // The response and those that it goes on from, oldest first. not_found: one of them is gone.
  Result<std::vector<StoredResponse>> conversation(std::string_view id, std::string_view owner);
  Result<bool> remove(std::string_view id, std::string_view owner);

 private:
  ResponseStore(std::unique_ptr<StateFile> file, Limits limits);
  Status open_file();
  Status check_or_make();
  Result<std::optional<StoredResponse>> find_locked(std::string_view id, std::string_view owner);
  Status make_room(int64_t bytes);
  Status recount();

  const std::unique_ptr<StateFile> file_;
  const Limits limits_;
  std::mutex mutex_;
  int64_t held_ = 0, count_ = 0;  // bytes and rows
};

}  // namespace choral::serve
