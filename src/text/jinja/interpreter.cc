// The counters, the scopes and the statements; expressions are in evaluate.cc.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/control.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace choral::text::jinja {

using Flow = Interpreter::Flow;

const Value* Scope::find(int name, uint64_t* looked_at) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    *looked_at += scope->variables.size();
    for (const auto& [id, value] : scope->variables)
      if (id == name) return &value;
  }
  return nullptr;
}

void Scope::set(int name, Value value) {
  const auto at = std::find_if(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; });
  if (at != variables.end()) {
    at->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

ScopePtr inner_scope(const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

Status Interpreter::check_depth() const {
  if (depth_ <= limits_.max_eval_depth) return {};
  return too_large("evaluation is nested more than {} deep (max_eval_depth): does a macro call itself without end?",
                   limits_.max_eval_depth);
}

Interpreter::Interpreter(const Ast& ast, const RenderLimits& limits, std::optional<int64_t> now_unix_s)
    : ast_(ast),
      limits_(limits),
      now_unix_s_(now_unix_s),
      root_(std::make_shared<Scope>()),
      steps_left_(limits.max_steps),
      bytes_left_(limits.max_allocated_bytes) {
  for (const Builtin& function : globals())
    define(function.name, Value::object(std::make_shared<Function>(&function, Value::none(), false)));
}

Interpreter::~Interpreter() {
  // Each is still held by kept_ while another lets go of it, so nothing is destroyed in deep recursion.
  for (const auto& space : kept_) space->clear();
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
  if (n <= limits_.max_elements) return {};
  return too_large("a list or dict would hold more than {} elements (max_elements)", limits_.max_elements);
}

Status Interpreter::check_text(uint64_t bytes) {
  if (bytes <= limits_.max_string_bytes) return {};
  return too_large("a text would be longer than {} bytes (max_string_bytes)", limits_.max_string_bytes);
}

Result<Value> Interpreter::iterator(Values items) {
  CHORAL_TRY(Value elements, list(std::move(items)));
  return object(std::make_shared<Series>(Series::Type::kIterator, std::move(elements)));
}

Result<Value> Interpreter::view(const Value& dict, Series::Type type) {
  CHORAL_RETURN_IF_ERROR(allocated(dict.dict().size() * (type == Series::Type::kItems ? 5 : 1) * sizeof(Value)));
  Values items;
  for (const auto& [key, value] : dict.dict().entries()) {
    if (type == Series::Type::kItems) {
      CHORAL_TRY(Value pair, tuple({key, value}));
      items.push_back(std::move(pair));
    } else {
      items.push_back(type == Series::Type::kKeys ? key : value);
    }
  }
  CHORAL_TRY(Value elements, list(std::move(items)));
  return object(std::make_shared<Series>(type, std::move(elements), dict));
}

Value Interpreter::make_namespace(Dict attributes) {
  kept_.push_back(std::make_shared<Namespace>(std::move(attributes)));
  return Value::object(kept_.back());
}

Result<std::string> Interpreter::render() {
  std::string out;
  CHORAL_RETURN_IF_ERROR(exec(ast_.body, root_, &out).status());
  return out;
}

Status Interpreter::append(std::string_view text, std::string* out) {
  CHORAL_RETURN_IF_ERROR(check_text(out->size() + text.size()));
  CHORAL_RETURN_IF_ERROR(allocated(text.size()));
  out->append(text);
  return {};
}

Result<Flow> Interpreter::exec(const Body& body, const ScopePtr& scope, std::string* out) {
  for (const auto& stmt : body) {
    const Nesting nesting = nested();
    Status status = check_depth();
    if (status.ok()) status = step();
    Result<Flow> flow = status.ok() ? exec_stmt(*stmt, scope, out) : Result<Flow>(std::move(status));
    if (!flow.ok() && error_line_ == 0) error_line_ = stmt->line;
    if (!flow.ok() || *flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Flow> Interpreter::exec_stmt(const Stmt& stmt, const ScopePtr& scope, std::string* out) {
  switch (stmt.kind) {
    case StmtKind::kOutput: {
      if (stmt.expr == nullptr) {
        CHORAL_RETURN_IF_ERROR(append(stmt.text, out));
        return Flow::kNormal;
      }
      CHORAL_TRY(const Value value, eval(*stmt.expr, scope));
      CHORAL_TRY(const std::string text, to_text(*this, value));
      CHORAL_RETURN_IF_ERROR(append(text, out));
      return Flow::kNormal;
    }
    case StmtKind::kIf:
      for (const auto& [test, body] : stmt.branches) {
        CHORAL_TRY(const Value value, eval(*test, scope));
        if (truth(value)) return exec(body, scope, out);
      }
      return exec(stmt.else_body, scope, out);
    case StmtKind::kFor: return exec_for(stmt, scope, out);
    case StmtKind::kSet: {
      CHORAL_TRY(Value value, eval(*stmt.expr, scope));
      CHORAL_RETURN_IF_ERROR(assign(*stmt.target, std::move(value), scope));
      return Flow::kNormal;
    }
    case StmtKind::kMacro:
      CHORAL_RETURN_IF_ERROR(step(scope->variables.size() / 16));
      scope->set(stmt.name, Value::object(std::make_shared<Macro>(stmt, scope)));
      return Flow::kNormal;
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
    case StmtKind::kScope: {
      const ScopePtr inner = inner_scope(scope);
      Result<Flow> flow = exec(stmt.body, inner, out);
      inner->variables.clear();
      return flow;
    }
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock: return exec_capture(stmt, scope, out);
  }
  return internal_error("a statement of no kind");
}

// {% set x %}…{% endset %} and {% filter f %}…{% endfilter %}
Result<Flow> Interpreter::exec_capture(const Stmt& stmt, const ScopePtr& scope, std::string* out) {
  const ScopePtr inner = inner_scope(scope);
  std::string text;
  Result<Flow> flow = exec(stmt.body, inner, &text);
  if (flow.ok() && *flow == Flow::kNormal) {
    const Value block = Value::text(std::move(text));
    Result<Value> value = stmt.expr ? charged(eval_builtin(*stmt.expr, inner, &block)) : Result<Value>(block);
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
    return space->set(target.text, std::move(value)), Status();
  }
  if (!is_iterable(value)) return invalid_argument("cannot unpack non-iterable {} object", type_name(value));
  CHORAL_TRY(const Value elements, elements_of(*this, value));
  const size_t wanted = target.kids.size(), got = elements.items().size();
  if (got < wanted) return invalid_argument("not enough values to unpack (expected {}, got {})", wanted, got);
  if (got > wanted) return invalid_argument("too many values to unpack (expected {})", wanted);
  for (size_t i = 0; i < wanted; ++i) CHORAL_RETURN_IF_ERROR(assign(*target.kids[i], elements.items()[i], scope));
  return {};
}

Result<Flow> Interpreter::exec_for(const Stmt& stmt, const ScopePtr& outer, std::string* out) {
  CHORAL_TRY(const Value iterable, eval(*stmt.expr, outer));
  CHORAL_TRY(auto source, iterate(*this, iterable));
  const auto loop = std::make_shared<Loop>(*this, stmt, outer, std::move(source), length_of(iterable));
  const ScopePtr scope = inner_scope(outer);
  const auto run = [&]() -> Result<Flow> {
    bool to_the_end = false;  // of the body at least once: Jinja's condition for skipping else, odd as it is
    while (true) {
      CHORAL_TRY(const bool more, loop->advance());
      if (!more) break;
      scope->variables.clear();
      scope->set(kLoopName, Value::object(loop));
      CHORAL_RETURN_IF_ERROR(assign(*stmt.target, loop->current(), scope));
      CHORAL_TRY(const Flow flow, exec(stmt.body, scope, out));
      if (flow == Flow::kBreak) break;
      if (flow == Flow::kNormal) to_the_end = true;
    }
    scope->variables.clear();
    return to_the_end ? Flow::kNormal : exec(stmt.else_body, scope, out);
  };
  Result<Flow> flow = run();
  scope->variables.clear();
  loop->clear();
  return flow;
}

}  // namespace choral::text::jinja
