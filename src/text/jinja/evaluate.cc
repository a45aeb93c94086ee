// The expressions of the interpreter.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace choral::text::jinja {

// What an operation made is paid for after it was made; single operations check their own size before.
Result<Value> Interpreter::charged(Result<Value> made) {
  if (!made.ok()) return made;
  const Value& value = *made;
  uint64_t bytes = 0;
  if (value.is_string()) bytes = value.str().size();
  if (value.is_sequence()) bytes = value.items().size() * sizeof(Value);
  if (value.is_dict()) bytes = value.dict().size() * 4 * sizeof(Value);
  if (const auto* series = value.object_as<Series>()) bytes = series->left() * sizeof(Value);
  CHORAL_RETURN_IF_ERROR(allocated(bytes));
  return made;
}

Result<Value> Interpreter::eval(const Expr& expr, const ScopePtr& scope) {
  if (expr.kind == ExprKind::kConst) return expr.constant;
  const Nesting nesting = nested();
  Status status = check_depth();
  if (status.ok()) status = step();
  Result<Value> result = status.ok() ? eval_node(expr, scope) : Result<Value>(std::move(status));
  if (!result.ok() && error_line_ == 0) error_line_ = expr.line;
  return result;
}

Result<Value> Interpreter::eval_node(const Expr& expr, const ScopePtr& scope) {
  switch (expr.kind) {
    case ExprKind::kName: return eval_name(expr, scope);
    case ExprKind::kDict: return eval_dict(expr, scope);
    case ExprKind::kConcat: return eval_concat(expr, scope);
    case ExprKind::kCompare: return eval_compare(expr, scope);
    case ExprKind::kConditional: {
      CHORAL_TRY(const Value test, eval(*expr.kids[0], scope));
      if (truth(test)) return eval(*expr.kids[1], scope);
      if (expr.kids[2]) return eval(*expr.kids[2], scope);
      return Value::undefined(
          fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.", expr.line));
    }
    case ExprKind::kCall: return charged(eval_call(expr, scope));
    case ExprKind::kFilter: return charged(eval_builtin(expr, scope, nullptr));
    case ExprKind::kTest: return eval_builtin(expr, scope, nullptr);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      CHORAL_TRY(Value left, eval(*expr.kids[0], scope));
      if (truth(left) == (expr.kind == ExprKind::kOr)) return left;
      return eval(*expr.kids[1], scope);
    }
    case ExprKind::kConst:
    case ExprKind::kNamespaceRef: return internal_error("an expression of no value was evaluated");
    default: break;
  }
  // The others are made of the values of all their operands.
  CHORAL_TRY(Values kids, eval_all(expr.kids, scope));
  switch (expr.kind) {
    case ExprKind::kTuple: return charged(tuple(std::move(kids)));
    case ExprKind::kList: return charged(list(std::move(kids)));
    case ExprKind::kNot: return Value::boolean(!truth(kids[0]));
    case ExprKind::kNegate: return negate(kids[0]);
    case ExprKind::kBinary: return charged(binary(*this, expr.op, kids[0], kids[1]));
    case ExprKind::kAttribute: return get_attribute(*this, kids[0], expr.text);
    case ExprKind::kItem: return get_item(*this, kids[0], kids[1]);
    default: return charged(get_slice(*this, kids[0], kids[1], kids[2], kids[3]));
  }
}

Result<Value> Interpreter::eval_name(const Expr& expr, const ScopePtr& scope) {
  uint64_t looked_at = 0;
  const Value* found = scope->find(expr.name, &looked_at);
  CHORAL_RETURN_IF_ERROR(step(looked_at / 16));
  if (found != nullptr) return *found;
  const std::string& name = ast_.names[expr.name];
  if (name == "self") return unsupported("the variable 'self' is not supported: chat templates have no blocks");
  return Value::undefined(fmt::format("{} is undefined", name_repr(name)));
}

Result<Values> Interpreter::eval_all(const std::vector<ExprPtr>& exprs, const ScopePtr& scope) {
  Values out;
  out.reserve(exprs.size());
  for (const auto& expr : exprs) {
    Value value = Value::none();
    if (expr) {
      CHORAL_TRY(value, eval(*expr, scope));
    }
    out.push_back(std::move(value));
  }
  return out;
}

Result<Value> Interpreter::eval_dict(const Expr& expr, const ScopePtr& scope) {
  Dict entries;
  for (size_t i = 0; i + 1 < expr.kids.size(); i += 2) {
    CHORAL_TRY(Value key, eval(*expr.kids[i], scope));
    CHORAL_TRY(Value value, eval(*expr.kids[i + 1], scope));
    CHORAL_RETURN_IF_ERROR(lookup_cost(key));
    if (!hashable(key)) return invalid_argument("unhashable type: '{}'", type_name(key));
    entries.set(std::move(key), std::move(value));
  }
  return charged(dict(std::move(entries)));
}

Result<Value> Interpreter::eval_concat(const Expr& expr, const ScopePtr& scope) {
  std::string out;
  for (const auto& kid : expr.kids) {
    CHORAL_TRY(const Value value, eval(*kid, scope));
    CHORAL_TRY(const std::string text, to_text(*this, value));
    CHORAL_RETURN_IF_ERROR(check_text(out.size() + text.size()));
    out += text;
  }
  return charged(Value::text(std::move(out)));
}

Result<Value> Interpreter::eval_compare(const Expr& expr, const ScopePtr& scope) {
  CHORAL_TRY(Value left, eval(*expr.kids[0], scope));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    CHORAL_TRY(Value right, eval(*expr.kids[i + 1], scope));
    CHORAL_TRY(const bool holds, compare(*this, expr.ops[i], left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Arguments> Interpreter::eval_arguments(const Expr& call, const ScopePtr& scope) {
  Arguments out;
  CHORAL_TRY(out.positional, eval_all(call.positional, scope));
  for (const auto& [name, expr] : call.named) {
    CHORAL_TRY(Value value, eval(*expr, scope));
    CHORAL_RETURN_IF_ERROR(look(name.size()));
    out.named.emplace_back(name, std::move(value));
  }
  if (call.spread == nullptr) return out;
  CHORAL_TRY(const Value spread, eval(*call.spread, scope));
  CHORAL_TRY(const Value rest, elements_of(*this, spread));
  CHORAL_RETURN_IF_ERROR(step(rest.items().size()));
  CHORAL_RETURN_IF_ERROR(allocated(rest.items().size() * sizeof(Value)));
  out.positional.insert(out.positional.end(), rest.items().begin(), rest.items().end());
  return out;
}

Result<Value> Interpreter::eval_call(const Expr& expr, const ScopePtr& scope) {
  const Expr& target = *expr.kids[0];
  Value callee;
  if (target.kind == ExprKind::kAttribute) {
    CHORAL_TRY(const Value self, eval(*target.kids[0], scope));
    if (const Builtin* method = find_builtin(methods(self.kind()), target.text)) {  // without making the bound method
      CHORAL_TRY(Arguments args, eval_arguments(expr, scope));
      return invoke(*this, *method, self, args);
    }
    CHORAL_TRY(callee, get_attribute(*this, self, target.text));
  } else {
    CHORAL_TRY(callee, eval(target, scope));
  }
  CHORAL_TRY(Arguments args, eval_arguments(expr, scope));
  CHORAL_RETURN_IF_ERROR(check_defined(callee));
  if (!callee.is_object()) return invalid_argument("'{}' object is not callable", type_name(callee));
  return callee.object()->call(*this, args);
}

Result<Value> Interpreter::eval_builtin(const Expr& expr, const ScopePtr& scope, const Value* block) {
  Value subject;
  if (block == nullptr) {
    CHORAL_TRY(subject, eval(*expr.kids[0], scope));
  } else if (expr.kids[0] == nullptr) {
    subject = *block;
  } else {
    CHORAL_TRY(subject, eval_builtin(*expr.kids[0], scope, block));
  }
  if (expr.builtin == nullptr) return no_builtin(expr.kind == ExprKind::kFilter ? "filter" : "test", expr.text, " found");
  CHORAL_TRY(Arguments args, eval_arguments(expr, scope));
  return invoke(*this, *expr.builtin, subject, args);
}

Result<Value> Interpreter::apply(std::string_view kind, std::string_view name, const Value& subject, Arguments& args) {
  const Builtin* builtin = find_builtin(kind == "filter" ? filters() : tests(), name);
  if (builtin == nullptr) return no_builtin(kind, cut_name(name));
  const Nesting nesting = nested();
  CHORAL_RETURN_IF_ERROR(check_depth());
  return charged(invoke(*this, *builtin, subject, args));
}

}  // namespace choral::text::jinja
