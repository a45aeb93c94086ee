// A macro or the caller() of a call block: parameters bound as Jinja binds them, body run in a scope inside the one that
// it was defined in. The result is text.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace choral::text::jinja {

class Macro final : public Object {
 public:
  Macro(const Stmt* stmt, ScopePtr defined_in) : stmt_(stmt), defined_in_(std::move(defined_in)) {}
  std::string_view type_name() const override { return "Macro"; }
  Result<std::string> repr(Interpreter& interp) const override;
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interp, Arguments& args) override;
  std::optional<Value> attribute(Interpreter& interp, std::string_view name) override;

 private:
  Status bind_parameters(Interpreter& interp, Arguments& args, const ScopePtr& scope) const;
  const Stmt* stmt_;
  ScopePtr defined_in_;
};

}  // namespace choral::text::jinja
