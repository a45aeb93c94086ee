#include "text/jinja/template.h"

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {

Result<Template> Template::parse(std::string_view source, const RenderLimits& limits) {
  if (source.size() > limits.max_template_bytes)
    return too_large("the template has {} bytes, more than {} (max_template_bytes)", source.size(), limits.max_template_bytes);
  if (!valid_utf8(source)) return corrupt("the template is not valid UTF-8");
  CHORAL_TRY(Ast ast, parse_template(source, limits));
  return Template(std::move(ast), limits);
}

Result<std::string> Template::render(std::vector<std::pair<std::string_view, Value>> variables, std::optional<int64_t> now_unix_s,
                                     RenderFailure* failure) const {
  Interpreter interpreter(ast_, limits_, now_unix_s);
  for (auto& [name, value] : variables) interpreter.define(name, std::move(value));
  Result<std::string> out = interpreter.render();
  if (out.ok()) return out;
  if (failure != nullptr) *failure = {out.status().message(), interpreter.error_line(), interpreter.raised()};
  return std::move(out).while_(fmt::format("line {}", interpreter.error_line()));
}

bool Template::mentions(std::string_view name) const {
  const auto found = std::find(ast_.names.begin(), ast_.names.end(), name);
  if (found == ast_.names.end()) return false;
  const auto index = static_cast<int>(found - ast_.names.begin());
  return index != kLoopName;  // that one is there in every template
}

}  // namespace choral::text::jinja
