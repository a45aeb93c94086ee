#include "text/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/pcre2.h"
#include "base/printable.h"
#include "text/onig_pattern.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr uint32_t kDepthLimit = 1'000'000;

}  // namespace

struct Regex::Code {
  Pcre2Ptr<pcre2_code> code;
  bool jit = false;
  size_t size = 0;    // bytes, compiled
  std::string shown;  // for messages, in quotes
};

Result<Regex> Regex::compile_pcre2(std::string_view pattern, std::string_view shown) {
  Pcre2Ptr<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  CHORAL_CHECK(context, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 250);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->shown = quoted(shown);
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                                 &error, &offset, context.get()));
  if (!code->code) {
    return unsupported("regex {} of the tokenizer does not compile: {} (at byte {} of {})", code->shown, pcre2_error_text(error),
                       offset, quoted(pattern));
  }
  pcre2_pattern_info(code->code.get(), PCRE2_INFO_SIZE, &code->size);
  code->jit = pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  return Regex(std::move(code));
}

Result<Regex> Regex::compile(std::string_view onig_pattern) {
  CHORAL_TRY(const std::string pattern, pcre2_from_onig(onig_pattern));
  return compile_pcre2(pattern, onig_pattern);
}

// One find(): what PCRE2 needs for it, and the calls.
class Regex::Search {
 public:
  Search(const Code& code, std::string_view subject)
      : code_(code),
        subject_(subject),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        price_(1 + code.size / kPatternBytesPerPrice) {
    CHORAL_CHECK(data_ && context_, "out of memory");
    pcre2_set_depth_limit(context_.get(), kDepthLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  // The first match that begins at `from` or behind it; PCRE2_ERROR_NOMATCH in `rc` when there is none. In the first window all
  // places are tried, in larger ones only that where the small one did not do.
  Status next(size_t from, EncodeBudget& budget, int& rc) {
    size_t allowed = kFirstWindow, tries = 0;  // bytes of the window, and work beyond what they explain
    for (size_t start = from;;) {
      const bool all_places = allowed == kFirstWindow && tries == 0;
      const size_t end = window_end(start, allowed);
      const bool whole = end == subject_.size();
      const size_t effort = std::max({end - start, tries, kFirstWindow});
      CHORAL_RETURN_IF_ERROR(pay(kCallPrice + (all_places ? std::min(end - start, kCallPrice) : effort), budget));
      rc = match(start, end, whole, all_places, effort);
      if (rc == PCRE2_ERROR_NOMATCH && !(whole && (all_places || start == end))) {
        CHORAL_RETURN_IF_ERROR(pay(kSkipPrice * (all_places ? end - start : 1), budget));
        start = all_places ? end : start + utf8_length(static_cast<unsigned char>(subject_[start]));
        allowed = kFirstWindow;
        tries = 0;
      } else if (rc == PCRE2_ERROR_PARTIAL) {
        start = std::max(start, begin());  // where it looked past the window's end
        allowed = std::min(allowed * kGrowth, kMostAllowed);
      } else if (rc == PCRE2_ERROR_MATCHLIMIT) {
        tries = std::min(effort * kGrowth, kMostAllowed);
      } else {
        if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
          return pay(kSkipPrice * (std::max(rc >= 0 ? begin() : end, start) - start), budget);
        return corrupt(
            "regex {} of the tokenizer gives up on a text of {} bytes: {}; give another with --tokenizer, or a shorter text",
            code_.shown, subject_.size(), pcre2_error_text(rc));
      }
    }
  }
  size_t begin() const { return pcre2_get_ovector_pointer(data_.get())[0]; }
  size_t end() const { return pcre2_get_ovector_pointer(data_.get())[1]; }

 private:
  static constexpr size_t kFirstWindow = 64;  // bytes; words and the character behind them are shorter
  static constexpr size_t kGrowth = 2;
  static constexpr size_t kMostAllowed = size_t{1} << 30;
  static constexpr size_t kCallPrice = 32;               // steps; about what a call takes
  static constexpr size_t kSkipPrice = 16;               // for each place where a match was tried and did not begin
  static constexpr size_t kPatternBytesPerPrice = 4096;  // compiled; patterns of real tokenizers have 200 to 3000

  size_t window_end(size_t start, size_t allowed) const {
    if (allowed >= subject_.size() - start) return subject_.size();
    size_t end = start + allowed;
    while ((static_cast<unsigned char>(subject_[end]) & 0xC0) == 0x80) --end;  // whole characters
    return end;
  }

  int match(size_t start, size_t end, bool whole, bool all_places, size_t effort) {
    pcre2_set_offset_limit(context_.get(), all_places ? PCRE2_UNSET : start);
    pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(kTriesPerByte * effort));
    const auto* text = reinterpret_cast<PCRE2_SPTR>(subject_.data());
    const uint32_t partial = whole ? 0 : PCRE2_PARTIAL_HARD;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_.jit) rc = pcre2_jit_match(code_.code.get(), text, end, start, partial, data_.get(), context_.get());
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
    // The interpreter keeps its frames on the heap.
    return pcre2_match(code_.code.get(), text, end, start, partial | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data_.get(),
                       context_.get());
  }

  Status pay(uint64_t steps, EncodeBudget& budget) const {
    Status status = budget.work(price_ * steps, "a regex of the tokenizer");
    if (status.ok()) return status;
    return std::move(status).while_(fmt::format("regex {}", code_.shown));
  }

  static constexpr size_t kTriesPerByte = 2;
  const Code& code_;
  const std::string_view subject_;
  Pcre2Ptr<pcre2_match_data> data_;
  Pcre2Ptr<pcre2_match_context> context_;
  const size_t price_;
};

Status Regex::find(std::string_view subject, EncodeBudget& budget, FunctionRef<Status(size_t, size_t)> found) const {
  Search search(*code_, subject);
  size_t from = 0;
  size_t last_end = SIZE_MAX;
  while (from <= subject.size()) {
    int rc = 0;
    CHORAL_RETURN_IF_ERROR(search.next(from, budget, rc));
    if (rc == PCRE2_ERROR_NOMATCH) return {};
    const size_t begin = search.begin(), end = search.end();
    if (begin >= end && end == last_end) {
      if (from >= subject.size()) return {};
      from += utf8_length(static_cast<unsigned char>(subject[from]));
      continue;
    }
    from = last_end = end;
    CHORAL_RETURN_IF_ERROR(found(begin, end));
  }
  return {};
}

}  // namespace choral::text
