// Any bytes as a line of requests, expanded. Whatever is read takes a time near its length (the fuzzer's limit of 10 s for a
// megabyte), and what comes back is what was written.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "expansion.h"
#include "requests/request_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using choral::requests::RequestLine;
  const std::string line = choral::fuzz::expanded({reinterpret_cast<const char*>(data), size});
  size_t warnings = 0;
  choral::requests::RequestLineReader reader({}, [&](const std::string& text) {
    CHORAL_CHECK(text.size() < 500, "a warning quotes a whole line");
    ++warnings;
  });
  RequestLine read;
  const choral::Status status = reader.read(line, read);
  CHORAL_CHECK(status.message().size() < 2000, "an error quotes a whole line");
  CHORAL_CHECK(warnings < 50, "every field of a line is warned about");
  RequestLine again;
  const bool has_id = reader.read("{\"id\":" + read.echo.id_json + "}", again).ok();
  CHORAL_CHECK(has_id && again.echo.id_json == read.echo.id_json, "an id comes back in another way");
  if (!status.ok()) return 0;
  for (const auto& use : read.request.adapters) CHORAL_CHECK(std::isfinite(use.scale), "a factor that is no number");
  for (const auto& [id, bias] : read.request.sampling.logit_bias) CHORAL_CHECK(std::isfinite(bias), "a bias that is no number");
  CHORAL_CHECK(read.request.messages_json.size() <= 2 * line.size() + 2, "messages grew");
  return 0;
}
