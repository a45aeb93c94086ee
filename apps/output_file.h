// Lines to a file that is there only when it is whole: they go to a neighbour with another name, which commit() moves into place.
// "-" and things that are no plain files (/dev/stdout, a pipe) are written as the lines come.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::apps {

class OutputFile {
 public:
  static Result<std::unique_ptr<OutputFile>> create(const std::string& path);
  ~OutputFile();  // without commit() nothing stays
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status write_piece(std::string_view piece);  // of a line, which write_line ends
  Status write_line(std::string_view line);
  Status commit();
  bool is_stdout() const { return file_ == stdout; }

 private:
  OutputFile() = default;

  std::string path_;
  std::string partial_;  // empty when written directly
  std::FILE* file_ = nullptr;
};

// Writes to stdout at once; an error when it is closed or full.
Status print_out(std::string_view text);

}  // namespace choral::apps
