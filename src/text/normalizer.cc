#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "text/byte_level.h"
#include "text/find_text.h"

namespace choral::text {
namespace {

constexpr std::string_view kNormalizer = "the normalizer of the tokenizer";
constexpr uint64_t kStepsPerByte = 4;

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
      in.remove_prefix(p - in.data());
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

Status replace_all(std::string_view in, std::string_view pattern, std::string_view content, EncodeBudget& budget,
                   std::string_view stage, std::string& appended) {
  CHORAL_RETURN_IF_ERROR(budget.grow(in.size(), stage));
  size_t done = 0;
  for (size_t at; (at = find_text(in, pattern, done)) != std::string_view::npos; done = at + pattern.size()) {
    CHORAL_RETURN_IF_ERROR(budget.grow(content.size(), stage));
    appended.append(in, done, at - done).append(content);
  }
  appended.append(in, done);
  return {};
}

Status Normalizer::apply_step(const NormalizerStep& step, std::string_view in, EncodeBudget& budget, std::string& out,
                              bool& at_start) const {
  using Kind = NormalizerStep::Kind;
  out.clear();
  switch (step.kind) {
    case Kind::kUnicode:
      CHORAL_RETURN_IF_ERROR(budget.grow(in.size(), kNormalizer));
      if (!normalize_utf8(step.form, in, budget.growth_left(), out)) return budget.grow(EncodeBudget::kAnyNumber, kNormalizer);
      return budget.grow(out.size() - std::min(in.size(), out.size()), kNormalizer);
    case Kind::kReplaceString:
      if (in.starts_with(step.pattern)) at_start &= start_after_replace(step.pattern, step.content);
      return replace_all(in, step.pattern, step.content, budget, kNormalizer, out);
    case Kind::kReplaceRegex: {
      CHORAL_RETURN_IF_ERROR(budget.grow(in.size(), kNormalizer));
      size_t done = 0;
      CHORAL_RETURN_IF_ERROR(step.regex->find(in, budget, [&](size_t begin, size_t end) -> Status {
        CHORAL_RETURN_IF_ERROR(budget.grow(step.content.size(), kNormalizer));
        if (begin == 0 && end > 0) at_start &= start_after_replace({in.data(), end}, step.content);
        out.append(in, done, begin - done).append(step.content);
        done = end;
        return {};
      }));
      out.append(in, done);
      return {};
    }
    case Kind::kPrepend:
      CHORAL_RETURN_IF_ERROR(budget.grow(in.size() + step.content.size(), kNormalizer));
      if (!in.empty()) out = step.content;
      out += in;
      return {};
    default: break;
  }
  // The others write each character anew, as two at most.
  CHORAL_RETURN_IF_ERROR(budget.grow(2 * in.size(), kNormalizer));
  switch (step.kind) {
    case Kind::kLowercase: lowercase_utf8(in, out); break;
    case Kind::kNmt:
      nmt(in, out);
      if (!in.empty()) {
        const char* p = in.data();
        std::string first;
        next_code_point(p);
        nmt({in.data(), static_cast<size_t>(p - in.data())}, first);
        at_start &= !first.empty();
      }
      break;
    case Kind::kStripAccents:
      for (const char *p = in.data(), *end = p + in.size(); p < end;) {
        const char* from = p;
        const bool mark = is_mark(next_code_point(p));
        if (!mark) out.append(from, p);
        if (mark && from == in.data()) at_start = false;
      }
      break;
    case Kind::kStrip: {
      const std::string_view kept = strip(in, step.left, step.right);
      if (kept.data() != in.data()) at_start = false;
      out = kept;
      break;
    }
    default: append_byte_chars(in, out); break;  // kByteLevel
  }
  return {};
}

Status Normalizer::apply(std::string_view in, EncodeBudget& budget, std::string& out, bool& at_start) const {
  std::string current(in);
  for (const NormalizerStep& step : steps) {
    CHORAL_RETURN_IF_ERROR(budget.work(kStepsPerByte * current.size(), kNormalizer));
    CHORAL_RETURN_IF_ERROR(apply_step(step, current, budget, out, at_start));
    std::swap(current, out);
  }
  out = std::move(current);
  return {};
}

size_t Normalizer::most_shrinking() const {
  using Kind = NormalizerStep::Kind;
  constexpr size_t kOfUnicode = 4;  // a four-byte letter becomes ASCII (NFKC), or a letter and its marks become one
  size_t factor = 1;
  for (const NormalizerStep& step : steps) {
    switch (step.kind) {
      case Kind::kUnicode:
      case Kind::kLowercase: factor *= kOfUnicode; break;
      case Kind::kPrepend:
      case Kind::kByteLevel: break;
      case Kind::kReplaceString:
        if (step.content.size() < step.pattern.size()) return 0;
        break;
      default: return 0;
    }
    if (factor > 1 << 10) return 0;
  }
  return factor;
}

}  // namespace choral::text
