#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/filters.h"
#include "text/jinja/globals.h"
#include "text/jinja/iterate.h"
#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/predicates.h"
#include "text/jinja/text_form.h"

namespace choral::text::jinja {

const Value* Scope::find(int name, uint64_t* looked_at) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    *looked_at += scope->variables.size();
    for (const auto& [id, value] : scope->variables)
      if (id == name) return &value;
  }
  return nullptr;
}

void Scope::set(int name, Value value) {
  for (auto& [id, old] : variables) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

ScopePtr inner_scope(const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

Status Interpreter::DepthGuard::check() const {
  if (interp_->depth_ <= interp_->limits_.max_eval_depth) return {};
  return too_large("evaluation is nested more than {} deep (max_eval_depth): does a macro call itself without end?",
                   interp_->limits_.max_eval_depth);
}

Interpreter::Interpreter(const Ast& ast, const RenderLimits& limits, std::optional<int64_t> now_unix_s)
    : ast_(ast),
      limits_(limits),
      now_unix_s_(now_unix_s),
      root_(std::make_shared<Scope>()),
      steps_left_(limits.max_steps),
      bytes_left_(limits.max_allocated_bytes) {
  for (const auto& [name, value] : global_functions()) define(name, value);
}

Interpreter::~Interpreter() {
  // Each is still held by kept_ while another lets go of it, so nothing is destroyed in deep recursion.
  for (const auto& object : kept_) {
    if (auto* space = dynamic_cast<Namespace*>(object.get())) space->clear();
    if (auto* loop = dynamic_cast<Loop*>(object.get())) loop->clear();
    if (auto* cycler = dynamic_cast<Cycler*>(object.get())) cycler->clear();
  }
  root_->variables.clear();
}

void Interpreter::define(std::string_view name, Value value) {
  const auto at = std::find(ast_.names.begin(), ast_.names.end(), name);
  if (at != ast_.names.end()) root_->set(static_cast<int>(at - ast_.names.begin()), std::move(value));
}

Status Interpreter::raise(std::string text) {
  raised_ = true;
  return invalid_argument("{}", text);
}

Status Interpreter::step(uint64_t n) {
  steps_left_ -= static_cast<int64_t>(std::min<uint64_t>(n, INT32_MAX));
  return steps_left_ >= 0 ? Status() : too_large("the template takes more than {} steps (max_steps)", limits_.max_steps);
}

Status Interpreter::allocated(uint64_t bytes) {
  bytes_left_ -= static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX / 4));
  if (bytes_left_ < 0)
    return too_large("the template makes more than {} bytes of values (max_allocated_bytes)", limits_.max_allocated_bytes);
  return step(bytes / 128);
}

Status Interpreter::compare_cost(const Value& a, const Value& b) {
  constexpr uint64_t kDictFactor = 4;  // entries of dicts are looked up, those of lists just met
  const uint64_t least = std::min(a.weight(), b.weight());
  return step(a.depth() > 0 || a.is_object() ? least * kDictFactor : least);
}

Status Interpreter::lookup_cost(const Value& key) {
  constexpr uint64_t kComparisons = 32;  // about twice the depth of a tree, or twice the length of a dict without one
  return step((key.weight() - 1) * kComparisons);
}

Status Interpreter::pay(bool linear, const Value& subject, const Arguments& args) {
  if (!linear) return step();
  const auto reading = [](const Value& value) { return value.is_string() ? 1 + value.str().size() / 8 : value.weight(); };
  uint64_t cost = reading(subject);
  for (const Value& value : args.positional) cost += reading(value);
  for (const auto& [name, value] : args.named) cost += 1 + name.size() / 8 + reading(value);
  return step(cost);
}

Status Interpreter::check_elements(uint64_t n) {
  return n <= limits_.max_elements
             ? Status()
             : too_large("a list or dict would hold more than {} elements (max_elements)", limits_.max_elements);
}

Status Interpreter::check_text(uint64_t bytes) {
  return bytes <= limits_.max_string_bytes
             ? Status()
             : too_large("a text would be longer than {} bytes (max_string_bytes)", limits_.max_string_bytes);
}

Result<Value> Interpreter::iterator(std::string_view type, Values items, Status error) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return object(std::make_shared<Iterator>(type, std::make_shared<const Values>(std::move(items)), depth, std::move(error)));
}

Result<std::string> Interpreter::render() {
  std::string out;
  CHORAL_RETURN_IF_ERROR(exec(ast_.body, root_, &out).status());
  return out;
}

// What an operation made is paid for after it was made; single operations check their own size before.
Result<Value> Interpreter::charged(Result<Value> made) {
  if (!made.ok()) return made;
  const Value& value = *made;
  uint64_t bytes = 0;
  if (value.is_string()) bytes = value.str().size();
  if (value.is_list() || value.is_tuple()) bytes = value.items().size() * sizeof(Value);
  if (value.is_dict()) bytes = value.dict().size() * 4 * sizeof(Value);
  if (const auto* iterator = value.object_as<Iterator>()) bytes = iterator->remaining() * sizeof(Value);
  CHORAL_RETURN_IF_ERROR(allocated(bytes));
  return made;
}

Result<Value> Interpreter::eval(const Expr& expr, const ScopePtr& scope) {
  if (expr.kind == ExprKind::kConst) return expr.constant;
  DepthGuard depth(this);
  Status status = depth.check();
  if (status.ok()) status = step();
  Result<Value> result = status.ok() ? eval_node(expr, scope) : Result<Value>(std::move(status));
  if (!result.ok() && error_line_ == 0) error_line_ = expr.line;
  return result;
}

Result<Value> Interpreter::eval_name(const Expr& expr, const ScopePtr& scope) {
  uint64_t looked_at = 0;
  const Value* found = scope->find(expr.name, &looked_at);
  CHORAL_RETURN_IF_ERROR(step(looked_at / 16));
  if (found != nullptr) return *found;
  return Value::undefined(fmt::format("{} is undefined", name_repr(ast_.names[expr.name])));
}

Result<Values> Interpreter::eval_all(const std::vector<ExprPtr>& exprs, const ScopePtr& scope) {
  Values out;
  out.reserve(exprs.size());
  for (const auto& expr : exprs) {
    CHORAL_TRY(Value value, eval(*expr, scope));
    out.push_back(std::move(value));
  }
  return out;
}

Result<Value> Interpreter::eval_node(const Expr& expr, const ScopePtr& scope) {
  switch (expr.kind) {
    case ExprKind::kConst: return expr.constant;
    case ExprKind::kName: return eval_name(expr, scope);
    case ExprKind::kTuple:
    case ExprKind::kList: {
      CHORAL_TRY(Values items, eval_all(expr.kids, scope));
      return charged(expr.kind == ExprKind::kList ? list(std::move(items)) : tuple(std::move(items)));
    }
    case ExprKind::kDict: return eval_dict(expr, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      CHORAL_TRY(Value left, eval(*expr.kids[0], scope));
      if (truth(left) == (expr.kind == ExprKind::kOr)) return left;
      return eval(*expr.kids[1], scope);
    }
    case ExprKind::kNot: {
      CHORAL_TRY(const Value operand, eval(*expr.kids[0], scope));
      return Value::boolean(!truth(operand));
    }
    case ExprKind::kNegate:
    case ExprKind::kPositive: {
      CHORAL_TRY(const Value operand, eval(*expr.kids[0], scope));
      return expr.kind == ExprKind::kNegate ? negate(operand) : positive(operand);
    }
    case ExprKind::kBinary: {
      CHORAL_TRY(const Value left, eval(*expr.kids[0], scope));
      CHORAL_TRY(const Value right, eval(*expr.kids[1], scope));
      return charged(binary(*this, expr.op, left, right));
    }
    case ExprKind::kConcat: {
      std::string out;
      for (const auto& kid : expr.kids) {
        CHORAL_TRY(const Value value, eval(*kid, scope));
        CHORAL_TRY(const std::string text, to_text(*this, value));
        CHORAL_RETURN_IF_ERROR(check_text(out.size() + text.size()));
        out += text;
      }
      return charged(Value::text(std::move(out)));
    }
    case ExprKind::kCompare: return eval_compare(expr, scope);
    case ExprKind::kConditional: return eval_conditional(expr, scope);
    case ExprKind::kAttribute: {
      CHORAL_TRY(const Value object, eval(*expr.kids[0], scope));
      return get_attribute(*this, object, expr.text);
    }
    case ExprKind::kItem: {
      CHORAL_TRY(const Value object, eval(*expr.kids[0], scope));
      if (expr.kids[1]->kind == ExprKind::kSlice) {
        CHORAL_TRY(const Value key, eval(*expr.kids[1], scope));
        return charged(get_slice(*this, object, key.items()[0], key.items()[1], key.items()[2]));
      }
      CHORAL_TRY(const Value key, eval(*expr.kids[1], scope));
      return get_item(*this, object, key);
    }
    case ExprKind::kSlice: return eval_slice(expr, scope);
    case ExprKind::kCall: return charged(eval_call(expr, scope, nullptr));
    case ExprKind::kFilter: return charged(eval_filter(expr, scope, nullptr));
    case ExprKind::kTest: return eval_test(expr, scope);
    case ExprKind::kNamespaceRef: break;
  }
  return internal_error("an assignment target was evaluated");
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

Result<Value> Interpreter::eval_conditional(const Expr& expr, const ScopePtr& scope) {
  CHORAL_TRY(const Value test, eval(*expr.kids[0], scope));
  if (truth(test)) return eval(*expr.kids[1], scope);
  if (expr.kids[2]) return eval(*expr.kids[2], scope);
  return Value::undefined(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.", expr.line));
}

Result<Value> Interpreter::eval_slice(const Expr& expr, const ScopePtr& scope) {
  Values parts;
  for (const auto& kid : expr.kids) {
    Value part = Value::none();
    if (kid) {
      CHORAL_TRY(part, eval(*kid, scope));
    }
    parts.push_back(std::move(part));
  }
  return tuple(std::move(parts));
}

Result<Arguments> Interpreter::eval_arguments(const CallArguments& arguments, const ScopePtr& scope) {
  Arguments out;
  CHORAL_TRY(out.positional, eval_all(arguments.positional, scope));
  for (const auto& [name, expr] : arguments.named) {
    CHORAL_TRY(Value value, eval(*expr, scope));
    CHORAL_RETURN_IF_ERROR(look(name.size()));
    out.named.emplace_back(name, std::move(value));
  }
  if (arguments.spread) {
    CHORAL_TRY(const Value rest, eval(*arguments.spread, scope));
    CHORAL_TRY(const auto items, elements_of(*this, rest));
    CHORAL_RETURN_IF_ERROR(step(items->size()));
    CHORAL_RETURN_IF_ERROR(allocated(items->size() * sizeof(Value)));
    out.positional.insert(out.positional.end(), items->begin(), items->end());
  }
  if (arguments.spread_named) {
    CHORAL_TRY(const Value rest, eval(*arguments.spread_named, scope));
    if (!rest.is_dict()) return invalid_argument("argument after ** must be a mapping, not {}", type_name(rest));
    std::vector<std::string_view> seen;
    for (const auto& entry : out.named) seen.push_back(entry.first);
    CHORAL_RETURN_IF_ERROR(step(rest.dict().size() * (1 + seen.size())));
    for (const auto& [key, value] : rest.dict().entries()) {
      if (!key.is_string()) return invalid_argument("keywords must be strings");
      if (std::find(seen.begin(), seen.end(), key.str()) != seen.end())
        return invalid_argument("got multiple values for keyword argument {}", name_repr(key.str()));
      CHORAL_RETURN_IF_ERROR(allocated(key.str().size() + 2 * sizeof(Value)));
      out.named.emplace_back(key.str(), value);
    }
  }
  return out;
}

Result<Value> Interpreter::call(const Value& callee, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(check_defined(callee));
  if (!callee.is_object()) return invalid_argument("'{}' object is not callable", type_name(callee));
  return callee.object()->call(*this, args);
}

Result<Value> Interpreter::eval_call(const Expr& expr, const ScopePtr& scope, const Value* caller) {
  const Expr& target = *expr.kids[0];
  if (target.kind == ExprKind::kAttribute && caller == nullptr) {
    // x.method(…) without making the bound method.
    CHORAL_TRY(const Value self, eval(*target.kids[0], scope));
    if (const Method* method = self.is_object() ? nullptr : find_method(self, target.text)) {
      CHORAL_TRY(Arguments args, eval_arguments(expr.arguments, scope));
      CHORAL_RETURN_IF_ERROR(pay(method->linear, self, args));
      return method->body(*this, self, args);
    }
    CHORAL_TRY(const Value callee, get_attribute(*this, self, target.text));
    CHORAL_TRY(Arguments args, eval_arguments(expr.arguments, scope));
    return call(callee, args);
  }
  CHORAL_TRY(const Value callee, eval(target, scope));
  CHORAL_TRY(Arguments args, eval_arguments(expr.arguments, scope));
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  return call(callee, args);
}

Result<Value> Interpreter::eval_filter(const Expr& expr, const ScopePtr& scope, const Value* subject) {
  Value value;
  if (subject != nullptr && (expr.kids.empty() || expr.kids[0] == nullptr)) {
    value = *subject;
  } else if (subject != nullptr) {
    CHORAL_TRY(value, eval_filter(*expr.kids[0], scope, subject));
  } else {
    CHORAL_TRY(value, eval(*expr.kids[0], scope));
  }
  if (expr.filter == nullptr) return invalid_argument("No filter named '{}' found.", expr.text);
  CHORAL_TRY(Arguments args, eval_arguments(expr.arguments, scope));
  CHORAL_RETURN_IF_ERROR(pay(expr.filter->linear, value, args));
  return expr.filter->body(*this, value, args);
}

Result<Value> Interpreter::eval_test(const Expr& expr, const ScopePtr& scope) {
  CHORAL_TRY(const Value value, eval(*expr.kids[0], scope));
  if (expr.test == nullptr) return invalid_argument("No test named '{}' found.", expr.text);
  CHORAL_TRY(Arguments args, eval_arguments(expr.arguments, scope));
  CHORAL_RETURN_IF_ERROR(pay(expr.test->linear, value, args));
  CHORAL_TRY(const bool holds, expr.test->body(*this, value, args));
  return Value::boolean(holds);
}

Result<Value> Interpreter::apply_filter(std::string_view name, const Value& subject, Arguments& args) {
  const FilterEntry* filter = find_filter(name);
  if (filter == nullptr) return invalid_argument("No filter named '{}'.", cut_name(name));
  DepthGuard depth(this);
  CHORAL_RETURN_IF_ERROR(depth.check());
  CHORAL_RETURN_IF_ERROR(pay(filter->linear, subject, args));
  return charged(filter->body(*this, subject, args));
}

Result<bool> Interpreter::apply_test(std::string_view name, const Value& subject, Arguments& args) {
  const TestEntry* test = find_predicate(name);
  if (test == nullptr) return invalid_argument("No test named '{}'.", cut_name(name));
  CHORAL_RETURN_IF_ERROR(pay(test->linear, subject, args));
  return test->body(*this, subject, args);
}

}  // namespace choral::text::jinja
