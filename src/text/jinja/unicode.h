// Text by code points, as Python sees it: lengths, classes, case. Strings stay UTF-8; what is asked here is decoded on
// the way. All inputs must be valid UTF-8 (checked once where text comes in, see valid_utf8). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace choral::text::jinja {

bool valid_utf8(std::string_view text);  // no overlong forms, surrogates or values past U+10FFFF
size_t code_point_count(std::string_view text);
size_t byte_offset(std::string_view text, size_t index);       // of code point `index`; text.size() when there are fewer
char32_t next_code_point(std::string_view text, size_t* pos);  // at `*pos`, which moves past it
size_t last_code_point(std::string_view text);                 // where it begins; the text is not empty
inline void append_utf8(char32_t c, std::string* out) { text::append_utf8(static_cast<uint32_t>(c), *out); }
std::u32string decode(std::string_view text);
std::string encode(std::u32string_view text);

bool is_space(char32_t c);       // str.isspace and \s
bool is_line_break(char32_t c);  // where str.splitlines breaks
bool is_printable(char32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);       // str.title
std::string capitalize(std::string_view text);  // first code point titled, the rest lowered

// Without `chars` white space goes.
std::string_view strip(std::string_view text, bool left, bool right, const std::string_view* chars = nullptr);

}  // namespace choral::text::jinja
