#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace choral::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT || c == 0xAA || c == 0xBA ||
         (c >= 0x2B0 && c <= 0x2B8) || (c >= 0x2160 && c <= 0x217F) || (c >= 0x24B6 && c <= 0x24E9);
}

// Σ at the end of a word is ς: a cased letter stands before it and none after it, marks and dots aside.
bool is_final(std::u32string_view text, size_t at) {
  const auto ignorable = [](char32_t c) {
    const auto kind = category(c);
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
           kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
           c == 0x2018 || c == 0x2019 || c == 0x2024;
  };
  size_t before = at, after = at + 1;
  while (before > 0 && ignorable(text[before - 1])) --before;
  while (after < text.size() && ignorable(text[after])) ++after;
  return before > 0 && is_cased(text[before - 1]) && (after == text.size() || !is_cased(text[after]));
}

void append_lower(std::u32string_view text, size_t at, std::u32string* out) {
  const char32_t c = text[at];
  if (c == 0x130) {
    out->append(U"i\u0307");
  } else if (c == 0x3A3) {
    out->push_back(is_final(text, at) ? 0x3C2 : 0x3C3);
  } else {
    out->push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

// One letter may become up to three (ß, ﬁ, ΐ). The library maps one to one, but folds fully, and upper(fold(c)) is the
// full upper case of every letter that is not upper case itself.
void append_upper(char32_t c, bool title, std::u32string* out) {
  const auto letter = static_cast<utf8proc_int32_t>(c);
  const auto simple = static_cast<char32_t>(title ? utf8proc_totitle(letter) : utf8proc_toupper(letter));
  utf8proc_int32_t folded[8];
  int boundary = 0;
  const bool whole = c < 0xDF || category(c) == UTF8PROC_CATEGORY_LU || (title && simple != c);
  const auto n = whole ? 1 : utf8proc_decompose_char(letter, folded, 8, UTF8PROC_CASEFOLD, &boundary);
  if (n <= 1 || (title && category(c) == UTF8PROC_CATEGORY_LT)) return out->push_back(simple);
  for (utf8proc_ssize_t i = 0; i < n; ++i)
    out->push_back(static_cast<char32_t>(title && i > 0 ? folded[i] : utf8proc_toupper(folded[i])));
}

// In title case, where `starts` says so for a letter and the one before it (0 at the beginning), else in lower case.
template <class Starts>
std::string titled(std::string_view text, const Starts& starts) {
  const std::u32string in = decode(text);
  std::u32string out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (starts(i == 0 ? U'\0' : in[i - 1], i)) {
      append_upper(in[i], true, &out);
    } else {
      append_lower(in, i, &out);
    }
  }
  return encode(out);
}

}  // namespace

bool valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = check_utf8(text).length;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

size_t code_point_count(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t pos = 0;
  for (; pos < text.size(); ++pos) {
    if ((text[pos] & 0xC0) != 0x80 && index-- == 0) break;
  }
  return pos;
}

char32_t next_code_point(std::string_view text, size_t* pos) {
  const char* at = text.data() + *pos;
  const char32_t c = choral::next_code_point(at);
  *pos = static_cast<size_t>(at - text.data());
  return c;
}

size_t last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

std::u32string decode(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) out.push_back(next_code_point(text, &pos));
  return out;
}

std::string encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(c, &out);
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
  }
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (size_t pos = 0; pos < text.size();) append_upper(next_code_point(text, &pos), false, &out);
  return encode(out);
}

std::string lower(std::string_view text) {
  return titled(text, [](char32_t, size_t) { return false; });
}
std::string title(std::string_view text) {
  return titled(text, [](char32_t before, size_t) { return !is_cased(before); });
}
std::string capitalize(std::string_view text) {
  return titled(text, [](char32_t, size_t i) { return i == 0; });
}

std::string_view strip(std::string_view text, bool left, bool right, const std::string_view* chars) {
  std::u32string set = chars ? decode(*chars) : std::u32string();
  std::sort(set.begin(), set.end());
  const auto goes = [&](size_t pos) {
    const char32_t c = next_code_point(text, &pos);
    return chars ? std::binary_search(set.begin(), set.end(), c) : is_space(c);
  };
  while (left && !text.empty() && goes(0)) text.remove_prefix(utf8_length(static_cast<unsigned char>(text[0])));
  while (right && !text.empty()) {
    const size_t last = last_code_point(text);
    if (!goes(last)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace choral::text::jinja
