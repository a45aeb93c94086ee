#include <algorithm>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"

namespace choral::text::jinja {
namespace {

template <DictView::Part kPart>
Result<Value> view(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("dict view", args));
  return interp.object(std::make_shared<DictView>(self, kPart));
}

Result<Value> dict_get(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("dict.get", args, {"", ""}, 1));
  if (!hashable(*bound[0])) return invalid_argument("unhashable type: '{}'", type_name(*bound[0]));
  CHORAL_RETURN_IF_ERROR(interp.lookup_cost(*bound[0]));
  if (const Value* found = self.dict().find(*bound[0])) return *found;
  return bound[1] != nullptr ? *bound[1] : Value::none();
}

Result<Value> copy(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("copy", args));
  return self;  // nothing can change the one or the other
}

Result<Value> sequence_count(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("count", args, {""}, 1));
  CHORAL_RETURN_IF_ERROR(interp.compare_cost(self, self));
  return Value::integer(
      std::count_if(self.items().begin(), self.items().end(), [&](const Value& v) { return equal(v, *bound[0]); }));
}

Result<Value> sequence_index(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("index", args, {"", "", ""}, 1));
  CHORAL_RETURN_IF_ERROR(interp.compare_cost(self, self));
  const auto n = std::ssize(self.items());
  CHORAL_TRY(int64_t from, int_argument(bound[1], 0));
  CHORAL_TRY(int64_t to, int_argument(bound[2], n));
  from = std::max<int64_t>(from < 0 ? from + n : from, 0);
  to = std::min(to < 0 ? to + n : to, n);
  for (int64_t i = from; i < to; ++i)
    if (equal(self.items()[i], *bound[0])) return Value::integer(i);
  return invalid_argument("value is not in {}", type_name(self));
}

Result<Value> is_integer(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("float.is_integer", args));
  return Value::boolean(std::isfinite(self.as_double()) && self.as_double() == std::floor(self.as_double()));
}

constexpr Method kDict[] = {{"items", view<DictView::Part::kItems>, false},
                            {"keys", view<DictView::Part::kKeys>, false},
                            {"values", view<DictView::Part::kValues>, false},
                            {"get", dict_get, false},
                            {"copy", copy, false}};
constexpr Method kList[] = {{"index", sequence_index, false}, {"count", sequence_count, false}, {"copy", copy, false}};
constexpr Method kFloat[] = {{"is_integer", is_integer, false}};

}  // namespace

std::span<const Method> container_methods(Kind kind) {
  switch (kind) {
    case Kind::kDict: return kDict;
    case Kind::kList: return kList;
    case Kind::kTuple: return std::span(kList).first(2);
    case Kind::kFloat: return kFloat;
    default: return {};
  }
}

const Method* find_method(const Value& value, std::string_view name) {
  const auto methods = value.is_string() ? text_methods() : container_methods(value.kind());
  const auto found = std::find_if(methods.begin(), methods.end(), [&](const Method& method) { return method.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

bool changes_its_value(const Value& value, std::string_view name) {
  static constexpr std::string_view kOfList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  static constexpr std::string_view kOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto has = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return (value.is_list() && has(kOfList)) || (value.is_dict() && has(kOfDict));
}

}  // namespace choral::text::jinja
