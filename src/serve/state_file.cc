#include "serve/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/out_of_memory.h"
#include "base/printable.h"
#include "base/system_error.h"

namespace choral::serve {

StateFile::StateFile(std::string folder, std::string_view name, Kind kind)
    : folder_(std::move(folder)), path_(fmt::format("{}/{}", folder_, name)), kind_(kind) {}

Status StateFile::open() {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::create_directories(folder_, error)) fs::permissions(folder_, fs::perms::owner_all, error);
  if (error) return system_error(error.value(), "cannot make the state directory " + folder_);
  // Made here rather than by SQLite, which would let everybody read it. Closed before SQLite opens it: closing drops locks.
  const int made = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (made < 0)
    return errno == ELOOP ? wrong("is a link; give the real state directory") : system_error(errno, "cannot open " + path_);
  ::close(made);
  const int code =
      sqlite3_open_v2(path_.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  if (code != SQLITE_OK) return failure(code, "opened");
  sqlite3_extended_result_codes(db_, 1);
  // The file may be anybody's work.
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, kind_.most_value_bytes);
  return run("PRAGMA locking_mode=EXCLUSIVE");
}

Result<int64_t> StateFile::version() {
  CHORAL_TRY(const auto application, ask("PRAGMA application_id"));
  CHORAL_TRY(const auto version, ask("PRAGMA user_version"));
  CHORAL_TRY(const auto things, ask("SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && version == 0 && things == 0) {
    CHORAL_RETURN_IF_ERROR(run(fmt::format("PRAGMA application_id={}", kind_.application_id).c_str()));
    return 0;
  }
  if (application != kind_.application_id) return wrong("is a database of another program");
  if (version == 0) return wrong("has no version");
  return version;
}

Status StateFile::check_tables(std::span<const char* const> tables) {
  SqliteStatement schema(db_, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name");
  for (const char* table : tables) {
    if (schema.step() != SQLITE_ROW || schema.text(0) != table) return wrong("has other tables than it should");
  }
  return schema.step() == SQLITE_DONE ? Status() : wrong("has other tables than it should");
}

Status StateFile::check_pages() {
  SqliteStatement sound(db_, "PRAGMA quick_check(1)");
  if (const int code = sound.step(); code != SQLITE_ROW) return failure(code, "checked");
  return sound.text(0) == "ok" ? Status() : wrong("is damaged (" + printable(sound.text(0)) + ")");
}

Result<int64_t> StateFile::ask(const char* sql) {
  SqliteStatement question(db_, sql);
  const int code = question.step();
  if (code != SQLITE_ROW) return failure(code, "read");
  return question.number(0);
}

Status StateFile::run(const char* sql) {
  SqliteStatement statement(db_, sql);
  int code;
  while ((code = statement.step()) == SQLITE_ROW) {
  }
  return code == SQLITE_DONE ? Status() : failure(code, "opened or written");
}

Status StateFile::done(SqliteStatement& change) {
  const int code = change.step();
  return code == SQLITE_DONE ? Status() : failure(code, "written");
}

Status StateFile::wrong(std::string_view what) const {
  return corrupt("{} {}; move it away (mv '{}' '{}.bad') and start again: {}", path_, what, path_, path_, kind_.consequence);
}

Status StateFile::failure(int code, std::string_view doing) const {
  const char* words = sqlite3_errstr(code);
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return unavailable("{} is in use: another server has this state directory; stop it, or give this one its own (--state-dir)",
                         path_);
    case SQLITE_NOTADB: return wrong(fmt::format("is damaged, or it is no {}", kind_.holds));
    case SQLITE_CORRUPT: return wrong("is damaged");
    case SQLITE_FULL: return resource_exhausted("{} cannot be {}: the disk is full", path_, doing);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return permission_denied("{} cannot be {} ({}); the state directory must be writable for this user", path_, doing, words);
    case SQLITE_NOMEM: return out_of_memory(path_);
    case SQLITE_TOOBIG: return too_large("{} cannot be {}: a value has more than {} bytes", path_, doing, kind_.most_value_bytes);
    default: return internal_error("{} cannot be {}: {}", path_, doing, words);
  }
}

}  // namespace choral::serve
