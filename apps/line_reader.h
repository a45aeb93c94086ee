// Lines of a file, one after the other, numbered from 1; hostile ones are cut. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace choral::apps {

class LineReader {
 public:
  explicit LineReader(std::FILE* file) : file_(file) {}
  // False at the end. A line over the limit comes out cut, with too_long() true; the next call goes on behind it.
  bool next(std::string& line);
  void skip_rest();  // of a line for which next() found no memory
  bool too_long() const { return too_long_; }
  int64_t number() const { return number_; }
  static constexpr size_t kMaxBytes = size_t{64} << 20;

 private:
  std::FILE* file_;
  int64_t number_ = 0;
  bool too_long_ = false;
};

}  // namespace choral::apps
