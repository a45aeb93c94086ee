// Requests as lines of JSON: what `generate --input` and the C API read. docs/cli.md lists the fields. Lines are hostile: depth
// and counts are limited, reading takes n log n steps, types and ranges are checked, unknown fields are reported, not obeyed, and
// those of other servers that would change the answer refused. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "choral/types.h"
#include "requests/unknown_fields.h"

namespace choral::requests {

// What of a line comes back in its answer, as it stood there.
struct LineEcho {
  std::string id_json = "null";  // "7" or "\"a\""
  std::string lora_json = {};    // empty when the line says nothing
};

struct RequestLine {
  Request request;
  LineEcho echo;
};

class RequestLineReader {
 public:
  // `warn` hears of each unknown field once, of the first few by name. Without it an unknown field is an error.
  RequestLineReader(SamplingParams defaults, std::function<void(const std::string&)> warn);
  // On an error `out.echo` is set as far as it could be read.
  Status read(std::string_view line, RequestLine& out);

 private:
  Status meet_unknown(const std::string& name);

  SamplingParams defaults_;
  std::function<void(const std::string&)> warn_;
  UnknownFieldLog warned_;
};

}  // namespace choral::requests
