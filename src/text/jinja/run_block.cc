#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/loop.h"
#include "text/jinja/macro.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_form.h"

namespace choral::text::jinja {

using Flow = Interpreter::Flow;

Status Interpreter::append(std::string_view text, std::string* out) {
  CHORAL_RETURN_IF_ERROR(check_text(out->size() + text.size()));
  CHORAL_RETURN_IF_ERROR(allocated(text.size()));
  out->append(text);
  return {};
}

Result<Flow> Interpreter::exec(const Body& body, const ScopePtr& scope, std::string* out) {
  for (const auto& stmt : body) {
    DepthGuard depth(this);
    Status status = depth.check();
    if (status.ok()) status = step();
    Result<Flow> flow = status.ok() ? exec_stmt(*stmt, scope, out) : Result<Flow>(std::move(status));
    if (!flow.ok() && error_line_ == 0) error_line_ = stmt->line;
    if (!flow.ok() || *flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Flow> Interpreter::exec_stmt(const Stmt& stmt, const ScopePtr& scope, std::string* out) {
  switch (stmt.kind) {
    case StmtKind::kOutput: CHORAL_RETURN_IF_ERROR(exec_output(stmt, scope, out)); return Flow::kNormal;
    case StmtKind::kIf: return exec_if(stmt, scope, out);
    case StmtKind::kFor: return exec_for(stmt, scope, out);
    case StmtKind::kSet: {
      CHORAL_TRY(Value value, eval(*stmt.expr, scope));
      CHORAL_RETURN_IF_ERROR(assign(*stmt.target, std::move(value), scope));
      return Flow::kNormal;
    }
    case StmtKind::kMacro:
      CHORAL_RETURN_IF_ERROR(step(scope->variables.size() / 16));
      scope->set(stmt.name, make_macro(stmt, scope));
      return Flow::kNormal;
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
    case StmtKind::kCallBlock: {
      const Value caller = make_macro(stmt, scope);
      Result<Value> result = charged(eval_call(*stmt.expr, scope, &caller));
      CHORAL_RETURN_IF_ERROR(result.status());
      CHORAL_TRY(const std::string text, to_text(*this, *result));
      CHORAL_RETURN_IF_ERROR(append(text, out));
      return Flow::kNormal;
    }
    default: return exec_block_kind(stmt, scope, out);
  }
}

Value Interpreter::make_macro(const Stmt& stmt, const ScopePtr& scope) {
  return Value::object(std::make_shared<Macro>(&stmt, scope));
}

Status Interpreter::exec_output(const Stmt& stmt, const ScopePtr& scope, std::string* out) {
  if (stmt.expr == nullptr) return append(stmt.data, out);
  CHORAL_TRY(const Value value, eval(*stmt.expr, scope));
  if (value.is_string()) return append(value.str(), out);
  CHORAL_TRY(const std::string text, to_text(*this, value));
  return append(text, out);
}

Result<Flow> Interpreter::exec_if(const Stmt& stmt, const ScopePtr& scope, std::string* out) {
  for (const auto& [test, body] : stmt.branches) {
    CHORAL_TRY(const Value value, eval(*test, scope));
    if (truth(value)) return exec(body, scope, out);
  }
  return exec(stmt.else_body, scope, out);
}

// The kinds whose body has a scope of its own.
Result<Flow> Interpreter::exec_block_kind(const Stmt& stmt, const ScopePtr& scope, std::string* out) {
  const ScopePtr inner = inner_scope(scope);
  Result<Flow> flow = Flow::kNormal;
  if (stmt.kind == StmtKind::kScope || stmt.kind == StmtKind::kWith) {
    Status status;
    for (const auto& [target, expr] : stmt.bindings) {
      Result<Value> value = eval(*expr, scope);
      status = value.ok() ? assign(*target, *std::move(value), inner) : std::move(value).status();
      if (!status.ok()) break;
    }
    flow = status.ok() ? exec(stmt.body, inner, out) : Result<Flow>(std::move(status));
    inner->variables.clear();
    return flow;
  }
  std::string text;
  flow = exec(stmt.body, inner, &text);
  if (flow.ok() && *flow == Flow::kNormal) {
    Result<Value> value = Value::text(std::move(text));
    if (stmt.expr) {
      const Value captured = *std::move(value);
      value = charged(eval_filter(*stmt.expr, inner, &captured));
    }
    Status status = value.status();
    if (status.ok() && stmt.kind == StmtKind::kSetBlock) {
      status = assign(*stmt.target, *std::move(value), scope);
    } else if (status.ok()) {
      status = value->is_string() ? append(value->str(), out)
                                  : invalid_argument("a filter block must give str, not {}", type_name(*value));
    }
    if (!status.ok()) flow = std::move(status);
  }
  inner->variables.clear();
  return flow;
}

Status Interpreter::assign(const Expr& target, Value value, const ScopePtr& scope) {
  if (target.kind == ExprKind::kName) {
    CHORAL_RETURN_IF_ERROR(step(scope->variables.size() / 16));
    return scope->set(target.name, std::move(value)), Status();
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    uint64_t looked_at = 0;
    const Value* found = scope->find(target.name, &looked_at);
    CHORAL_RETURN_IF_ERROR(step(looked_at / 16));
    auto* space = found != nullptr ? found->object_as<Namespace>() : nullptr;
    if (space == nullptr) return invalid_argument("cannot assign attribute on non-namespace object");
    CHORAL_RETURN_IF_ERROR(walk(target.text.size()));
    if (!space->has(target.text)) CHORAL_RETURN_IF_ERROR(allocated(Namespace::kEntryBytes));
    space->set(target.text, std::move(value));
    return {};
  }
  if (!is_iterable(value)) return invalid_argument("cannot unpack non-iterable {} object", type_name(value));
  CHORAL_TRY(const auto items, elements_of(*this, value));
  const size_t wanted = target.kids.size();
  if (items->size() < wanted) return invalid_argument("not enough values to unpack (expected {}, got {})", wanted, items->size());
  if (items->size() > wanted) return invalid_argument("too many values to unpack (expected {})", wanted);
  for (size_t i = 0; i < wanted; ++i) CHORAL_RETURN_IF_ERROR(assign(*target.kids[i], (*items)[i], scope));
  return {};
}

Result<Flow> Interpreter::exec_for(const Stmt& stmt, const ScopePtr& scope, std::string* out) {
  CHORAL_TRY(const Value iterable, eval(*stmt.expr, scope));
  Flow flow = Flow::kNormal;
  CHORAL_RETURN_IF_ERROR(loop_over(stmt, iterable, 0, scope, out, &flow));
  return flow;
}

Status Interpreter::loop_over(const Stmt& stmt, const Value& iterable, int depth, const ScopePtr& outer, std::string* out,
                              Flow* flow) {
  DepthGuard guard(this);
  CHORAL_RETURN_IF_ERROR(guard.check());
  CHORAL_TRY(auto source, iterate(*this, iterable));
  Loop::Accept accept;
  if (stmt.test) {
    accept = [this, &stmt, outer](const Value& value) -> Result<bool> {
      const ScopePtr scope = inner_scope(outer);
      CHORAL_RETURN_IF_ERROR(assign(*stmt.target, value, scope));
      CHORAL_TRY(const Value holds, eval(*stmt.test, scope));
      return truth(holds);
    };
  }
  const auto loop = std::make_shared<Loop>(std::move(source), std::move(accept), stmt.test ? std::nullopt : length_of(iterable),
                                           &stmt, outer, depth);
  const ScopePtr scope = inner_scope(outer);
  const auto run = [&]() -> Status {
    bool to_the_end = false;  // of the body at least once: Jinja's condition for skipping else, odd as it is
    while (true) {
      CHORAL_TRY(const bool more, loop->advance());
      if (!more) break;
      scope->variables.clear();
      scope->set(ast_.loop_name, Value::object(loop));
      CHORAL_RETURN_IF_ERROR(assign(*stmt.target, loop->current(), scope));
      CHORAL_TRY(const Flow step_flow, exec(stmt.body, scope, out));
      if (step_flow == Flow::kBreak) break;
      if (step_flow == Flow::kNormal) to_the_end = true;
    }
    if (!to_the_end && !stmt.else_body.empty()) {
      scope->variables.clear();
      CHORAL_TRY(*flow, exec(stmt.else_body, scope, out));
    }
    return {};
  };
  Status status = run();
  scope->variables.clear();
  loop->clear();
  return status;
}

}  // namespace choral::text::jinja
