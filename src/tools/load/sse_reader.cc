#include "tools/load/sse_reader.h"

#include "base/size_text.h"

namespace choral::tools {

Status SseReader::feed(std::string_view bytes, FunctionRef<Status(std::string_view data)> on_event) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);  // the second half of a line's end
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > kMaxEventBytes)
      return too_large("an event of the stream has more than {}", size_text(kMaxEventBytes));
    line_ += part;
    if (end == bytes.npos) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    CHORAL_RETURN_IF_ERROR(end_line(on_event));
  }
  return {};
}

Status SseReader::end_line(FunctionRef<Status(std::string_view)> on_event) {
  std::string_view line = line_;
  if (first_line_ && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  first_line_ = false;
  Status status;
  if (line.empty()) {
    if (has_data_) status = on_event(data_);
    data_.clear();
    has_data_ = false;
  } else if (line == "data" || line.starts_with("data:")) {
    line.remove_prefix(line.size() > 4 ? 5 : 4);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
  return status;
}

}  // namespace choral::tools
