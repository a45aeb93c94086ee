// Any bytes as a stream of server-sent events, whole and cut into pieces whose length the first byte says: both ways give the
// same events; each is read as a piece of an answer.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tools/load/answer_reader.h"
#include "tools/load/sse_reader.h"

namespace {

std::vector<std::string> events_of(std::string_view text, size_t step) {
  choral::tools::SseReader reader;
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size(); at += step) {
    const auto status = reader.feed(text.substr(at, step), [&out](std::string_view data) {
      out.emplace_back(data);
      return choral::Status();
    });
    if (!status.ok()) break;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto events = events_of(text, text.size() + 1);
  CHORAL_CHECK(events == events_of(text, size_t{1} + data[0] % 16), "events depend on how the bytes came");
  for (const auto& event : events) {
    const auto piece = choral::tools::read_answer(event);
    CHORAL_CHECK(!piece.ok() || piece->error.size() < 2000, "a server's words are not cut");
    (void)choral::tools::refusal_text(event);
    (void)choral::tools::first_model(event);
  }
  return 0;
}
