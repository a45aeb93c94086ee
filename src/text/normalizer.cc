#include "text/normalizer.h"

#include <utility>

#include "text/byte_level.h"

namespace choral::text {
namespace {

size_t char_count(std::string_view s) {
  size_t n = 0;
  for (const char c : s) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

// SentencePiece's "nmt" rules: control characters go, odd spaces become spaces.
void nmt(std::string_view in, std::string& out) {
  for (const char *p = in.data(), *end = p + in.size(); p < end;) {
    const uint32_t c = next_code_point(p);
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) continue;
    const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
                       c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    append_utf8(space ? ' ' : c, out);
  }
}

std::string_view strip(std::string_view in, bool left, bool right) {
  if (left) {
    while (!in.empty()) {
      const char* p = in.data();
      if (!is_white_space(next_code_point(p))) break;
      in.remove_prefix(static_cast<size_t>(p - in.data()));
    }
  }
  while (right && !in.empty()) {
    size_t last = in.size() - 1;
    while ((static_cast<unsigned char>(in[last]) & 0xC0) == 0x80) --last;
    const char* p = in.data() + last;
    if (!is_white_space(next_code_point(p))) break;
    in = in.substr(0, last);
  }
  return in;
}

// A replacement at the very start keeps "at the start" only when it stands for the first character and nothing more.
bool start_after_replace(std::string_view matched, std::string_view content) {
  return !content.empty() && char_count(matched) <= 1;
}

}  // namespace

void replace_all(std::string_view in, std::string_view pattern, std::string_view content, std::string& appended) {
  size_t done = 0;
  for (size_t at; (at = in.find(pattern, done)) != std::string_view::npos; done = at + pattern.size()) {
    appended.append(in, done, at - done).append(content);
  }
  appended.append(in, done);
}

Status Normalizer::apply(std::string_view in, std::string& out, bool& at_start) const {
  using Kind = NormalizerStep::Kind;
  std::string current(in);
  for (const NormalizerStep& step : steps) {
    out.clear();
    switch (step.kind) {
      case Kind::kUnicode: normalize_utf8(step.form, current, out); break;
      case Kind::kLowercase: lowercase_utf8(current, out); break;
      case Kind::kNmt:
        nmt(current, out);
        if (!current.empty()) {
          const char* p = current.data();
          std::string first;
          next_code_point(p);
          nmt({current.data(), static_cast<size_t>(p - current.data())}, first);
          at_start &= !first.empty();
        }
        break;
      case Kind::kStripAccents:
        for (const char *p = current.data(), *end = p + current.size(); p < end;) {
          const char* from = p;
          const bool mark = is_mark(next_code_point(p));
          if (!mark) out.append(from, p);
          if (mark && from == current.data()) at_start = false;
        }
        break;
      case Kind::kPrepend:
        if (!current.empty()) out = step.content;
        out += current;
        break;
      case Kind::kReplaceString:
        if (current.starts_with(step.pattern)) at_start &= start_after_replace(step.pattern, step.content);
        replace_all(current, step.pattern, step.content, out);
        break;
      case Kind::kReplaceRegex: {
        size_t done = 0;
        CHORAL_RETURN_IF_ERROR(step.regex->find(current, [&](size_t begin, size_t end) {
          if (begin == 0 && end > 0) at_start &= start_after_replace({current.data(), end}, step.content);
          out.append(current, done, begin - done).append(step.content);
          done = end;
        }));
        out.append(current, done);
        break;
      }
      case Kind::kStrip: {
        const std::string_view kept = strip(current, step.left, step.right);
        if (kept.data() != current.data()) at_start = false;
        out = kept;
        break;
      }
      case Kind::kByteLevel: append_byte_chars(current, out); break;
    }
    std::swap(current, out);
  }
  out = std::move(current);
  return {};
}

}  // namespace choral::text
