#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/unicode_versions.h"

namespace choral::text {
namespace {

utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Canonical order: each run of marks sorted by class, equal classes in their order. utf8proc's own loop is quadratic.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  const auto combining = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t i = 0; i < text.size();) {
    if (combining(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && combining(text[end]) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(text.begin() + i, text.begin() + end, [&](auto a, auto b) { return combining(a) < combining(b); });
    }
    i = end;
  }
}

bool normalize_part(NormalForm form, std::string_view in, uint64_t most_bytes, std::vector<utf8proc_int32_t>& buffer,
                    std::string& appended) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  buffer.clear();
  int boundary = 0;
  for (const char *p = in.data(), *end = p + in.size(); p < end;) {
    if (buffer.size() > most_bytes) return false;
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(p));
    utf8proc_int32_t parts[32];  // the longest decomposition, of U+FDFA, has 18
    if (find_range(newer_decompositions(), static_cast<uint32_t>(c))) {
      buffer.push_back(c);
      continue;
    }
    const auto n = utf8proc_decompose_char(c, parts, 32, options, &boundary);
    CHORAL_CHECK(n >= 0 && n <= 32, "a character decomposes into at most 18");
    buffer.insert(buffer.end(), parts, parts + n);
  }
  order_marks(buffer);
  auto length = static_cast<utf8proc_ssize_t>(buffer.size());
  if (compose) {
    length = utf8proc_normalize_utf32(buffer.data(), length, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  for (utf8proc_ssize_t i = 0; i < length; ++i) append_utf8(static_cast<uint32_t>(buffer[i]), appended);
  return true;
}

}  // namespace

std::string_view sanitize_utf8(std::string_view in, std::string& storage) {
  bool copied = false;
  size_t done = 0;  // everything before it stands in storage, once copied
  for (size_t i = 0; i < in.size();) {
    if (static_cast<unsigned char>(in[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Step step = check_utf8(in.substr(i));
    if (step.length) {
      i += step.length;
      continue;
    }
    if (!copied) storage.clear();
    copied = true;
    storage.append(in.substr(done, i - done));
    append_utf8(kReplacementChar, storage);
    i += step.broken;
    done = i;
  }
  if (!copied) return in;
  storage.append(in.substr(done));
  return storage;
}

void append_utf8(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool is_white_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto k = category(c);
  const bool numeric = k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
  return numeric != (find_range(numeric_differences(), c) != nullptr);
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80)
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
  const auto k = category(c);
  const bool punctuation = k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
  return punctuation != (find_range(punctuation_differences(), c) != nullptr);
}

bool is_mark(uint32_t c) {
  if (c < 0x80) return false;
  const auto k = category(c);
  const bool mark = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
  return mark != (find_range(mark_differences(), c) != nullptr);
}

bool normalize_utf8(NormalForm form, std::string_view in, uint64_t most_bytes, std::string& appended) {
  const size_t before = appended.size();
  // Below this no character changes alone or combines with the one before it: such text is copied. A part that must be
  // normalized starts one character early, with what its first mark may combine with.
  const uint32_t inert = form == NormalForm::kNfc ? 0x300 : 0x80;
  std::vector<utf8proc_int32_t> buffer;
  const char* const end = in.data() + in.size();
  const char* copied = in.data();
  const char* previous = in.data();
  for (const char* p = in.data(); p < end;) {
    const char* here = p;
    if (next_code_point(p) < inert) {
      previous = here;
      continue;
    }
    appended.append(copied, previous);
    const char* stop = p;
    while (stop < end) {
      const char* next = stop;
      if (next_code_point(next) < inert) break;
      stop = next;
    }
    const uint64_t done = appended.size() - before;
    const std::string_view part(previous, stop - previous);
    if (done > most_bytes || !normalize_part(form, part, most_bytes - done, buffer, appended)) return false;
    copied = previous = p = stop;
  }
  appended.append(copied, end);
  return true;
}

void lowercase_utf8(std::string_view in, std::string& appended) {
  for (const char *p = in.data(), *end = p + in.size(); p < end;) {
    const uint32_t c = next_code_point(p);
    if (c < 0x80) {
      appended += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    } else if (c == 0x130) {  // the only character whose lower case is two
      appended += "i\xCC\x87";
    } else if (const auto* range = find_range(newer_lowercase(), c)) {
      append_utf8(static_cast<uint32_t>(static_cast<int32_t>(c) + range->distance), appended);
    } else {
      append_utf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), appended);
    }
  }
}

}  // namespace choral::text
