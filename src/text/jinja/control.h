// The `loop` of a for, and macros. A macro is a function of the template's own: parameters, defaults, and the scope it was
// defined in.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace choral::text::jinja {

// Position and neighbours. Elements are drawn one by one, because the loop's own test may depend on what the body has set.
class Loop final : public Object {
 public:
  // `known_length`: of the iterable, when it has one.
  Loop(Interpreter& interp, const Stmt& stmt, ScopePtr outer, std::shared_ptr<Series> source,
       std::optional<int64_t> known_length);
  Result<bool> advance();  // to the next element; false at the end
  const Value& current() const { return *current_; }
  void clear();  // at the end: a loop may be held by a namespace, and must not hold one
  int64_t index0() const { return index0_; }

  std::string_view type_name() const override { return "LoopContext"; }
  bool callable() const override { return true; }
  Result<std::optional<Value>> attribute(Interpreter& interp, std::string_view name) override;

 private:
  Result<std::optional<Value>> draw();
  Status peek();
  Result<int64_t> length();

  Interpreter& interp_;
  const Stmt& stmt_;
  ScopePtr outer_;
  std::shared_ptr<Series> source_;
  std::optional<int64_t> length_;
  int64_t index0_ = -1;
  std::optional<Value> before_, current_, after_;
  bool tested_;  // the source's elements need no test, or passed it
};

class Macro final : public Object {
 public:
  Macro(const Stmt& stmt, ScopePtr defined_in) : stmt_(stmt), defined_in_(std::move(defined_in)) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interp, Arguments& args) override;
  Result<std::optional<Value>> attribute(Interpreter& interp, std::string_view name) override;

 private:
  Status bind_parameters(Interpreter& interp, Arguments& args, const ScopePtr& scope) const;
  const Stmt& stmt_;
  ScopePtr defined_in_;
};

}  // namespace choral::text::jinja
