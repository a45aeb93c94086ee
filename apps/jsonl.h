// Requests and answers as lines of JSON: what `generate --input` reads and `--output` writes. docs/cli.md lists the fields.
// Lines are hostile: length and depth are limited, types and ranges are checked, unknown fields are reported, not obeyed.
// Not thread-safe.
#pragma once

#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "choral/types.h"

namespace choral::apps {

// Lines of a file, one after the other, numbered from 1.
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
  // `warn` hears of each unknown field once.
  RequestLineReader(SamplingParams defaults, std::function<void(const std::string&)> warn);
  // On an error `out.echo` is set as far as it could be read.
  Status read(std::string_view line, RequestLine& out);

 private:
  SamplingParams defaults_;
  std::function<void(const std::string&)> warn_;
  std::set<std::string> warned_;
};

std::string answer_line(const LineEcho& echo, const RequestOutput& output);
std::string error_line(const LineEcho& echo, int64_t line, const Status& status);
// What `lora` would say for these adapters: a name, or a list with factors; empty for the base.
std::string lora_json(const std::vector<AdapterUse>& adapters);
std::string json_quoted(std::string_view text);

}  // namespace choral::apps
