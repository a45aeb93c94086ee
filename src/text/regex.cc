#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "text/onig_pattern.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

struct Pcre2Free {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
template <class T>
using Pcre2Ptr = std::unique_ptr<T, Pcre2Free>;

constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr uint32_t kDepthLimit = 1'000'000;
// Work allowed for one match: a pattern over a run of n characters may walk it a few times, a pathological one may not.
uint32_t match_limit(size_t subject) { return static_cast<uint32_t>(std::min<size_t>(1'000'000 + 64 * subject, 1u << 31)); }

std::string error_text(int code) {
  unsigned char buffer[256];
  const int n = pcre2_get_error_message(code, buffer, sizeof buffer);
  return n > 0 ? std::string(reinterpret_cast<char*>(buffer), static_cast<size_t>(n)) : "error " + std::to_string(code);
}

}  // namespace

struct Regex::Code {
  Pcre2Ptr<pcre2_code> code;
  bool jit = false;
  std::string shown;  // for messages
};

Result<Regex> Regex::compile_pcre2(std::string_view pattern, std::string_view shown) {
  Pcre2Ptr<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  CHORAL_CHECK(context, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 250);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->shown = std::string(shown.substr(0, 200));
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                 context.get()));
  if (!code->code) {
    return unsupported("regex {:?} of the tokenizer does not compile: {} (at byte {} of {:?})", code->shown, error_text(error),
                       offset, pattern.substr(0, 200));
  }
  code->jit = pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(code));
}

Result<Regex> Regex::compile(std::string_view onig_pattern) {
  CHORAL_TRY(const std::string pattern, pcre2_from_onig(onig_pattern));
  return compile_pcre2(pattern, onig_pattern);
}

Result<Regex> Regex::compile_literal(std::string_view text) { return compile_pcre2(quote_pcre2(text), text); }

Status Regex::find(std::string_view subject, FunctionRef<void(size_t, size_t)> found) const {
  Pcre2Ptr<pcre2_match_data> data(pcre2_match_data_create(1, nullptr));
  Pcre2Ptr<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  CHORAL_CHECK(data && context, "out of memory");
  pcre2_set_match_limit(context.get(), match_limit(subject.size()));
  pcre2_set_depth_limit(context.get(), kDepthLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);

  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  size_t from = 0;
  size_t last_end = SIZE_MAX;
  while (from <= subject.size()) {
    int rc = code_->jit
                 ? pcre2_jit_match(code_->code.get(), text, subject.size(), from, 0, data.get(), context.get())
                 : pcre2_match(code_->code.get(), text, subject.size(), from, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its frames on the heap
      rc = pcre2_match(code_->code.get(), text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(),
                       context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) return {};
    if (rc < 0) {
      return too_large("regex {:?} of the tokenizer gives up on a text of {} bytes: {}", code_->shown, subject.size(),
                       error_text(rc));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const size_t begin = bounds[0], end = bounds[1];
    if (begin >= end && end == last_end) {
      if (from >= subject.size()) return {};
      from += utf8_length(static_cast<unsigned char>(subject[from]));
      continue;
    }
    from = last_end = end;
    found(begin, end);
  }
  return {};
}

}  // namespace choral::text
