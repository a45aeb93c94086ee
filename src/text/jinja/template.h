// A parsed template, ready to be rendered by many threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"

namespace choral::text::jinja {

struct RenderFailure {
  std::string text;  // the error's own words
  int line = 0;
  bool raised = false;  // by raise_exception
};

class Template {
 public:
  static Result<Template> parse(std::string_view source, const RenderLimits& limits);

  // The error's message has the line in front; `failure`, when given, has the parts.
  Result<std::string> render(std::vector<std::pair<std::string_view, Value>> variables, std::optional<int64_t> now_unix_s,
                             RenderFailure* failure) const;
  const RenderLimits& limits() const { return limits_; }
  bool mentions(std::string_view name) const;

 private:
  Template(Ast ast, const RenderLimits& limits) : ast_(std::move(ast)), limits_(limits) {}
  Ast ast_;
  RenderLimits limits_;
};

}  // namespace choral::text::jinja
