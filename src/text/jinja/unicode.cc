#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace choral::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Σ at the end of a word is ς: a cased letter stands before it and none after it, marks and dots aside.
bool case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024;
  }
}

bool final_sigma(std::u32string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::u32string_view text, size_t at, std::u32string* out) {
  const char32_t c = text[at];
  if (c < 0x80) {
    out->push_back(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x3A3) {
    out->push_back(final_sigma(text, at) ? 0x3C2 : 0x3C3);
  } else if (c == 0x130) {
    out->append(U"i\u0307");
  } else {
    out->push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

// One letter may become up to three (ß, ﬁ, ΐ). The library maps one to one, but folds fully, and upper(fold(c)) is the
// full upper case of every letter that is not upper case itself.
size_t full_fold(char32_t c, utf8proc_int32_t (&folded)[8]) {
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
  return n < 0 ? 0 : static_cast<size_t>(n);
}

void append_upper(char32_t c, bool title, std::u32string* out) {
  if (c < 0x80) {
    out->push_back(c >= 'a' && c <= 'z' ? c - 32 : c);
    return;
  }
  const auto simple =
      title ? utf8proc_totitle(static_cast<utf8proc_int32_t>(c)) : utf8proc_toupper(static_cast<utf8proc_int32_t>(c));
  utf8proc_int32_t folded[8];
  const auto kind = category(c);
  if (kind != UTF8PROC_CATEGORY_LU && c >= 0xDF && (!title || static_cast<char32_t>(simple) == c)) {
    const size_t n = full_fold(c, folded);
    if (n > 1) {
      if (title && kind == UTF8PROC_CATEGORY_LT) return out->push_back(c);
      for (size_t i = 0; i < n; ++i)
        out->push_back(static_cast<char32_t>(title && i > 0 ? folded[i] : utf8proc_toupper(folded[i])));
      return;
    }
  }
  out->push_back(static_cast<char32_t>(simple));
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
    if ((text[pos] & 0xC0) == 0x80) continue;
    if (index == 0) return pos;
    --index;
  }
  return pos;
}

char32_t next_code_point(std::string_view text, size_t* pos) {
  const auto lead = static_cast<unsigned char>(text[*pos]);
  ++*pos;
  if (lead < 0x80) return lead;
  const int extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t c = lead & (0x3F >> extra);
  for (int k = 0; k < extra && *pos < text.size(); ++k) c = c << 6 | (static_cast<unsigned char>(text[(*pos)++]) & 0x3F);
  return c;
}

void append_utf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
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

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  if (is_decimal(c)) return true;
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x1369 && c <= 0x1371) || c == 0x19DA || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490) || c == 0x24EA || (c >= 0x24F5 && c <= 0x24FD) || c == 0x24FF ||
         (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) || (c >= 0x278A && c <= 0x2792);
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  if (k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO) return true;
  static constexpr std::u32string_view kIdeographs = U"一二三四五六七八九十百千万億兆零〇壱弐参廿卅";
  return kIdeographs.find(c) != std::u32string_view::npos;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) ||
         (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
}

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

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

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

bool is_identifier(std::string_view text) {
  if (text.empty()) return false;
  for (size_t pos = 0; pos < text.size();) {
    const bool first = pos == 0;
    const char32_t c = next_code_point(text, &pos);
    if (c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL) continue;
    const auto k = category(c);
    const bool continues =
        k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_PC;
    if (first || !continues) return false;
  }
  return true;
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (size_t pos = 0; pos < text.size();) append_upper(next_code_point(text, &pos), false, &out);
  return encode(out);
}

std::string lower(std::string_view text) {
  const std::u32string in = decode(text);
  std::u32string out;
  out.reserve(in.size());
  for (size_t i = 0; i < in.size(); ++i) append_lower(in, i, &out);
  return encode(out);
}

std::string title(std::string_view text) {
  const std::u32string in = decode(text);
  std::u32string out;
  bool in_word = false;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in_word) {
      append_lower(in, i, &out);
    } else {
      append_upper(in[i], true, &out);
    }
    in_word = is_cased(in[i]);
  }
  return encode(out);
}

std::string capitalize(std::string_view text) {
  const std::u32string in = decode(text);
  std::u32string out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (i == 0) {
      append_upper(in[i], true, &out);
    } else {
      append_lower(in, i, &out);
    }
  }
  return encode(out);
}

std::string swapcase(std::string_view text) {
  const std::u32string in = decode(text);
  std::u32string out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (is_upper(in[i])) {
      append_lower(in, i, &out);
    } else if (is_lower(in[i])) {
      append_upper(in[i], false, &out);
    } else {
      out.push_back(in[i]);
    }
  }
  return encode(out);
}

std::string casefold(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, &pos);
    utf8proc_int32_t folded[8];
    const size_t n = full_fold(c, folded);
    if (n == 0) append_utf8(c, &out);
    for (size_t i = 0; i < n; ++i) append_utf8(static_cast<char32_t>(folded[i]), &out);
  }
  return out;
}

std::string_view strip(std::string_view text, bool left, bool right, const std::string_view* chars) {
  std::u32string set = chars ? decode(*chars) : std::u32string();
  std::sort(set.begin(), set.end());
  const auto goes = [&](char32_t c) { return chars ? std::binary_search(set.begin(), set.end(), c) : is_space(c); };
  while (left && !text.empty()) {
    size_t pos = 0;
    if (!goes(next_code_point(text, &pos))) break;
    text.remove_prefix(pos);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (text[start] & 0xC0) == 0x80) --start;
    size_t pos = start;
    if (!goes(next_code_point(text, &pos))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace choral::text::jinja
