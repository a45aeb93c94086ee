// Files of requests, batches of them and the answers so far, in a file of the state directory, for the key that sent them and no
// other. A file is kept by its lines. The answers to a batch are lines of its output and its error file from the moment that each
// is there, under the number of the line that it answers: what is answered is known by that, whatever ended the process. Bounded
// in bytes, number and age. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "serve/list_page.h"

namespace choral::serve {

class StateFile;
class SqliteStatement;

struct StoredFile {
  std::string id;
  std::string owner = {};    // KeyHolder::salt; empty: nobody shows a key
  std::string purpose = {};  // "batch", "batch_output"
  std::string name = {};
  int64_t bytes = 0;
  int64_t created_unix_s = 0;
  int64_t expires_unix_s = 0;
};

struct StoredBatch {
  std::string id;
  std::string owner = {};
  std::string status = {};  // OpenAI's words
  std::string endpoint = {};
  std::string input_file = {}, output_file = {}, error_file = {};  // the latter two are files once the batch has ended
  std::string facts_json = {};                                     // an object: what else an answer says of it
  int64_t created_unix_s = 0;
  int64_t expires_unix_s = 0;
  int64_t output_expires_s = 0;  // after its end
  int64_t total = 0, completed = 0, failed = 0;

  bool has_ended() const { return status == "failed" || status == "completed" || status == "expired" || status == "cancelled"; }
};

// Tokens of an answer.
struct LineUsage {
  int64_t input = 0, cached_input = 0, output = 0, reasoning = 0;
};

struct FileLine {
  int64_t number = 0;  // from 0
  std::string text;
};

class BatchStore {
 public:
  struct Limits {
    int64_t bytes = 0;
    int64_t files = 10'000;
    int64_t batches = 10'000;              // that have not been forgotten
    int64_t age_s = int64_t{30} * 86'400;  // of files that name no end, and of batches that have ended
    bool is_shared = false;                // by several keys: none takes more than it leaves free
  };
  static constexpr int64_t kMostLines = 50'000;       // of a batch, as OpenAI's
  static constexpr int64_t kMostFileLines = 100'000;  // empty ones too

  static Result<std::unique_ptr<BatchStore>> open(const std::string& state_directory, Limits limits);
  ~BatchStore();

  // `expires_unix_s` of 0: by the limits. resource_exhausted: the store is full.
  Result<StoredFile> add_file(StoredFile file, std::string_view content);
  Result<std::optional<StoredFile>> find_file(std::string_view id, std::string_view owner);
  Result<Listed<StoredFile>> files(std::string_view owner, std::string_view purpose, const ListPage& page);
  // False: there is none. invalid_argument: a batch that has not ended needs it.
  Result<bool> remove_file(std::string_view id, std::string_view owner);
  // The first line of the file at or behind that number; nothing: there is none, or no such file.
  Result<std::optional<FileLine>> line(std::string_view file, int64_t from);

  Status add_batch(const StoredBatch& batch);
  Result<std::optional<StoredBatch>> find_batch(std::string_view id, std::string_view owner);
  Result<Listed<StoredBatch>> batches(std::string_view owner, const ListPage& page);
  // Changes a batch as it is now. False: there is none; `change` may leave it as it is.
  Result<bool> change_batch(std::string_view id, const std::function<void(StoredBatch&)>& change);

  // --- for whoever computes ---
  // Those that have not ended, oldest first.
  Result<std::vector<StoredBatch>> unfinished();
  // The first line of the batch's input at or behind that number that has no answer.
  Result<std::optional<FileLine>> unanswered(const StoredBatch& batch, int64_t from);
  // The answer to a line, in the output or the error file, and counted, with what it used. Nothing where the line has one.
  Status add_answer(const StoredBatch& batch, int64_t line, bool has_failed, std::string_view text, const LineUsage& used = {});
  // The same of one that ends by it: what answers there are can be read as files from now on.
  Status end_batch(std::string_view id, const std::function<void(StoredBatch&)>& change);
  // What is too old goes.
  Status drop_old();
  // Returns when a batch was added or changed, or after that time.
  void wait(std::chrono::milliseconds limit);
  void wake();

 private:
  BatchStore(std::unique_ptr<StateFile> file, Limits limits);
  Status open_database();
  Status check_or_make();
  Status check_room(std::string_view owner, int64_t bytes);
  Status drop_old_locked();
  Status recount();
  Status save(const StoredBatch& batch);
  Status insert_file(const StoredFile& file);
  Status insert_line(std::string_view file, int64_t number, std::string_view text);
  Status insert_answers(const StoredBatch& batch, const std::string& id, std::string_view kind);
  Result<std::optional<StoredBatch>> batch_named(std::string_view id);
  Result<int64_t> text_bytes(std::string_view file, int64_t& lines);
  Result<int64_t> rowid_of(const char* sql, std::string_view id, std::string_view owner);
  template <class Change>
  Status in_transaction(Change change);

  const std::unique_ptr<StateFile> file_;
  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t changes_ = 0, seen_ = 0;  // of batches
  int64_t held_ = 0;                 // bytes of lines
};

}  // namespace choral::serve
