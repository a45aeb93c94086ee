#include "serve/adapters/registered_adapters.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <mutex>

#include "base/out_of_memory.h"
#include "base/printable.h"
#include "base/system_error.h"
#include "engine/adapters/counted_generations.h"
#include "lora/peft/adapter_name.h"
#include "serve/sqlite_statement.h"

namespace choral::serve {
namespace {

namespace fs = std::filesystem;

constexpr int kApplicationId = 0x43687231;  // "Chr1": tells the file from every other SQLite database
constexpr int kVersion = 2;
constexpr int kMaxValueBytes = 64 << 10;
constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxDigestBytes = 128;
constexpr std::array kTables{
    "CREATE TABLE adapters (name TEXT PRIMARY KEY NOT NULL, path TEXT NOT NULL, pinned INTEGER NOT NULL, "
    "added_unix_s INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    // The row without a name: no other counts from below its generation.
    "CREATE TABLE generations (name TEXT PRIMARY KEY NOT NULL, generation INTEGER NOT NULL, digest TEXT NOT NULL) "
    "STRICT, WITHOUT ROWID",
    "CREATE TABLE numbers (name TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL) STRICT, WITHOUT ROWID",
};
// Version 1 had this one alone, with the generations of registered adapters.
constexpr const char* kTableOfVersion1 =
    "CREATE TABLE adapters (name TEXT PRIMARY KEY NOT NULL, path TEXT NOT NULL, pinned INTEGER NOT NULL, "
    "generation INTEGER NOT NULL, digest TEXT NOT NULL, added_unix_s INTEGER NOT NULL) STRICT, WITHOUT ROWID";

class SqliteAdapters final : public RegisteredAdapters {
 public:
  explicit SqliteAdapters(std::string file) : file_(std::move(file)) {}
  ~SqliteAdapters() override { sqlite3_close(db_); }

  Status open_file() {
    // Made here rather than by SQLite, which would let everybody read it. Closed before SQLite opens it: closing drops locks.
    const int made = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (made < 0)
      return errno == ELOOP ? wrong("is a link; give the real state directory") : system_error(errno, "cannot open " + file_);
    ::close(made);
    const int code =
        sqlite3_open_v2(file_.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
    if (code != SQLITE_OK) return failure(code, "opened");
    sqlite3_extended_result_codes(db_, 1);
    // The file may be anybody's work.
    sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
    // Held until this goes, by a lock that the system takes back from a dead process. The journal stands beside the file
    // meanwhile; one that a killed process left is what undoes its half of a change.
    CHORAL_RETURN_IF_ERROR(run("PRAGMA locking_mode=EXCLUSIVE"));
    CHORAL_RETURN_IF_ERROR(run("PRAGMA synchronous=FULL"));
    CHORAL_RETURN_IF_ERROR(run("BEGIN EXCLUSIVE"));
    CHORAL_RETURN_IF_ERROR(check_or_make());
    return run("COMMIT");
  }

  Result<std::vector<RegisteredAdapter>> all() override {
    const std::lock_guard lock(mutex_);
    std::vector<RegisteredAdapter> out;
    SqliteStatement rows(db_, "SELECT name, path, pinned, added_unix_s FROM adapters ORDER BY name");
    int code;
    while ((code = rows.step()) == SQLITE_ROW) {
      if (std::ssize(out) == kMaxAdapters) return wrong("lists too many adapters");
      RegisteredAdapter one{
          .name = rows.text(0), .path = rows.text(1), .pinned = rows.number(2) != 0, .added_unix_s = rows.number(3)};
      if (Status name = check(one); !name.ok()) return wrong("lists what is no adapter: " + name.message());
      out.push_back(std::move(one));
    }
    if (code != SQLITE_DONE) return failure(code, "read");
    return out;
  }

  Result<bool> contains(std::string_view name) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement row(db_, "SELECT 1 FROM adapters WHERE name = ?1");
    row.bind(1, name);
    const int code = row.step();
    if (code != SQLITE_ROW && code != SQLITE_DONE) return failure(code, "read");
    return code == SQLITE_ROW;
  }

  Status put(const RegisteredAdapter& adapter) override {
    CHORAL_RETURN_IF_ERROR(check(adapter));
    const std::lock_guard lock(mutex_);
    SqliteStatement count(db_, "SELECT count(*) FROM adapters WHERE name <> ?1");
    count.bind(1, adapter.name);
    if (const int code = count.step(); code != SQLITE_ROW) return failure(code, "read");
    if (count.number(0) >= kMaxAdapters) return resource_exhausted("{} adapters are registered; unload some first", kMaxAdapters);
    SqliteStatement change(db_, "INSERT OR REPLACE INTO adapters VALUES (?1, ?2, ?3, ?4)");
    change.bind(1, adapter.name);
    change.bind(2, adapter.path);
    change.bind(3, int64_t{adapter.pinned});
    change.bind(4, adapter.added_unix_s);
    return done(change);
  }

  Status set_pinned(std::string_view name, bool pinned) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement change(db_, "UPDATE adapters SET pinned = ?2 WHERE name = ?1");
    change.bind(1, name);
    change.bind(2, int64_t{pinned});
    return done(change);
  }

  Status remove(std::string_view name) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement change(db_, "DELETE FROM adapters WHERE name = ?1");
    change.bind(1, name);
    return done(change);
  }

  Result<int> number_of(const std::string& name, const std::string& digest) override {
    CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(name));
    if (digest.empty() || digest.size() > kMaxDigestBytes) return invalid_argument("'{}' is no digest", printable(digest, 80));
    const std::lock_guard lock(mutex_);
    CHORAL_TRY(const auto last, last_generation(name));
    if (last.digest == digest) return static_cast<int>(last.number);
    CHORAL_TRY(const int next, engine::next_generation(name, last.number));
    CHORAL_RETURN_IF_ERROR(all_or_nothing([&]() -> Status {
      CHORAL_RETURN_IF_ERROR(forget_generations());
      SqliteStatement change(db_, "INSERT OR REPLACE INTO generations VALUES (?1, ?2, ?3)");
      change.bind(1, name);
      change.bind(2, int64_t{next});
      change.bind(3, digest);
      return done(change);
    }));
    return next;
  }

  Result<std::vector<NumberedName>> numbers() override {
    const std::lock_guard lock(mutex_);
    std::vector<NumberedName> out;
    SqliteStatement rows(db_, "SELECT name, number FROM numbers ORDER BY number");
    int code;
    int64_t next = 0;
    while ((code = rows.step()) == SQLITE_ROW) {
      if (std::ssize(out) == kMaxAdapters) return wrong("numbers too many adapters");
      const int64_t number = rows.number(1);
      NumberedName one{rows.text(0), static_cast<int32_t>(number)};
      if (number != next++ || !lora::check_adapter_name(one.name).ok()) return wrong("numbers adapters as nobody does");
      out.push_back(std::move(one));
    }
    if (code != SQLITE_DONE) return failure(code, "read");
    return out;
  }

  Status put_numbers(std::span<const NumberedName> names) override {
    const std::lock_guard lock(mutex_);
    return all_or_nothing([&]() -> Status {
      for (const auto& [name, number] : names) {
        CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(name));
        SqliteStatement change(db_, "INSERT INTO numbers VALUES (?1, ?2)");
        change.bind(1, name);
        change.bind(2, int64_t{number});
        CHORAL_RETURN_IF_ERROR(done(change));
      }
      CHORAL_TRY(const auto count, ask("SELECT count(*) FROM numbers"));
      if (count > kMaxAdapters) return resource_exhausted("{} adapters have numbers; no more are kept", kMaxAdapters);
      return {};
    });
  }

 private:
  struct LastGeneration {
    int64_t number = 0;
    std::string digest = {};
  };

  // Of a name that has none: what all others' are above.
  Result<LastGeneration> last_generation(const std::string& name) {
    SqliteStatement known(db_, "SELECT generation, digest FROM generations WHERE name IN (?1, '') ORDER BY name DESC");
    known.bind(1, name);
    const int code = known.step();
    if (code == SQLITE_DONE) return LastGeneration();
    if (code != SQLITE_ROW) return failure(code, "read");
    LastGeneration last{known.number(0), known.text(1)};
    if (last.number < 0 || last.number > std::numeric_limits<int>::max()) return wrong("has a generation that is none");
    return last;
  }

  Status forget_generations() {
    CHORAL_TRY(const auto count, ask("SELECT count(*) FROM generations"));
    if (count <= kMaxAdapters) return {};
    CHORAL_RETURN_IF_ERROR(run("INSERT OR REPLACE INTO generations SELECT '', max(generation), '' FROM generations"));
    return run("DELETE FROM generations WHERE name <> '' AND name NOT IN (SELECT name FROM adapters)");
  }

  template <class Change>
  Status all_or_nothing(Change change) {
    CHORAL_RETURN_IF_ERROR(run("BEGIN"));
    Status done = change();
    if (done.ok()) done = run("COMMIT");
    if (!done.ok() && sqlite3_get_autocommit(db_) == 0) CHORAL_RETURN_IF_ERROR(run("ROLLBACK"));
    return done;
  }

  static Status check(const RegisteredAdapter& adapter) {
    CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(adapter.name));
    if (adapter.path.empty() || adapter.path.size() > kMaxPathBytes || adapter.path.find('\0') != adapter.path.npos)
      return invalid_argument("adapter '{}': its path is empty, longer than {} bytes, or no path", printable(adapter.name),
                              kMaxPathBytes);
    return {};
  }

  Status check_or_make() {
    CHORAL_TRY(const auto application, ask("PRAGMA application_id"));
    CHORAL_TRY(const auto version, ask("PRAGMA user_version"));
    CHORAL_TRY(const auto things, ask("SELECT count(*) FROM sqlite_schema"));
    if (application == 0 && version == 0 && things == 0) {
      CHORAL_RETURN_IF_ERROR(run(fmt::format("PRAGMA application_id={}", kApplicationId).c_str()));
      return make_tables();
    }
    if (application != kApplicationId) return wrong("is a database of another program");
    if (version != kVersion && version != 1)
      return unsupported(
          "{} is of version {}, and this program knows {}; use the program that wrote it, or move the file away: {}", file_,
          version, kVersion, kConsequence);
    const auto tables = version == 1 ? std::span(&kTableOfVersion1, 1) : std::span<const char* const>(kTables);
    CHORAL_RETURN_IF_ERROR(check_tables(tables));
    CHORAL_RETURN_IF_ERROR(check_pages());
    return version == 1 ? upgrade() : Status();
  }

  Status check_tables(std::span<const char* const> tables) {
    SqliteStatement schema(db_, "SELECT sql FROM sqlite_schema ORDER BY name");
    for (const char* table : tables) {
      if (schema.step() != SQLITE_ROW || schema.text(0) != table) return wrong("has other tables than it should");
    }
    return schema.step() == SQLITE_DONE ? Status() : wrong("has other tables than it should");
  }

  Status check_pages() {
    SqliteStatement sound(db_, "PRAGMA quick_check(1)");
    if (const int code = sound.step(); code != SQLITE_ROW) return failure(code, "checked");
    return sound.text(0) == "ok" ? Status() : wrong("is damaged (" + printable(sound.text(0)) + ")");
  }

  Status make_tables() {
    CHORAL_RETURN_IF_ERROR(run(fmt::format("PRAGMA user_version={}", kVersion).c_str()));
    for (const char* table : kTables) CHORAL_RETURN_IF_ERROR(run(table));
    return {};
  }

  Status upgrade() {
    CHORAL_RETURN_IF_ERROR(run("ALTER TABLE adapters RENAME TO version_1"));
    CHORAL_RETURN_IF_ERROR(make_tables());
    CHORAL_RETURN_IF_ERROR(run("INSERT INTO adapters SELECT name, path, pinned, added_unix_s FROM version_1"));
    CHORAL_RETURN_IF_ERROR(
        run("INSERT INTO generations SELECT name, generation, digest FROM version_1 WHERE generation > 0 AND digest <> ''"));
    return run("DROP TABLE version_1");
  }

  Result<int64_t> ask(const char* sql) {
    SqliteStatement question(db_, sql);
    const int code = question.step();
    if (code != SQLITE_ROW) return failure(code, "read");
    return question.number(0);
  }
  Status run(const char* sql) {
    SqliteStatement statement(db_, sql);
    int code;
    while ((code = statement.step()) == SQLITE_ROW) {
    }
    return code == SQLITE_DONE ? Status() : failure(code, "opened or written");
  }
  Status done(SqliteStatement& change) {
    const int code = change.step();
    return code == SQLITE_DONE ? Status() : failure(code, "written");
  }

  Status wrong(std::string_view what) const {
    return corrupt("{} {}; move it away (mv '{}' '{}.bad') and start again: {}", file_, what, file_, file_, kConsequence);
  }
  Status failure(int code, std::string_view doing) const {
    const char* words = sqlite3_errstr(code);
    switch (code & 0xFF) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        return unavailable(
            "{} is in use: another server has this state directory; stop it, or give this one its own (--state-dir)", file_);
      case SQLITE_NOTADB: return wrong("is no registry of adapters");
      case SQLITE_CORRUPT: return wrong("is damaged");
      case SQLITE_FULL: return resource_exhausted("{} cannot be {}: the disk is full", file_, doing);
      case SQLITE_READONLY:
      case SQLITE_PERM:
      case SQLITE_CANTOPEN:
      case SQLITE_AUTH:
        return permission_denied("{} cannot be {} ({}); the state directory must be writable for this user", file_, doing, words);
      case SQLITE_NOMEM: return out_of_memory(file_);
      case SQLITE_TOOBIG: return too_large("{} cannot be {}: a value has more than {} bytes", file_, doing, kMaxValueBytes);
      default: return internal_error("{} cannot be {}: {}", file_, doing, words);
    }
  }

  static constexpr const char* kConsequence = "adapters that were loaded over HTTP must then be loaded again";

  const std::string file_;
  sqlite3* db_ = nullptr;
  std::mutex mutex_;
};

}  // namespace

Result<std::unique_ptr<RegisteredAdapters>> RegisteredAdapters::open(const std::string& state_directory) {
  std::error_code error;
  if (fs::create_directories(state_directory, error)) {
    fs::permissions(state_directory, fs::perms::owner_all, error);
  }
  if (error) return system_error(error.value(), "cannot make the state directory " + state_directory);
  auto made = std::make_unique<SqliteAdapters>(state_directory + "/" + kFileName);
  CHORAL_RETURN_IF_ERROR(made->open_file());
  return std::unique_ptr<RegisteredAdapters>(std::move(made));
}

}  // namespace choral::serve
