#include "text/jinja/macro.h"

#include <algorithm>

#include "text/jinja/text_form.h"

namespace choral::text::jinja {

Result<std::string> Macro::repr(Interpreter&) const {
  const std::string& name = stmt_->signature.name;
  return name.empty() ? "<Macro anonymous>" : fmt::format("<Macro {}>", string_repr(name));
}

std::optional<Value> Macro::attribute(Interpreter& interp, std::string_view name) {
  if (name == "name") return stmt_->signature.name.empty() ? Value::none() : Value::text(stmt_->signature.name);
  if (name == "caller") return Value::boolean(stmt_->signature.uses_caller);
  if (name == "catch_kwargs") return Value::boolean(stmt_->signature.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(stmt_->signature.uses_varargs);
  if (name != "arguments") return std::nullopt;
  // Without room there is no answer; whatever is printed next reports it.
  if (!interp.allocated(stmt_->signature.parameters.size() * 4 * sizeof(Value)).ok()) return std::nullopt;
  Values names;
  for (const int parameter : stmt_->signature.parameters) names.push_back(Value::text(interp.ast().names[parameter]));
  Result<Value> tuple = interp.tuple(std::move(names));
  return tuple.ok() ? std::optional(*std::move(tuple)) : std::nullopt;
}

// Positional first, then by name, then defaults, which see the parameters before them; caller, kwargs and varargs when
// the body mentions them.
Status Macro::bind_parameters(Interpreter& interp, Arguments& args, const ScopePtr& scope) const {
  const MacroSignature& signature = stmt_->signature;
  const auto& names = interp.ast().names;
  const auto name_of = [&](int parameter) -> const std::string& { return names[parameter]; };
  const size_t count = signature.parameters.size(), given = std::min(count, args.positional.size());
  // Each is looked for among the named arguments and in the scope that the ones before it are in.
  CHORAL_RETURN_IF_ERROR(interp.step(count * (1 + args.named.size() + count / 16)));
  CHORAL_RETURN_IF_ERROR(interp.allocated(count * 4 * sizeof(Value)));
  std::vector<std::optional<Value>> values(count);
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto at = std::find_if(args.named.begin(), args.named.end(), [&](const auto& entry) { return entry.first == name; });
    if (at == args.named.end()) return std::nullopt;
    Value value = std::move(at->second);
    args.named.erase(at);
    return value;
  };
  const bool explicit_caller =
      std::find(signature.parameters.begin(), signature.parameters.end(), interp.ast().caller_name) != signature.parameters.end();
  bool found_caller = given == count && explicit_caller;
  for (size_t i = 0; i < count; ++i) {
    if (i < given) {
      values[i] = args.positional[i];
      continue;
    }
    values[i] = take_named(name_of(signature.parameters[i]));
    found_caller = found_caller || signature.parameters[i] == interp.ast().caller_name;
  }
  if (signature.uses_caller && !found_caller) {
    const std::optional<Value> caller = take_named("caller");
    scope->set(interp.ast().caller_name, caller && !caller->is_none() ? *caller : Value::undefined("No caller defined"));
  }
  if (signature.uses_kwargs) {
    Dict rest;
    for (auto& [name, value] : args.named) rest.set(Value::text(name), value);
    CHORAL_TRY(Value kwargs, interp.dict(std::move(rest)));
    scope->set(interp.ast().kwargs_name, std::move(kwargs));
  } else if (!args.named.empty()) {
    if (args.find_named("caller") != nullptr)
      return invalid_argument("macro {} was invoked with two values for the special caller argument. This is most likely a bug.",
                              string_repr(signature.name));
    return invalid_argument("macro {} takes no keyword argument {}", string_repr(signature.name), name_repr(args.named[0].first));
  }
  if (signature.uses_varargs) {
    CHORAL_TRY(Value varargs,
               interp.tuple(Values(args.positional.begin() + static_cast<ptrdiff_t>(given), args.positional.end())));
    scope->set(interp.ast().varargs_name, std::move(varargs));
  } else if (args.positional.size() > count) {
    return invalid_argument("macro {} takes not more than {} argument(s)", string_repr(signature.name), count);
  }
  const size_t first_default = count - signature.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (!values[i] && i >= first_default) {
      CHORAL_TRY(values[i], interp.eval(*signature.defaults[i - first_default], scope));
    }
    if (!values[i])
      values[i] = Value::undefined(fmt::format("parameter {} was not provided", name_repr(name_of(signature.parameters[i]))));
    scope->set(signature.parameters[i], *std::move(values[i]));
  }
  return {};
}

Result<Value> Macro::call(Interpreter& interp, Arguments& args) {
  const std::shared_ptr<Object> alive = shared_from_this();  // the body may overwrite the variable that holds the macro
  Interpreter::DepthGuard depth(&interp);
  CHORAL_RETURN_IF_ERROR(depth.check());
  const ScopePtr scope = inner_scope(defined_in_);
  std::string out;
  Status status = bind_parameters(interp, args, scope);
  if (status.ok()) status = interp.exec(stmt_->body, scope, &out).status();
  scope->variables.clear();
  CHORAL_RETURN_IF_ERROR(std::move(status));
  return Value::text(std::move(out));
}

}  // namespace choral::text::jinja
