#include "serve/responses/response_store.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/printable.h"
#include "serve/state_file.h"

namespace choral::serve {
namespace {

constexpr int kResponsesVersion = 1;
constexpr int kMaxResponseBytes = 64 << 20;
constexpr StateFile::Kind kResponses{.application_id = 0x43687232,  // "Chr2"
                                     .most_value_bytes = kMaxResponseBytes,
                                     .holds = "store of responses",
                                     .consequence = "stored responses are then gone"};
constexpr std::array kResponsesTables{
    "CREATE TABLE responses (id TEXT PRIMARY KEY NOT NULL, owner TEXT NOT NULL, previous TEXT NOT NULL, running INTEGER NOT "
    "NULL, "
    "bytes INTEGER NOT NULL, used_unix_s INTEGER NOT NULL, response TEXT NOT NULL, input TEXT NOT NULL) STRICT",
    "CREATE INDEX responses_by_use ON responses (used_unix_s, id)"};

int64_t bytes_of(const StoredResponse& response) {
  constexpr int64_t kRow = 256;
  return kRow + std::ssize(response.id) + std::ssize(response.owner) + std::ssize(response.response_json) +
         std::ssize(response.input_json) + std::ssize(response.previous_id);
}

}  // namespace

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(const std::string& state_directory, Limits limits) {
  std::unique_ptr<ResponseStore> store(
      new ResponseStore(std::make_unique<StateFile>(state_directory, "responses.sqlite3", kResponses), limits));
  CHORAL_RETURN_IF_ERROR(store->open_file());
  return store;
}

ResponseStore::ResponseStore(std::unique_ptr<StateFile> file, Limits limits) : file_(std::move(file)), limits_(limits) {}
ResponseStore::~ResponseStore() = default;

Status ResponseStore::open_file() {
  CHORAL_RETURN_IF_ERROR(file_->open());
  CHORAL_RETURN_IF_ERROR(file_->run("PRAGMA journal_mode=WAL"));
  // A change is in the log when it is made: a killed process loses none, a power cut may lose the last.
  CHORAL_RETURN_IF_ERROR(file_->run("PRAGMA synchronous=NORMAL"));
  CHORAL_RETURN_IF_ERROR(file_->run("PRAGMA secure_delete=ON"));
  CHORAL_RETURN_IF_ERROR(file_->run("BEGIN EXCLUSIVE"));
  CHORAL_RETURN_IF_ERROR(check_or_make());
  CHORAL_RETURN_IF_ERROR(file_->run("COMMIT"));
  CHORAL_RETURN_IF_ERROR(recount());
  return make_room(0);
}

Status ResponseStore::check_or_make() {
  CHORAL_TRY(const auto version, file_->version());
  if (version == 0) {
    CHORAL_RETURN_IF_ERROR(file_->run(fmt::format("PRAGMA user_version={}", kResponsesVersion).c_str()));
    for (const char* thing : kResponsesTables) CHORAL_RETURN_IF_ERROR(file_->run(thing));
    return {};
  }
  if (version != kResponsesVersion) return file_->wrong("is no store of responses of this version");
  CHORAL_RETURN_IF_ERROR(file_->check_tables(kResponsesTables));
  return file_->check_pages();
}

Status ResponseStore::put(const StoredResponse& response) {
  const int64_t bytes = bytes_of(response), most = std::min<int64_t>(limits_.bytes, kMaxResponseBytes);
  if (bytes > most)
    return too_large("the response and its input have {} bytes; {} are kept at most (--store-responses)", bytes, most);
  const std::lock_guard lock(mutex_);
  CHORAL_RETURN_IF_ERROR(make_room(bytes));
  SqliteStatement known(file_->db(), "SELECT bytes FROM responses WHERE id = ?1");
  known.bind(1, response.id);
  const int64_t before = known.step() == SQLITE_ROW ? known.number(0) : 0;
  SqliteStatement change(file_->db(), "INSERT OR REPLACE INTO responses VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
  change.bind(1, response.id);
  change.bind(2, response.owner);
  change.bind(3, response.previous_id);
  change.bind(4, int64_t{response.is_running});
  change.bind(5, bytes);
  change.bind(6, static_cast<int64_t>(std::time(nullptr)));
  change.bind(7, response.response_json);
  change.bind(8, response.input_json);
  CHORAL_RETURN_IF_ERROR(file_->done(change));
  held_ += bytes - before;
  count_ += before == 0;
  return {};
}

Result<bool> ResponseStore::finish(std::string_view id, std::string_view owner, std::string_view response_json) {
  CHORAL_TRY(auto stored, find(id, owner));
  if (!stored || !stored->is_running) return false;
  stored->response_json = response_json;
  stored->is_running = false;
  CHORAL_RETURN_IF_ERROR(put(*stored));
  return true;
}

Result<std::optional<StoredResponse>> ResponseStore::find(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  return find_locked(id, owner);
}

Result<std::optional<StoredResponse>> ResponseStore::find_locked(std::string_view id, std::string_view owner) {
  SqliteStatement row(file_->db(), "SELECT response, input, previous, running FROM responses WHERE id = ?1 AND owner = ?2");
  row.bind(1, id);
  row.bind(2, owner);
  const int code = row.step();
  if (code == SQLITE_DONE) return std::optional<StoredResponse>();
  if (code != SQLITE_ROW) return file_->failure(code, "read");
  return std::optional(StoredResponse{.id = std::string(id),
                                      .owner = std::string(owner),
                                      .response_json = row.text(0),
                                      .input_json = row.text(1),
                                      .previous_id = row.text(2),
                                      .is_running = row.number(3) != 0});
}

Result<std::vector<StoredResponse>> ResponseStore::conversation(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  std::vector<StoredResponse> turns;
  int64_t bytes = 0;
  for (std::string next(id); !next.empty(); next = turns.back().previous_id) {
    CHORAL_TRY(auto turn, find_locked(next, owner));
    if (!turn) return not_found("there is no response '{}' here, or no more", printable(next, 80));
    bytes += bytes_of(*turn);
    turns.push_back(*std::move(turn));
    if (turns.size() > kMostTurns || bytes > kMaxResponseBytes)
      return too_large("the conversation before '{}' has more than {} responses or {} bytes; send what matters of it as 'input'",
                       printable(id, 80), kMostTurns, kMaxResponseBytes);
  }
  // A conversation that goes on is kept as a whole.
  for (const auto& turn : turns) {
    SqliteStatement change(file_->db(), "UPDATE responses SET used_unix_s = ?2 WHERE id = ?1");
    change.bind(1, turn.id);
    change.bind(2, static_cast<int64_t>(std::time(nullptr)));
    CHORAL_RETURN_IF_ERROR(file_->done(change));
  }
  std::reverse(turns.begin(), turns.end());
  return turns;
}

Result<bool> ResponseStore::remove(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  SqliteStatement change(file_->db(), "DELETE FROM responses WHERE id = ?1 AND owner = ?2");
  change.bind(1, id);
  change.bind(2, owner);
  CHORAL_RETURN_IF_ERROR(file_->done(change));
  const bool removed = sqlite3_changes(file_->db()) > 0;
  if (removed) CHORAL_RETURN_IF_ERROR(recount());
  return removed;
}

// For one response more, of so many bytes. Those that are running go last.
Status ResponseStore::make_room(int64_t bytes) {
  SqliteStatement old(file_->db(), "DELETE FROM responses WHERE used_unix_s < ?1");
  old.bind(1, static_cast<int64_t>(std::time(nullptr)) - limits_.age_s);
  CHORAL_RETURN_IF_ERROR(file_->done(old));
  if (sqlite3_changes(file_->db()) > 0) CHORAL_RETURN_IF_ERROR(recount());
  while (count_ > 0 && (held_ + bytes > limits_.bytes || count_ >= limits_.count)) {
    // Some at a time: what is left is counted each time.
    CHORAL_RETURN_IF_ERROR(
        file_->run("DELETE FROM responses WHERE id IN (SELECT id FROM responses ORDER BY running, used_unix_s, rowid "
                   "LIMIT (SELECT 1 + count(*) / 64 FROM responses))"));
    CHORAL_RETURN_IF_ERROR(recount());
  }
  return {};
}

Status ResponseStore::recount() {
  CHORAL_TRY(held_, file_->ask("SELECT coalesce(sum(bytes), 0) FROM responses"));
  CHORAL_TRY(count_, file_->ask("SELECT count(*) FROM responses"));
  return {};
}

}  // namespace choral::serve
