// Any bytes as the body of an upload, and as a line of the file that it brings. Parts lie in the body and in their order; what is
// refused says why in few words.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "serve/batches/batch_json.h"
#include "serve/http/form_data.h"

namespace {

using namespace choral;
using namespace choral::serve;

constexpr size_t kMaxWords = 2000;  // of an error

void check_form(std::string_view content_type, std::string_view body) {
  const auto parts = read_form_data(content_type, body);
  if (!parts.ok()) {
    CHORAL_CHECK(parts.status().message().size() < kMaxWords, "an error quotes a whole body");
    return;
  }
  CHORAL_CHECK(parts->size() <= kMostFormParts, "more parts than are taken");
  const char* at = body.data();
  for (const auto& part : *parts) {
    CHORAL_CHECK(part.content.data() >= at && part.content.data() + part.content.size() <= body.data() + body.size(),
                 "a part lies outside of the body");
    at = part.content.data() + part.content.size();
  }
}

void check_line(std::string_view text) {
  BatchLine line;
  const auto fault = read_batch_line(text, "", line);
  if (!fault) CHORAL_CHECK(line.body.starts_with('{') && !line.custom_id.empty(), "a line was read that asks nothing");
  const std::string answer = fault ? fault_line(line.custom_id, *fault) : answer_line(line.custom_id, {.status = 200}, "r");
  CHORAL_CHECK(answer.find('\n') == answer.npos, "an answer is more than a line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_form("multipart/form-data; boundary=b", text);
  const size_t line = std::min(text.find('\n'), text.size());
  check_form(text.substr(0, line), text.substr(std::min(line + 1, text.size())));
  check_line(text);
  return 0;
}
