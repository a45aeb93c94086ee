#include "serve/responses/response_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>

#include "base/out_of_memory.h"
#include "base/printable.h"
#include "base/system_error.h"
#include "serve/sqlite_statement.h"

namespace choral::serve {
namespace {

constexpr int kResponsesId = 0x43687232;  // "Chr2": tells the file from every other SQLite database
constexpr int kResponsesVersion = 1;
constexpr int kMaxResponseBytes = 64 << 20;
constexpr const char* kResponsesTable =
    "CREATE TABLE responses (id TEXT PRIMARY KEY NOT NULL, owner TEXT NOT NULL, previous TEXT NOT NULL, running INTEGER NOT "
    "NULL, "
    "bytes INTEGER NOT NULL, used_unix_s INTEGER NOT NULL, response TEXT NOT NULL, input TEXT NOT NULL) STRICT";
constexpr const char* kResponsesIndex = "CREATE INDEX responses_by_use ON responses (used_unix_s, id)";

int64_t bytes_of(const StoredResponse& response) {
  constexpr int64_t kRow = 256;
  return kRow + std::ssize(response.id) + std::ssize(response.owner) + std::ssize(response.response_json) +
         std::ssize(response.input_json) + std::ssize(response.previous_id);
}

}  // namespace

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(const std::string& state_directory, Limits limits) {
  std::error_code error;
  namespace fs = std::filesystem;
  if (fs::create_directories(state_directory, error)) fs::permissions(state_directory, fs::perms::owner_all, error);
  if (error) return system_error(error.value(), "cannot make the state directory " + state_directory);
  std::unique_ptr<ResponseStore> store(new ResponseStore(state_directory + "/responses.sqlite3", limits));
  CHORAL_RETURN_IF_ERROR(store->open_file());
  return store;
}

ResponseStore::~ResponseStore() { sqlite3_close(db_); }

Status ResponseStore::open_file() {
  // Made here rather than by SQLite, which would let everybody read it.
  const int made = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (made < 0)
    return errno == ELOOP ? wrong("is a link; give the real state directory") : system_error(errno, "cannot open " + file_);
  ::close(made);
  const int code =
      sqlite3_open_v2(file_.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  if (code != SQLITE_OK) return failure(code);
  // The file may be anybody's work.
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, kMaxResponseBytes);
  CHORAL_RETURN_IF_ERROR(run("PRAGMA locking_mode=EXCLUSIVE"));
  CHORAL_RETURN_IF_ERROR(run("PRAGMA journal_mode=WAL"));
  // A change is in the log when it is made: a killed process loses none, a power cut may lose the last.
  CHORAL_RETURN_IF_ERROR(run("PRAGMA synchronous=NORMAL"));
  CHORAL_RETURN_IF_ERROR(run("PRAGMA secure_delete=ON"));
  CHORAL_RETURN_IF_ERROR(run("BEGIN EXCLUSIVE"));
  CHORAL_RETURN_IF_ERROR(check_or_make());
  CHORAL_RETURN_IF_ERROR(run("COMMIT"));
  CHORAL_RETURN_IF_ERROR(recount());
  return make_room(0);
}

Status ResponseStore::check_or_make() {
  CHORAL_TRY(const auto application, ask("PRAGMA application_id"));
  CHORAL_TRY(const auto version, ask("PRAGMA user_version"));
  CHORAL_TRY(const auto things, ask("SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && version == 0 && things == 0) {
    CHORAL_RETURN_IF_ERROR(run(fmt::format("PRAGMA application_id={}", kResponsesId).c_str()));
    CHORAL_RETURN_IF_ERROR(run(fmt::format("PRAGMA user_version={}", kResponsesVersion).c_str()));
    CHORAL_RETURN_IF_ERROR(run(kResponsesTable));
    return run(kResponsesIndex);
  }
  if (application != kResponsesId || version != kResponsesVersion) return wrong("is no store of responses of this version");
  SqliteStatement schema(db_, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC");
  for (const char* expected : {kResponsesTable, kResponsesIndex}) {
    if (schema.step() != SQLITE_ROW || schema.text(0) != expected) return wrong("has other tables than it should");
  }
  if (schema.step() != SQLITE_DONE) return wrong("has other tables than it should");
  SqliteStatement sound(db_, "PRAGMA quick_check(1)");
  if (const int code = sound.step(); code != SQLITE_ROW) return failure(code);
  return sound.text(0) == "ok" ? Status() : wrong("is damaged");
}

Status ResponseStore::put(const StoredResponse& response) {
  const int64_t bytes = bytes_of(response), most = std::min<int64_t>(limits_.bytes, kMaxResponseBytes);
  if (bytes > most)
    return too_large("the response and its input have {} bytes; {} are kept at most (--store-responses)", bytes, most);
  const std::lock_guard lock(mutex_);
  CHORAL_RETURN_IF_ERROR(make_room(bytes));
  SqliteStatement known(db_, "SELECT bytes FROM responses WHERE id = ?1");
  known.bind(1, response.id);
  const int64_t before = known.step() == SQLITE_ROW ? known.number(0) : 0;
  SqliteStatement change(db_, "INSERT OR REPLACE INTO responses VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
  change.bind(1, response.id);
  change.bind(2, response.owner);
  change.bind(3, response.previous_id);
  change.bind(4, int64_t{response.is_running});
  change.bind(5, bytes);
  change.bind(6, static_cast<int64_t>(std::time(nullptr)));
  change.bind(7, response.response_json);
  change.bind(8, response.input_json);
  if (const int code = change.step(); code != SQLITE_DONE) return failure(code);
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
  SqliteStatement row(db_, "SELECT response, input, previous, running FROM responses WHERE id = ?1 AND owner = ?2");
  row.bind(1, id);
  row.bind(2, owner);
  const int code = row.step();
  if (code == SQLITE_DONE) return std::optional<StoredResponse>();
  if (code != SQLITE_ROW) return failure(code);
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
    SqliteStatement change(db_, "UPDATE responses SET used_unix_s = ?2 WHERE id = ?1");
    change.bind(1, turn.id);
    change.bind(2, static_cast<int64_t>(std::time(nullptr)));
    if (const int code = change.step(); code != SQLITE_DONE) return failure(code);
  }
  std::reverse(turns.begin(), turns.end());
  return turns;
}

Result<bool> ResponseStore::remove(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  SqliteStatement change(db_, "DELETE FROM responses WHERE id = ?1 AND owner = ?2");
  change.bind(1, id);
  change.bind(2, owner);
  const int code = change.step();
  if (code != SQLITE_DONE) return failure(code);
  const bool removed = sqlite3_changes(db_) > 0;
  if (removed) CHORAL_RETURN_IF_ERROR(recount());
  return removed;
}

// For one response more, of so many bytes. Those that are running go last.
Status ResponseStore::make_room(int64_t bytes) {
  SqliteStatement old(db_, "DELETE FROM responses WHERE used_unix_s < ?1");
  old.bind(1, static_cast<int64_t>(std::time(nullptr)) - limits_.age_s);
  if (const int code = old.step(); code != SQLITE_DONE) return failure(code);
  if (sqlite3_changes(db_) > 0) CHORAL_RETURN_IF_ERROR(recount());
  while (count_ > 0 && (held_ + bytes > limits_.bytes || count_ >= limits_.count)) {
    // Some at a time: what is left is counted each time.
    CHORAL_RETURN_IF_ERROR(
        run("DELETE FROM responses WHERE id IN (SELECT id FROM responses ORDER BY running, used_unix_s, rowid "
            "LIMIT (SELECT 1 + count(*) / 64 FROM responses))"));
    CHORAL_RETURN_IF_ERROR(recount());
  }
  return {};
}

Status ResponseStore::recount() {
  CHORAL_TRY(held_, ask("SELECT coalesce(sum(bytes), 0) FROM responses"));
  CHORAL_TRY(count_, ask("SELECT count(*) FROM responses"));
  return {};
}

Result<int64_t> ResponseStore::ask(const char* sql) {
  SqliteStatement question(db_, sql);
  const int code = question.step();
  if (code != SQLITE_ROW) return failure(code);
  return question.number(0);
}

Status ResponseStore::run(const char* sql) {
  SqliteStatement statement(db_, sql);
  int code;
  while ((code = statement.step()) == SQLITE_ROW) {
  }
  return code == SQLITE_DONE ? Status() : failure(code);
}

Status ResponseStore::wrong(std::string_view what) const {
  return corrupt("{} {}; move it away (mv '{}' '{}.bad') and start again: stored responses are then gone", file_, what, file_,
                 file_);
}

Status ResponseStore::failure(int code) const {
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return unavailable("{} is in use: another server has this state directory; stop it, or give this one its own (--state-dir)",
                         file_);
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT: return wrong("is damaged");
    case SQLITE_FULL: return resource_exhausted("{} cannot be written: the disk is full", file_);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return permission_denied("{} cannot be opened or written ({}); the state directory must be writable for this user", file_,
                               sqlite3_errstr(code));
    case SQLITE_NOMEM: return out_of_memory(file_);
    case SQLITE_TOOBIG: return too_large("{} takes no response of more than {} bytes", file_, kMaxResponseBytes);
    default: return internal_error("{} cannot be read or written: {}", file_, sqlite3_errstr(code));
  }
}

}  // namespace choral::serve
