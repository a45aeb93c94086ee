#include "text/jinja/control.h"

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace choral::text::jinja {
namespace {

Result<Value> loop_cycle(Call& call) {
  const auto& items = call.args.positional;
  if (items.empty()) return invalid_argument("no items for cycling given");
  return items[static_cast<size_t>(call.self.object_as<Loop>()->index0()) % items.size()];
}
constexpr Builtin kCycle = {"cycle", loop_cycle, "*"};

}  // namespace

Loop::Loop(Interpreter& interp, const Stmt& stmt, ScopePtr outer, std::shared_ptr<Series> source,
           std::optional<int64_t> known_length)
    : interp_(interp),
      stmt_(stmt),
      outer_(std::move(outer)),
      source_(std::move(source)),
      length_(stmt.test ? std::nullopt : known_length),
      tested_(stmt.test == nullptr) {}

void Loop::clear() {
  outer_ = nullptr;
  source_ = nullptr;
  before_ = current_ = after_ = std::nullopt;
}

Result<std::optional<Value>> Loop::draw() {
  while (const Value* next = source_ ? source_->next() : nullptr) {
    const Value value = *next;
    if (tested_) return std::optional(value);
    const ScopePtr scope = inner_scope(outer_);
    CHORAL_RETURN_IF_ERROR(interp_.assign(*stmt_.target, value, scope));
    CHORAL_TRY(const Value holds, interp_.eval(*stmt_.test, scope));
    if (truth(holds)) return std::optional(value);
  }
  return std::optional<Value>();
}

Status Loop::peek() {
  if (after_) return {};
  CHORAL_TRY(after_, draw());
  return {};
}

Result<bool> Loop::advance() {
  CHORAL_RETURN_IF_ERROR(peek());
  if (!after_) return false;
  ++index0_;
  before_ = std::move(current_);
  current_ = std::exchange(after_, std::nullopt);
  return true;
}

// Without a known length, all that is left is read, and given again later without the test.
Result<int64_t> Loop::length() {
  if (length_) return *length_;
  Values rest;
  CHORAL_RETURN_IF_ERROR(peek());
  const int64_t peeked = after_ ? 1 : 0;
  while (true) {
    CHORAL_TRY(std::optional<Value> drawn, draw());
    if (!drawn) break;
    rest.push_back(*std::move(drawn));
  }
  length_ = index0_ + 1 + peeked + std::ssize(rest);
  CHORAL_TRY(Value elements, interp_.list(std::move(rest)));
  source_ = std::make_shared<Series>(Series::Type::kIterator, std::move(elements));
  tested_ = true;
  return *length_;
}

Result<std::optional<Value>> Loop::attribute(Interpreter& interp, std::string_view name) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "length" || name == "revindex" || name == "revindex0") {
    CHORAL_TRY(const int64_t n, length());
    return Value::integer(name == "length" ? n : n - index0_ - (name == "revindex0" ? 1 : 0));
  }
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "last" || name == "nextitem") {
    CHORAL_RETURN_IF_ERROR(peek());
    if (name == "last") return Value::boolean(!after_);
    return after_ ? *after_ : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    CHORAL_TRY(Value bound, interp.object(std::make_shared<Function>(&kCycle, Value::object(shared_from_this()), true)));
    return std::optional(std::move(bound));
  }
  if (name == "changed") return unsupported("loop.changed is not supported; compare with loop.previtem");
  return std::optional<Value>();
}

Result<std::optional<Value>> Macro::attribute(Interpreter&, std::string_view name) {
  if (has_word("name arguments caller catch_kwargs catch_varargs explicit_caller", name))
    return unsupported("the attribute {} of a macro is not supported", name_repr(name));
  return std::optional<Value>();
}

// Positional first, then by name, then defaults, which see the parameters before them.
Status Macro::bind_parameters(Interpreter& interp, Arguments& args, const ScopePtr& scope) const {
  const size_t count = stmt_.parameters.size(), given = args.positional.size();
  const size_t first_default = count - stmt_.defaults.size();
  // Each is looked for among the named arguments and in the scope that the ones before it are in.
  CHORAL_RETURN_IF_ERROR(interp.step(count * (1 + args.named.size() + count / 16)));
  CHORAL_RETURN_IF_ERROR(interp.allocated(count * 4 * sizeof(Value)));
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = interp.ast().names[stmt_.parameters[i]];
    Value value = Value::undefined(fmt::format("parameter {} was not provided", name_repr(name)));
    const auto named = std::find_if(args.named.begin(), args.named.end(), [&](const auto& entry) { return entry.first == name; });
    if (i < given) {
      value = args.positional[i];
    } else if (named != args.named.end()) {
      value = std::move(named->second);
      args.named.erase(named);
    } else if (i >= first_default) {
      CHORAL_TRY(value, interp.eval(*stmt_.defaults[i - first_default], scope));
    }
    scope->set(stmt_.parameters[i], std::move(value));
  }
  if (!args.named.empty())
    return invalid_argument("macro {} takes no keyword argument {}", string_repr(stmt_.text), name_repr(args.named[0].first));
  if (given > count) return invalid_argument("macro {} takes not more than {} argument(s)", string_repr(stmt_.text), count);
  return {};
}

Result<Value> Macro::call(Interpreter& interp, Arguments& args) {
  const std::shared_ptr<Object> alive = shared_from_this();  // the body may overwrite the variable that holds the macro
  const Nesting nesting = interp.nested();
  CHORAL_RETURN_IF_ERROR(interp.check_depth());
  const ScopePtr scope = inner_scope(defined_in_);
  std::string out;
  Status status = bind_parameters(interp, args, scope);
  if (status.ok()) status = interp.exec(stmt_.body, scope, &out).status();
  scope->variables.clear();
  CHORAL_RETURN_IF_ERROR(std::move(status));
  return Value::text(std::move(out));
}

}  // namespace choral::text::jinja
