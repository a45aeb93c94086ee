// Text by code points, as Python sees it: lengths, classes, case. Strings stay UTF-8; what is asked here is decoded on
// the way. All inputs must be valid UTF-8 (checked once where text comes in, see valid_utf8). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace choral::text::jinja {

bool valid_utf8(std::string_view text);  // no overlong forms, surrogates or values past U+10FFFF
size_t code_point_count(std::string_view text);
// Byte offset of code point `index`; text.size() when there are fewer.
size_t byte_offset(std::string_view text, size_t index);
// Reads the code point at `*pos` and moves past it.
char32_t next_code_point(std::string_view text, size_t* pos);
void append_utf8(char32_t code_point, std::string* out);
std::u32string decode(std::string_view text);
std::string encode(std::u32string_view text);

bool is_space(char32_t c);  // str.isspace and \s
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
bool is_printable(char32_t c);
bool is_word(char32_t c);  // \w
bool is_identifier(std::string_view text);
bool is_line_break(char32_t c);  // where str.splitlines breaks

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);       // str.title
std::string capitalize(std::string_view text);  // first code point titled, the rest lowered
std::string swapcase(std::string_view text);
std::string casefold(std::string_view text);

// Without `chars` white space goes.
std::string_view strip(std::string_view text, bool left, bool right, const std::string_view* chars = nullptr);

}  // namespace choral::text::jinja
