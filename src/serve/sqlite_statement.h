// One statement of SQLite's, bound and stepped through. For .cc files only. Not thread-safe.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace choral::serve {

class SqliteStatement {
 public:
  SqliteStatement(sqlite3* db, const char* sql) { code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr); }
  ~SqliteStatement() { sqlite3_finalize(statement_); }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  void bind(int at, std::string_view text) {
    const char* data = text.data() == nullptr ? "" : text.data();  // SQLite takes a null pointer for NULL
    if (code_ == SQLITE_OK) code_ = sqlite3_bind_text(statement_, at, data, static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  void bind(int at, int64_t number) {
    if (code_ == SQLITE_OK) code_ = sqlite3_bind_int64(statement_, at, number);
  }
  // SQLITE_ROW, SQLITE_DONE or an error.
  int step() { return code_ == SQLITE_OK ? sqlite3_step(statement_) : code_; }
  int64_t number(int column) { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) {
    const auto* bytes = sqlite3_column_text(statement_, column);
    return bytes == nullptr ? "" : std::string(reinterpret_cast<const char*>(bytes), sqlite3_column_bytes(statement_, column));
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

}  // namespace choral::serve
