// A Python regular expression over module names, as PEFT's and quantisers' configurations hold them, run by PCRE2 with bounded
// work. Patterns are hostile: a match that needs more than its steps is an error, never a long wait. Patterns that are plain
// names with dots (nearly all) are matched without PCRE2. Immutable and cheap to copy; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::io {

class ModulePattern {
 public:
  enum class Mode {
    kFull,    // re.fullmatch(pattern, name): target_modules and exclude_modules as strings
    kMatch,   // re.match(pattern, name): targets and ignore of compressed-tensors
    kSuffix,  // re.match("(.*\.)?(pattern)$", name): keys of rank_pattern and alpha_pattern
    kLayer,   // re.match(".*\.pattern\.(\d+)\.", name): layers_pattern; layer_of() gives the number
  };
  static constexpr size_t kMaxPatternBytes = 8192;

  // `steps` bounds the work of one match (PCRE2's match limit).
  static Result<ModulePattern> compile(std::string_view pattern, Mode mode, uint32_t steps = 1'000'000);

  Result<bool> matches(std::string_view name) const;
  // kLayer only: the layer's index, -1 when the name does not match.
  Result<int64_t> layer_of(std::string_view name) const;
  const std::string& text() const { return text_; }
  bool is_plain() const { return code_ == nullptr; }

 private:
  struct Code;
  ModulePattern() = default;
  Result<bool> run(std::string_view name, std::string_view* group) const;

  std::string text_;
  std::string plain_;   // for plain patterns: the name to find, '\1' standing for any character
  bool whole_ = false;  // the plain name must be all of the module's name
  std::shared_ptr<const Code> code_;
  uint32_t steps_ = 0;
};

}  // namespace choral::io
