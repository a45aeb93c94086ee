#include "serve/http/answer_writer.h"

#include <utility>

namespace choral::serve {

void AnswerWriter::write_head(const Answer::Taken& taken, bool closing, OutQueue& out) {
  const Answer::Head& head = *taken.head;
  HeadFacts facts;
  if (has_no_body(head.status)) {
    facts.end = BodyEnd::kNoBody;
  } else if (head.stream) {
    facts.end = minor_version_ == 0 ? BodyEnd::kClose : BodyEnd::kChunks;
  } else {
    facts.length = taken.pieces.front().size();
  }
  end_ = facts.end;
  if (closing || ends_by_close() || equal_ignoring_case(head.headers.get("Connection"), "close")) keep_alive_ = false;
  facts.keep_alive = keep_alive_;
  facts.minor_version = minor_version_;
  out.append(response_head(head.status, head.headers, facts));
}

void AnswerWriter::write(Answer::Taken& taken, bool closing, OutQueue& out) {
  if (taken.head) write_head(taken, closing, out);
  if (!end_ || *end_ == BodyEnd::kNoBody || head_only_) return;
  const bool chunks = *end_ == BodyEnd::kChunks;
  for (std::string& piece : taken.pieces) {
    if (chunks) {
      out.append_chunk(std::move(piece));
    } else {
      out.append(std::move(piece));
    }
  }
  if (chunks && taken.complete && !taken.aborted && !std::exchange(ended_, true)) out.append(std::string_view("0\r\n\r\n"));
}

}  // namespace choral::serve
