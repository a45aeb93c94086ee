#include "serve/adapters/registered_adapters.h"

#include <array>
#include <limits>
#include <mutex>

#include "base/printable.h"
#include "engine/adapters/counted_generations.h"
#include "lora/peft/adapter_name.h"
#include "serve/state_file.h"

namespace choral::serve {
namespace {

constexpr int kVersion = 2;
constexpr std::string_view kConsequence = "adapters that were loaded over HTTP must then be loaded again";
constexpr StateFile::Kind kKind{.application_id = 0x43687231,  // "Chr1"
                                .most_value_bytes = 64 << 10,
                                .holds = "registry of adapters",
                                .consequence = kConsequence};
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
  explicit SqliteAdapters(const std::string& state_directory) : file_(state_directory, kFileName, kKind) {}

  Status open_file() {
    CHORAL_RETURN_IF_ERROR(file_.open());
    // The journal stands beside the file meanwhile; one that a killed process left is what undoes its half of a change.
    CHORAL_RETURN_IF_ERROR(file_.run("PRAGMA synchronous=FULL"));
    CHORAL_RETURN_IF_ERROR(file_.run("BEGIN EXCLUSIVE"));
    CHORAL_RETURN_IF_ERROR(check_or_make());
    return file_.run("COMMIT");
  }

  Result<std::vector<RegisteredAdapter>> all() override {
    const std::lock_guard lock(mutex_);
    std::vector<RegisteredAdapter> out;
    SqliteStatement rows(file_.db(), "SELECT name, path, pinned, added_unix_s FROM adapters ORDER BY name");
    int code;
    while ((code = rows.step()) == SQLITE_ROW) {
      if (std::ssize(out) == kMaxAdapters) return file_.wrong("lists too many adapters");
      RegisteredAdapter one = adapter_of(rows);
      if (Status name = check(one); !name.ok()) return file_.wrong("lists what is no adapter: " + name.message());
      out.push_back(std::move(one));
    }
    if (code != SQLITE_DONE) return file_.failure(code, "read");
    return out;
  }

  Result<std::optional<RegisteredAdapter>> find(std::string_view name) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement row(file_.db(), "SELECT name, path, pinned, added_unix_s FROM adapters WHERE name = ?1");
    row.bind(1, name);
    const int code = row.step();
    if (code == SQLITE_DONE) return std::optional<RegisteredAdapter>();
    if (code != SQLITE_ROW) return file_.failure(code, "read");
    return std::optional(adapter_of(row));
  }

  Status put(const RegisteredAdapter& adapter) override {
    CHORAL_RETURN_IF_ERROR(check(adapter));
    const std::lock_guard lock(mutex_);
    SqliteStatement count(file_.db(), "SELECT count(*) FROM adapters WHERE name <> ?1");
    count.bind(1, adapter.name);
    if (const int code = count.step(); code != SQLITE_ROW) return file_.failure(code, "read");
    if (count.number(0) >= kMaxAdapters) return resource_exhausted("{} adapters are registered; unload some first", kMaxAdapters);
    SqliteStatement change(file_.db(), "INSERT OR REPLACE INTO adapters VALUES (?1, ?2, ?3, ?4)");
    change.bind(1, adapter.name);
    change.bind(2, adapter.path);
    change.bind(3, int64_t{adapter.pinned});
    change.bind(4, adapter.added_unix_s);
    return file_.done(change);
  }

  Status set_pinned(std::string_view name, bool pinned) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement change(file_.db(), "UPDATE adapters SET pinned = ?2 WHERE name = ?1");
    change.bind(1, name);
    change.bind(2, int64_t{pinned});
    return file_.done(change);
  }

  Status remove(std::string_view name) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement change(file_.db(), "DELETE FROM adapters WHERE name = ?1");
    change.bind(1, name);
    return file_.done(change);
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
      SqliteStatement change(file_.db(), "INSERT OR REPLACE INTO generations VALUES (?1, ?2, ?3)");
      change.bind(1, name);
      change.bind(2, int64_t{next});
      change.bind(3, digest);
      return file_.done(change);
    }));
    return next;
  }

  Result<std::vector<NumberedName>> numbers() override {
    const std::lock_guard lock(mutex_);
    std::vector<NumberedName> out;
    SqliteStatement rows(file_.db(), "SELECT name, number FROM numbers ORDER BY number");
    int code;
    int64_t next = 0;
    while ((code = rows.step()) == SQLITE_ROW) {
      if (std::ssize(out) == kMaxAdapters) return file_.wrong("numbers too many adapters");
      const int64_t number = rows.number(1);
      NumberedName one{rows.text(0), static_cast<int32_t>(number)};
      if (number != next++ || !lora::check_adapter_name(one.name).ok()) return file_.wrong("numbers adapters as nobody does");
      out.push_back(std::move(one));
    }
    if (code != SQLITE_DONE) return file_.failure(code, "read");
    return out;
  }

  Status put_numbers(std::span<const NumberedName> names) override {
    const std::lock_guard lock(mutex_);
    return all_or_nothing([&]() -> Status {
      for (const auto& [name, number] : names) {
        CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(name));
        SqliteStatement change(file_.db(), "INSERT INTO numbers VALUES (?1, ?2)");
        change.bind(1, name);
        change.bind(2, int64_t{number});
        CHORAL_RETURN_IF_ERROR(file_.done(change));
      }
      CHORAL_TRY(const auto count, file_.ask("SELECT count(*) FROM numbers"));
      if (count > kMaxAdapters) return resource_exhausted("{} adapters have numbers; no more are kept", kMaxAdapters);
      return {};
    });
  }

 private:
  static RegisteredAdapter adapter_of(SqliteStatement& row) {
    return {.name = row.text(0), .path = row.text(1), .pinned = row.number(2) != 0, .added_unix_s = row.number(3)};
  }

  struct LastGeneration {
    int64_t number = 0;
    std::string digest = {};
  };

  // Of a name that has none: what all others' are above.
  Result<LastGeneration> last_generation(const std::string& name) {
    SqliteStatement known(file_.db(), "SELECT generation, digest FROM generations WHERE name IN (?1, '') ORDER BY name DESC");
    known.bind(1, name);
    const int code = known.step();
    if (code == SQLITE_DONE) return LastGeneration();
    if (code != SQLITE_ROW) return file_.failure(code, "read");
    LastGeneration last{known.number(0), known.text(1)};
    if (last.number < 0 || last.number > std::numeric_limits<int>::max()) return file_.wrong("has a generation that is none");
    return last;
  }

  Status forget_generations() {
    CHORAL_TRY(const auto count, file_.ask("SELECT count(*) FROM generations"));
    if (count <= kMaxAdapters) return {};
    CHORAL_RETURN_IF_ERROR(file_.run("INSERT OR REPLACE INTO generations SELECT '', max(generation), '' FROM generations"));
    return file_.run("DELETE FROM generations WHERE name <> '' AND name NOT IN (SELECT name FROM adapters)");
  }

  template <class Change>
  Status all_or_nothing(Change change) {
    CHORAL_RETURN_IF_ERROR(file_.run("BEGIN"));
    Status done = change();
    if (done.ok()) done = file_.run("COMMIT");
    if (!done.ok() && sqlite3_get_autocommit(file_.db()) == 0) CHORAL_RETURN_IF_ERROR(file_.run("ROLLBACK"));
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
    CHORAL_TRY(const auto version, file_.version());
    if (version == 0) return make_tables();
    if (version != kVersion && version != 1)
      return unsupported(
          "{} is of version {}, and this program knows {}; use the program that wrote it, or move the file away: {}",
          file_.path(), version, kVersion, kConsequence);
    const auto tables = version == 1 ? std::span(&kTableOfVersion1, 1) : std::span<const char* const>(kTables);
    CHORAL_RETURN_IF_ERROR(file_.check_tables(tables));
    CHORAL_RETURN_IF_ERROR(file_.check_pages());
    return version == 1 ? upgrade() : Status();
  }

  Status make_tables() {
    CHORAL_RETURN_IF_ERROR(file_.run(fmt::format("PRAGMA user_version={}", kVersion).c_str()));
    for (const char* table : kTables) CHORAL_RETURN_IF_ERROR(file_.run(table));
    return {};
  }

  Status upgrade() {
    CHORAL_RETURN_IF_ERROR(file_.run("ALTER TABLE adapters RENAME TO version_1"));
    CHORAL_RETURN_IF_ERROR(make_tables());
    CHORAL_RETURN_IF_ERROR(file_.run("INSERT INTO adapters SELECT name, path, pinned, added_unix_s FROM version_1"));
    CHORAL_RETURN_IF_ERROR(file_.run(
        "INSERT INTO generations SELECT name, generation, digest FROM version_1 WHERE generation > 0 AND digest <> ''"));
    return file_.run("DROP TABLE version_1");
  }

  StateFile file_;
  std::mutex mutex_;
};

}  // namespace

Result<std::unique_ptr<RegisteredAdapters>> RegisteredAdapters::open(const std::string& state_directory) {
  auto made = std::make_unique<SqliteAdapters>(state_directory);
  CHORAL_RETURN_IF_ERROR(made->open_file());
  return std::unique_ptr<RegisteredAdapters>(std::move(made));
}

}  // namespace choral::serve
