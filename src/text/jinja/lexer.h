// Cuts a template into tokens as Jinja does with trim_blocks and lstrip_blocks: text between tags is one kData token with
// the white space control already applied; raw blocks are data; comments are gone. Line ends become "\n" and one at the
// very end is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::text::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // data, name, unescaped string, operator
  int64_t integer = 0;
  double number = 0;
};

// The last token is kEnd. corrupt with the line on a broken tag, unsupported for numbers and escapes that no template
// writes; the source must be valid UTF-8.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace choral::text::jinja
