#include "io/module_pattern.h"

#include <charconv>
#include <optional>

#include "base/check.h"
#include "base/pcre2.h"
#include "base/printable.h"

namespace choral::io {
namespace {

constexpr char kAnyCharacter = '\1';
constexpr uint32_t kHeapLimitKib = 16 * 1024;

bool is_module_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// The name a pattern without operators spells: letters, digits, '_', '-', '.' (any character) and "\.".
std::optional<std::string> plain_name(std::string_view pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (is_module_character(pattern[i])) {
      name += pattern[i];
    } else if (pattern[i] == '.') {
      name += kAnyCharacter;
    } else if (pattern[i] == '\\' && i + 1 < pattern.size() && pattern[i + 1] == '.') {
      name += '.';
      ++i;
    } else {
      return std::nullopt;
    }
  }
  return name;
}

bool spells(std::string_view plain, std::string_view name) {
  for (size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] != kAnyCharacter ? plain[i] != name[i] : name[i] == '\n') return false;
  }
  return true;
}

}  // namespace

struct ModulePattern::Code {
  Pcre2Ptr<pcre2_code> code;
};

Result<ModulePattern> ModulePattern::compile(std::string_view pattern, Mode mode, uint32_t steps) {
  if (pattern.size() > kMaxPatternBytes) {
    return too_large("pattern '{}' has {} bytes; {} are allowed", printable(pattern), pattern.size(), kMaxPatternBytes);
  }
  ModulePattern out;
  out.text_ = pattern;
  out.steps_ = steps;
  if (mode == Mode::kFull || mode == Mode::kSuffix) {
    // Under kSuffix "^name" is the whole name, since "(.*\.)?" then has to match nothing.
    std::string_view body = pattern;
    out.whole_ = mode == Mode::kFull;
    if (body.starts_with('^')) {
      body.remove_prefix(1);
      out.whole_ = true;
    }
    if (body.ends_with('$') && !body.ends_with("\\$")) body.remove_suffix(1);
    if (auto plain = plain_name(body)) {
      out.plain_ = std::move(*plain);
      return out;
    }
  }

  std::string wrapped;
  if (mode == Mode::kSuffix) wrapped = fmt::format("(.*\\.)?({})$", pattern);  // back references count both groups, as in PEFT
  if (mode == Mode::kLayer) wrapped = fmt::format(".*\\.{}\\.(\\d+)\\.", pattern);
  const std::string_view source = wrapped.empty() ? pattern : std::string_view(wrapped);

  Pcre2Ptr<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  CHORAL_CHECK(context, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  const uint32_t options =
      PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF | (mode == Mode::kFull ? PCRE2_ENDANCHORED : 0);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), options, &error, &offset, context.get()));
  if (!code->code) {
    return invalid_argument("pattern '{}' is no regular expression: {}", printable(pattern), pcre2_error_text(error));
  }
  out.code_ = std::move(code);
  return out;
}

Result<bool> ModulePattern::run(std::string_view name, std::string_view* group) const {
  Pcre2Ptr<pcre2_match_data> data(pcre2_match_data_create_from_pattern(code_->code.get(), nullptr));
  Pcre2Ptr<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  CHORAL_CHECK(data && context, "out of memory");
  pcre2_set_match_limit(context.get(), steps_);
  pcre2_set_depth_limit(context.get(), 10'000);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  const int rc =
      pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data.get(), context.get());
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    return too_large("pattern '{}' takes too much work on '{}': {}; write it without nested repetition", printable(text_),
                     printable(name), pcre2_error_text(rc));
  }
  if (group != nullptr) {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const uint32_t last = pcre2_get_ovector_count(data.get()) - 1;  // the pattern may bring groups of its own
    if (static_cast<uint32_t>(rc) <= last || bounds[2 * last] == PCRE2_UNSET) return false;
    *group = name.substr(bounds[2 * last], bounds[2 * last + 1] - bounds[2 * last]);
  }
  return true;
}

Result<bool> ModulePattern::matches(std::string_view name) const {
  if (code_) return run(name, nullptr);
  if (name.size() < plain_.size()) return false;
  const size_t begin = name.size() - plain_.size();
  if (begin != 0 && (whole_ || name[begin - 1] != '.')) return false;
  return spells(plain_, name.substr(begin));
}

Result<int64_t> ModulePattern::layer_of(std::string_view name) const {
  CHORAL_CHECK(code_, "layer_of() needs a pattern of kLayer");
  std::string_view digits;
  CHORAL_TRY(const bool found, run(name, &digits));
  int64_t layer = -1;
  if (!found) return int64_t{-1};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  return error == std::errc() ? layer : int64_t{-1};
}

}  // namespace choral::io
