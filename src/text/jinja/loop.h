// The `loop` of a for: position, neighbours, cycle, changed, and the call of a recursive loop. Elements are drawn one by
// one, because the loop's own test may depend on what the body has set.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace choral::text::jinja {

class Loop final : public Object {
 public:
  using Accept = std::function<Result<bool>(const Value&)>;
  // `known_length`: of an iterable that has one and no test; otherwise it is found by reading ahead.
  Loop(std::shared_ptr<Iterator> source, Accept accept, std::optional<int64_t> known_length, const Stmt* stmt, ScopePtr outer,
       int depth);

  Result<bool> advance();  // to the next element; false at the end
  const Value& current() const { return *current_; }
  void clear();

  std::string_view type_name() const override { return "LoopContext"; }
  Result<std::string> repr(Interpreter& interp) const override;
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interp, Arguments& args) override;
  std::optional<Value> attribute(Interpreter& interp, std::string_view name) override;
  std::optional<int64_t> length() const override;

 private:
  Result<std::optional<Value>> draw() const;
  void peek() const;

  // Reading ahead does not change what the loop is, hence mutable.
  mutable std::shared_ptr<Iterator> source_;
  Accept accept_;
  mutable std::optional<int64_t> length_;
  const Stmt* stmt_;
  ScopePtr outer_;
  int depth_;
  int64_t index0_ = -1;
  std::optional<Value> before_, current_;
  mutable std::optional<Value> after_;
  mutable bool ended_ = false;
  mutable Status error_;  // met while reading ahead; told at the next step
  std::optional<Values> changed_;

  friend Result<Value> loop_cycle(Interpreter&, const Value& self, Arguments& args);
  friend Result<Value> loop_changed(Interpreter&, const Value& self, Arguments& args);
};

}  // namespace choral::text::jinja
