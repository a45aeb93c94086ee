// Lines to a file that is there only when it is whole: they go to a neighbour with another name, which commit() moves into place,
// with the mode and the owner of the file that stood there. The neighbour exists from the first line on.
// "-" and things that are no plain files (a terminal, a pipe) are written as the lines come; so is a file that nothing can be
// moved over (a mount point, a folder that this user may not write), and behind what it holds one that the process was started
// with to write, as /dev/stdout and /dev/fd/3 name it.
// A neighbour that was kept, or that a crash left, can be gone on with: resume().
#pragma once

#include <sys/stat.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::apps {

class OutputFile {
 public:
  // A pipe that nobody reads holds up whoever opens it, and one that is not read on, whoever writes.
  enum class Pipes { kWaited, kRefused };
  // Finds out now what would keep the lines from being written.
  static Result<std::unique_ptr<OutputFile>> create(const std::string& path, Pipes pipes = Pipes::kWaited);
  ~OutputFile();  // without commit() nothing stays of what is not written directly, but for what was there before: resume()
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Before the first line: goes on behind the whole lines of the newest neighbour that nobody writes; false: there is none.
  Result<bool> resume();
  // The neighbour's name; empty while there is none.
  std::string partial() const;

  Status write_piece(std::string_view piece);  // of a line, which write_line ends
  Status write_line(std::string_view line);
  // The neighbour stays when it cannot be moved nor copied into place; the error names it. Cancelled when remove_partial() was
  // first.
  Status commit();
  // Instead of commit(): the neighbour stays, with its whole lines.
  Status keep();
  // Any thread: the process is about to end.
  void remove_partial();

  bool is_stdout() const { return file_ == stdout; }
  bool is_direct() const { return direct_; }
  // Whether lines go at once into the plain file that `descriptor` reads.
  bool writes_into(int descriptor) const;
  // Why a plain file is written directly; else empty.
  const std::string& remark() const { return remark_; }

 private:
  OutputFile() = default;

  Status open_plain(bool exists);
  Status open_special(Pipes pipes);
  Status write_behind(int descriptor);
  Status open_partial();
  Status write_directly(int descriptor, std::string_view why);
  Status adopt(int descriptor);
  Status begin();
  Status copy_into_place();

  std::string path_;
  bool direct_ = false;
  bool begun_ = false;
  bool committed_ = false;
  bool resumed_ = false;
  bool replaces_ = false;  // a plain file, whose facts are
  struct stat replaced_ {};
  std::string remark_;
  std::FILE* file_ = nullptr;

  mutable std::mutex mutex_;  // guards the one below
  std::string partial_;       // empty while there is none
};

// The file of a flag, before the work for it is begun: beside standard output, which has the report, and no pipe. Null: `path` is
// empty.
Result<std::unique_ptr<OutputFile>> open_beside_report(std::string_view flag, const std::string& path, bool quiet);

// Writes to stdout at once; an error when it is closed or full.
Status print_out(std::string_view text);

}  // namespace choral::apps
