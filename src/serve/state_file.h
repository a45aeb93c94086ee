// A database in the state directory, which one server has open: its user alone can read it, it is opened as a file that may be
// anybody's work, and errors say what to do. For .cc files only. Not thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "serve/sqlite_statement.h"

namespace choral::serve {

class StateFile {
 public:
  struct Kind {
    int application_id;  // tells the file from every other SQLite database
    int most_value_bytes;
    std::string_view holds;        // "registry of adapters"
    std::string_view consequence;  // of starting again without the file
  };
  StateFile(std::string folder, std::string_view name, Kind kind);
  ~StateFile() { sqlite3_close(db_); }
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  // Makes what is missing, the folder too. The file is held until this goes, by a lock that the system takes back from a dead
  // process.
  Status open();
  // The version that was written into it; 0: it is new, and marked as of this kind now.
  Result<int64_t> version();
  // It has these and no other, in the order of their names.
  Status check_tables(std::span<const char* const> tables);
  Status check_pages();

  sqlite3* db() { return db_; }
  const std::string& path() const { return path_; }
  Result<int64_t> ask(const char* sql);
  Status run(const char* sql);
  Status done(SqliteStatement& change);

  Status wrong(std::string_view what) const;               // "FILE has other tables than it should; …"
  Status failure(int code, std::string_view doing) const;  // `doing`: "read", "written"

 private:
  const std::string folder_, path_;
  const Kind kind_;
  sqlite3* db_ = nullptr;
};

}  // namespace choral::serve
