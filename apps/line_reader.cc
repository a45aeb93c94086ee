#include "line_reader.h"

namespace choral::apps {

bool LineReader::next(std::string& line) {
  line.clear();
  too_long_ = false;
  int c = 0;
  while ((c = std::getc(file_)) != EOF && c != '\n') {
    if (line.size() < kMaxBytes) {
      line.push_back(static_cast<char>(c));
    } else {
      too_long_ = true;
    }
  }
  if (c == EOF && line.empty()) return false;
  ++number_;
  return true;
}

void LineReader::skip_rest() {
  int c = 0;
  while ((c = std::getc(file_)) != EOF && c != '\n') {
  }
  ++number_;
}

}  // namespace choral::apps
