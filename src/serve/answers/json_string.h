// Text that becomes the inside of a JSON string, byte by byte: quotes and what JSON asks to be escaped are, and bytes that are no
// UTF-8 become U+FFFD. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace choral::serve {

class JsonString {
 public:
  void push(char c, std::string& out);
  void finish(std::string& out);  // no more text; a character that was not whole ends

 private:
  void drain(bool is_all, std::string& out);

  std::string partial_;  // of a character; at most three bytes
};

// Whether it is one JSON value, no deeper than arguments may be.
bool is_json_value(std::string_view text);

}  // namespace choral::serve
