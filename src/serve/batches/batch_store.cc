#include "serve/batches/batch_store.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/printable.h"
#include "base/size_text.h"
#include "serve/state_file.h"

namespace choral::serve {
namespace {

constexpr int kBatchesVersion = 1;
constexpr StateFile::Kind kBatches{.application_id = 0x43687233,  // "Chr3"
                                   .most_value_bytes = 128 << 20,
                                   .holds = "store of batches",
                                   .consequence = "files and batches are then gone"};
constexpr std::array kBatchesTables{
    "CREATE TABLE batches (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, status TEXT NOT NULL, "
    "endpoint TEXT NOT NULL, input TEXT NOT NULL, output TEXT NOT NULL, errors TEXT NOT NULL, facts TEXT NOT NULL, created "
    "INTEGER NOT NULL, expires INTEGER NOT NULL, output_expires INTEGER NOT NULL, total INTEGER NOT NULL, completed INTEGER NOT "
    "NULL, failed INTEGER NOT NULL, ended INTEGER NOT NULL) STRICT",
    "CREATE TABLE files (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, purpose TEXT NOT NULL, name "
    "TEXT NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL) STRICT",
    "CREATE TABLE lines (file TEXT NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (file, number)) STRICT, "
    "WITHOUT ROWID"};
constexpr int64_t kLineBytes = 64;  // what a line takes beside its text

constexpr const char* kFileColumns = "SELECT id, owner, purpose, name, bytes, created, expires, number FROM files ";
constexpr const char* kBatchColumns =
    "SELECT id, owner, status, endpoint, input, output, errors, facts, created, expires, output_expires, total, completed, "
    "failed, number FROM batches ";

// The facts of a batch with ?2 to ?5 added to its usage; one that has none, as earlier versions wrote them, stays without.
constexpr const char* kFactsWithUsage =
    "CASE WHEN facts -> '$.usage' IS NULL THEN facts ELSE json_set(facts, '$.usage.input_tokens', facts ->> "
    "'$.usage.input_tokens' + ?2, "
    "'$.usage.input_tokens_details.cached_tokens', facts ->> '$.usage.input_tokens_details.cached_tokens' + ?3, "
    "'$.usage.output_tokens', facts ->> '$.usage.output_tokens' + ?4, "
    "'$.usage.output_tokens_details.reasoning_tokens', facts ->> '$.usage.output_tokens_details.reasoning_tokens' + ?5, "
    "'$.usage.total_tokens', facts ->> '$.usage.total_tokens' + ?2 + ?4) END";

int64_t unix_now() { return static_cast<int64_t>(std::time(nullptr)); }

StoredFile file_of(SqliteStatement& row) {
  return {.id = row.text(0),
          .owner = row.text(1),
          .purpose = row.text(2),
          .name = row.text(3),
          .bytes = row.number(4),
          .created_unix_s = row.number(5),
          .expires_unix_s = row.number(6)};
}

StoredBatch batch_of(SqliteStatement& row) {
  return {.id = row.text(0),
          .owner = row.text(1),
          .status = row.text(2),
          .endpoint = row.text(3),
          .input_file = row.text(4),
          .output_file = row.text(5),
          .error_file = row.text(6),
          .facts_json = row.text(7),
          .created_unix_s = row.number(8),
          .expires_unix_s = row.number(9),
          .output_expires_s = row.number(10),
          .total = row.number(11),
          .completed = row.number(12),
          .failed = row.number(13)};
}

// Lines with what ends each; the last may have no end.
std::vector<std::string_view> lines_of(std::string_view content) {
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const std::string_view line = content.substr(0, std::min(content.find('\n'), content.size() - 1) + 1);
    lines.push_back(line);
    content.remove_prefix(line.size());
  }
  return lines;
}

}  // namespace

Result<std::unique_ptr<BatchStore>> BatchStore::open(const std::string& state_directory, Limits limits) {
  std::unique_ptr<BatchStore> store(
      new BatchStore(std::make_unique<StateFile>(state_directory, "batches.sqlite3", kBatches), limits));
  CHORAL_RETURN_IF_ERROR(store->open_database());
  return store;
}

BatchStore::BatchStore(std::unique_ptr<StateFile> file, Limits limits) : file_(std::move(file)), limits_(limits) {}
BatchStore::~BatchStore() = default;

Status BatchStore::open_database() {
  CHORAL_RETURN_IF_ERROR(file_->open());
  CHORAL_RETURN_IF_ERROR(file_->run("PRAGMA journal_mode=WAL"));
  // A change is in the log when it is made: a killed process loses none, a power cut may lose the last.
  CHORAL_RETURN_IF_ERROR(file_->run("PRAGMA synchronous=NORMAL"));
  CHORAL_RETURN_IF_ERROR(file_->run("PRAGMA secure_delete=ON"));
  CHORAL_RETURN_IF_ERROR(file_->run("BEGIN EXCLUSIVE"));
  CHORAL_RETURN_IF_ERROR(check_or_make());
  CHORAL_RETURN_IF_ERROR(file_->run("COMMIT"));
  CHORAL_RETURN_IF_ERROR(recount());
  return drop_old_locked();
}

Status BatchStore::check_or_make() {
  CHORAL_TRY(const auto version, file_->version());
  if (version == 0) {
    CHORAL_RETURN_IF_ERROR(file_->run(fmt::format("PRAGMA user_version={}", kBatchesVersion).c_str()));
    for (const char* table : kBatchesTables) CHORAL_RETURN_IF_ERROR(file_->run(table));
    return {};
  }
  if (version != kBatchesVersion) return file_->wrong("is no store of batches of this version");
  CHORAL_RETURN_IF_ERROR(file_->check_tables(kBatchesTables));
  return file_->check_pages();
}

// All of the change or nothing of it.
template <class Change>
Status BatchStore::in_transaction(Change change) {
  CHORAL_RETURN_IF_ERROR(file_->run("BEGIN IMMEDIATE"));
  Status status = change();
  if (status.ok()) status = file_->run("COMMIT");
  if (!status.ok() && sqlite3_get_autocommit(file_->db()) == 0) {
    const Status undone = file_->run("ROLLBACK");
    CHORAL_RETURN_IF_ERROR(recount());
    if (!undone.ok()) return undone;
  }
  return status;
}

Status BatchStore::recount() {
  CHORAL_TRY(held_,
             file_->ask(fmt::format("SELECT coalesce(sum(length(CAST(text AS BLOB)) + {}), 0) FROM lines", kLineBytes).c_str()));
  return {};
}

// For so many bytes more.
Status BatchStore::check_room(std::string_view owner, int64_t bytes) {
  if (held_ + bytes > limits_.bytes)
    return resource_exhausted("files and batches hold {} of {} already (--store-files); DELETE /v1/files/ID makes room",
                              size_text(held_), size_text(limits_.bytes));
  if (!limits_.is_shared) return {};
  SqliteStatement own(file_->db(), "SELECT coalesce(sum(bytes), 0) FROM files WHERE owner = ?1");
  own.bind(1, owner);
  if (const int code = own.step(); code != SQLITE_ROW) return file_->failure(code, "read");
  if (own.number(0) + bytes > limits_.bytes - held_)
    return resource_exhausted(
        "this key's files hold {}, and none may have more than it leaves free of {} (--store-files); "
        "DELETE /v1/files/ID makes room",
        size_text(own.number(0)), size_text(limits_.bytes));
  return {};
}

Status BatchStore::insert_line(std::string_view file, int64_t number, std::string_view text) {
  SqliteStatement insert(file_->db(), "INSERT INTO lines VALUES (?1, ?2, ?3)");
  insert.bind(1, file);
  insert.bind(2, number);
  insert.bind(3, text);
  CHORAL_RETURN_IF_ERROR(file_->done(insert));
  held_ += std::ssize(text) + kLineBytes;
  return {};
}

Status BatchStore::insert_file(const StoredFile& file) {
  SqliteStatement insert(file_->db(), "INSERT INTO files VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7)");
  insert.bind(1, file.id);
  insert.bind(2, file.owner);
  insert.bind(3, file.purpose);
  insert.bind(4, file.name);
  insert.bind(5, file.bytes);
  insert.bind(6, file.created_unix_s);
  insert.bind(7, file.expires_unix_s);
  return file_->done(insert);
}

Result<StoredFile> BatchStore::add_file(StoredFile file, std::string_view content) {
  if (const int64_t ends = std::count(content.begin(), content.end(), '\n'); ends > kMostFileLines)
    return too_large("the file has {} lines; at most {} are taken", ends, kMostFileLines);
  const auto lines = lines_of(content);
  const std::lock_guard lock(mutex_);
  CHORAL_RETURN_IF_ERROR(drop_old_locked());
  CHORAL_RETURN_IF_ERROR(check_room(file.owner, std::ssize(content) + kLineBytes * std::ssize(lines)));
  CHORAL_TRY(const auto count, file_->ask("SELECT count(*) FROM files"));
  if (count >= limits_.files)
    return resource_exhausted("there are {} files already, the most that are kept; DELETE /v1/files/ID makes room", count);
  file.bytes = std::ssize(content);
  file.created_unix_s = unix_now();
  if (file.expires_unix_s == 0) file.expires_unix_s = file.created_unix_s + limits_.age_s;
  CHORAL_RETURN_IF_ERROR(in_transaction([&]() -> Status {
    for (int64_t number = 0; const auto line : lines) CHORAL_RETURN_IF_ERROR(insert_line(file.id, number++, line));
    return insert_file(file);
  }));
  return file;
}

Result<std::optional<StoredFile>> BatchStore::find_file(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  SqliteStatement row(file_->db(), fmt::format("{}WHERE id = ?1 AND owner = ?2 AND expires > ?3", kFileColumns).c_str());
  row.bind(1, id);
  row.bind(2, owner);
  row.bind(3, unix_now());
  const int code = row.step();
  if (code == SQLITE_DONE) return std::optional<StoredFile>();
  if (code != SQLITE_ROW) return file_->failure(code, "read");
  return std::optional(file_of(row));
}

Result<int64_t> BatchStore::rowid_of(const char* sql, std::string_view id, std::string_view owner) {
  SqliteStatement row(file_->db(), sql);
  row.bind(1, id);
  row.bind(2, owner);
  const int code = row.step();
  if (code == SQLITE_DONE) return invalid_argument("'after' is '{}', which is nothing in this list", printable(id, 80));
  if (code != SQLITE_ROW) return file_->failure(code, "read");
  return row.number(0);
}

Result<Listed<StoredFile>> BatchStore::files(std::string_view owner, std::string_view purpose, const ListPage& page) {
  const std::lock_guard lock(mutex_);
  int64_t behind = page.oldest_first ? 0 : INT64_MAX;
  if (!page.after.empty()) {
    CHORAL_TRY(behind, rowid_of("SELECT number FROM files WHERE id = ?1 AND owner = ?2", page.after, owner));
  }
  SqliteStatement rows(file_->db(), fmt::format("{}WHERE owner = ?1 AND (?2 = '' OR purpose = ?2) AND expires > ?5 AND number {} "
                                                "?3 ORDER BY number {} LIMIT ?4",
                                                kFileColumns, page.oldest_first ? ">" : "<", page.oldest_first ? "ASC" : "DESC")
                                        .c_str());
  rows.bind(1, owner);
  rows.bind(2, purpose);
  rows.bind(3, behind);
  rows.bind(4, page.limit + 1);
  rows.bind(5, unix_now());
  Listed<StoredFile> listed;
  int code;
  while ((code = rows.step()) == SQLITE_ROW) listed.all.push_back(file_of(rows));
  if (code != SQLITE_DONE) return file_->failure(code, "read");
  listed.has_more = std::ssize(listed.all) > page.limit;
  if (listed.has_more) listed.all.pop_back();
  return listed;
}

Result<bool> BatchStore::remove_file(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  SqliteStatement user(file_->db(), "SELECT id FROM batches WHERE input = ?1 AND ended = 0 LIMIT 1");
  user.bind(1, id);
  SqliteStatement own(file_->db(), "SELECT 1 FROM files WHERE id = ?1 AND owner = ?2");
  own.bind(1, id);
  own.bind(2, owner);
  const int known = own.step();
  if (known == SQLITE_DONE) return false;
  if (known != SQLITE_ROW) return file_->failure(known, "read");
  if (user.step() == SQLITE_ROW)
    return invalid_argument("the batch '{}' reads this file and has not ended; POST /v1/batches/ID/cancel ends it", user.text(0));
  int64_t lines = 0;
  CHORAL_TRY(const int64_t bytes, text_bytes(id, lines));
  CHORAL_RETURN_IF_ERROR(in_transaction([&]() -> Status {
    for (const char* sql : {"DELETE FROM lines WHERE file = ?1", "DELETE FROM files WHERE id = ?1"}) {
      SqliteStatement change(file_->db(), sql);
      change.bind(1, id);
      CHORAL_RETURN_IF_ERROR(file_->done(change));
    }
    return {};
  }));
  held_ -= bytes + kLineBytes * lines;
  return true;
}

Result<std::optional<FileLine>> BatchStore::line(std::string_view file, int64_t from) {
  const std::lock_guard lock(mutex_);
  SqliteStatement row(file_->db(), "SELECT number, text FROM lines WHERE file = ?1 AND number >= ?2 ORDER BY number LIMIT 1");
  row.bind(1, file);
  row.bind(2, from);
  const int code = row.step();
  if (code == SQLITE_DONE) return std::optional<FileLine>();
  if (code != SQLITE_ROW) return file_->failure(code, "read");
  return std::optional(FileLine{row.number(0), row.text(1)});
}

Status BatchStore::save(const StoredBatch& b) {
  SqliteStatement change(file_->db(),
                         "INSERT INTO batches VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) "
                         "ON CONFLICT (id) DO UPDATE SET status = ?3, facts = ?8, total = ?12, completed = ?13, failed = ?14, "
                         "ended = ?15");
  int at = 0;
  for (const auto& text : {b.id, b.owner, b.status, b.endpoint, b.input_file, b.output_file, b.error_file, b.facts_json})
    change.bind(++at, text);
  for (const int64_t number : {b.created_unix_s, b.expires_unix_s, b.output_expires_s, b.total, b.completed, b.failed})
    change.bind(++at, number);
  change.bind(++at, b.has_ended() ? unix_now() : 0);
  ++changes_;
  changed_.notify_all();
  return file_->done(change);
}

Status BatchStore::add_batch(const StoredBatch& batch) {
  const std::lock_guard lock(mutex_);
  CHORAL_RETURN_IF_ERROR(drop_old_locked());
  CHORAL_TRY(const auto count, file_->ask("SELECT count(*) FROM batches"));
  if (count >= limits_.batches) return resource_exhausted("there are {} batches already, the most that are kept", count);
  return save(batch);
}

Result<std::optional<StoredBatch>> BatchStore::batch_named(std::string_view id) {
  SqliteStatement row(file_->db(), fmt::format("{}WHERE id = ?1", kBatchColumns).c_str());
  row.bind(1, id);
  const int code = row.step();
  if (code == SQLITE_DONE) return std::optional<StoredBatch>();
  if (code != SQLITE_ROW) return file_->failure(code, "read");
  return std::optional(batch_of(row));
}

Result<std::optional<StoredBatch>> BatchStore::find_batch(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  CHORAL_TRY(auto found, batch_named(id));
  if (found && found->owner != owner) found.reset();
  return found;
}

Result<Listed<StoredBatch>> BatchStore::batches(std::string_view owner, const ListPage& page) {
  const std::lock_guard lock(mutex_);
  int64_t behind = INT64_MAX;
  if (!page.after.empty()) {
    CHORAL_TRY(behind, rowid_of("SELECT number FROM batches WHERE id = ?1 AND owner = ?2", page.after, owner));
  }
  SqliteStatement rows(file_->db(),
                       fmt::format("{}WHERE owner = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3", kBatchColumns).c_str());
  rows.bind(1, owner);
  rows.bind(2, behind);
  rows.bind(3, page.limit + 1);
  Listed<StoredBatch> listed;
  int code;
  while ((code = rows.step()) == SQLITE_ROW) listed.all.push_back(batch_of(rows));
  if (code != SQLITE_DONE) return file_->failure(code, "read");
  listed.has_more = std::ssize(listed.all) > page.limit;
  if (listed.has_more) listed.all.pop_back();
  return listed;
}

Result<bool> BatchStore::change_batch(std::string_view id, const std::function<void(StoredBatch&)>& change) {
  const std::lock_guard lock(mutex_);
  CHORAL_TRY(auto batch, batch_named(id));
  if (!batch) return false;
  change(*batch);
  CHORAL_RETURN_IF_ERROR(save(*batch));
  return true;
}

Result<std::vector<StoredBatch>> BatchStore::unfinished() {
  const std::lock_guard lock(mutex_);
  SqliteStatement rows(file_->db(), fmt::format("{}WHERE ended = 0 ORDER BY number", kBatchColumns).c_str());
  std::vector<StoredBatch> all;
  int code;
  while ((code = rows.step()) == SQLITE_ROW) all.push_back(batch_of(rows));
  if (code != SQLITE_DONE) return file_->failure(code, "read");
  return all;
}

Result<std::optional<FileLine>> BatchStore::unanswered(const StoredBatch& batch, int64_t from) {
  const std::lock_guard lock(mutex_);
  SqliteStatement row(file_->db(),
                      "SELECT number, text FROM lines AS own WHERE file = ?1 AND number >= ?4 AND trim(text, char(9,10,13,32)) "
                      "<> '' AND NOT EXISTS (SELECT 1 "
                      "FROM lines WHERE file IN (?2, ?3) AND number = own.number) ORDER BY number LIMIT 1");
  row.bind(1, batch.input_file);
  row.bind(2, batch.output_file);
  row.bind(3, batch.error_file);
  row.bind(4, from);
  const int code = row.step();
  if (code == SQLITE_DONE) return std::optional<FileLine>();
  if (code != SQLITE_ROW) return file_->failure(code, "read");
  return std::optional(FileLine{row.number(0), row.text(1)});
}

Status BatchStore::add_answer(const StoredBatch& batch, int64_t line, bool has_failed, std::string_view text,
                              const LineUsage& used) {
  const std::lock_guard lock(mutex_);
  CHORAL_RETURN_IF_ERROR(check_room(batch.owner, std::ssize(text) + kLineBytes));
  SqliteStatement known(file_->db(), "SELECT 1 FROM lines WHERE file IN (?1, ?2) AND number = ?3");
  known.bind(1, batch.output_file);
  known.bind(2, batch.error_file);
  known.bind(3, line);
  if (known.step() == SQLITE_ROW) return {};
  return in_transaction([&]() -> Status {
    CHORAL_RETURN_IF_ERROR(insert_line(has_failed ? batch.error_file : batch.output_file, line, text));
    SqliteStatement count(file_->db(), fmt::format("UPDATE batches SET {0} = {0} + 1, facts = {1} WHERE id = ?1",
                                                   has_failed ? "failed" : "completed", kFactsWithUsage)
                                           .c_str());
    count.bind(1, batch.id);
    for (int at = 2; const int64_t tokens : {used.input, used.cached_input, used.output, used.reasoning})
      count.bind(at++, tokens);
    return file_->done(count);
  });
}

// Bytes of the file's lines, and their number.
Result<int64_t> BatchStore::text_bytes(std::string_view file, int64_t& lines) {
  SqliteStatement size(file_->db(), "SELECT count(*), coalesce(sum(length(CAST(text AS BLOB))), 0) FROM lines WHERE file = ?1");
  size.bind(1, file);
  if (const int code = size.step(); code != SQLITE_ROW) return file_->failure(code, "read");
  lines = size.number(0);
  return size.number(1);
}

// Nothing where there are none.
Status BatchStore::insert_answers(const StoredBatch& batch, const std::string& id, std::string_view kind) {
  int64_t lines = 0;
  CHORAL_TRY(const int64_t bytes, text_bytes(id, lines));
  if (lines == 0) return {};
  const int64_t now = unix_now();
  return insert_file({.id = id,
                      .owner = batch.owner,
                      .purpose = "batch_output",
                      .name = fmt::format("{}_{}.jsonl", batch.id, kind),
                      .bytes = bytes,
                      .created_unix_s = now,
                      .expires_unix_s = now + (batch.output_expires_s > 0 ? batch.output_expires_s : limits_.age_s)});
}

Status BatchStore::end_batch(std::string_view id, const std::function<void(StoredBatch&)>& change) {
  const std::lock_guard lock(mutex_);
  CHORAL_TRY(auto batch, batch_named(id));
  if (!batch || batch->has_ended()) return {};
  change(*batch);
  return in_transaction([&]() -> Status {
    CHORAL_RETURN_IF_ERROR(insert_answers(*batch, batch->output_file, "output"));
    CHORAL_RETURN_IF_ERROR(insert_answers(*batch, batch->error_file, "error"));
    return save(*batch);
  });
}

Status BatchStore::drop_old() {
  const std::lock_guard lock(mutex_);
  return drop_old_locked();
}

// A file that a batch still reads stays.
Status BatchStore::drop_old_locked() {
  SqliteStatement old(file_->db(),
                      "DELETE FROM files WHERE expires <= ?1 AND id NOT IN (SELECT input FROM batches WHERE ended = 0)");
  old.bind(1, unix_now());
  CHORAL_RETURN_IF_ERROR(file_->done(old));
  int changes = sqlite3_changes(file_->db());
  SqliteStatement ended(file_->db(), "DELETE FROM batches WHERE ended > 0 AND ended <= ?1");
  ended.bind(1, unix_now() - limits_.age_s);
  CHORAL_RETURN_IF_ERROR(file_->done(ended));
  changes += sqlite3_changes(file_->db());
  if (changes == 0) return {};
  CHORAL_RETURN_IF_ERROR(
      file_->run("DELETE FROM lines WHERE file NOT IN (SELECT id FROM files) AND file NOT IN (SELECT output FROM batches WHERE "
                 "ended = 0) AND file NOT IN (SELECT errors FROM batches WHERE ended = 0)"));
  return recount();
}

void BatchStore::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return changes_ != seen_; });
  seen_ = changes_;
}

void BatchStore::wake() {
  const std::lock_guard lock(mutex_);
  ++changes_;
  changed_.notify_all();
}

}  // namespace choral::serve
