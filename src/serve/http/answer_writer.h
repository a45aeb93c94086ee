// One answer as bytes: its head, then its pieces in the framing that the client understands. Not thread-safe. Called by the
// connection.
#pragma once

#include <optional>
#include <string_view>

#include "serve/http/answer.h"
#include "serve/http/out_queue.h"
#include "serve/http/response_head.h"

namespace choral::serve {

class AnswerWriter {
 public:
  // `keep_alive`: the request allows it.
  AnswerWriter(std::string_view method, int minor_version, bool keep_alive)
      : head_only_(method == "HEAD"), minor_version_(minor_version), keep_alive_(keep_alive) {}

  // `closing`: the connection must not go on after this answer.
  void write(Answer::Taken& taken, bool closing, OutQueue& out);

  bool begun() const { return end_.has_value(); }
  bool is_stream() const { return end_ == BodyEnd::kChunks || end_ == BodyEnd::kClose; }
  bool ends_by_close() const { return end_ == BodyEnd::kClose; }
  bool keep_alive() const { return keep_alive_; }  // true only while nothing spoke against it

 private:
  void write_head(const Answer::Taken& taken, bool closing, OutQueue& out);

  const bool head_only_;
  const int minor_version_;
  bool keep_alive_;
  std::optional<BodyEnd> end_;
  bool ended_ = false;  // the last chunk is written
};

}  // namespace choral::serve
