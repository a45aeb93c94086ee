#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/find_text.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

constexpr std::string_view kSymbols[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
std::string_view symbol(Operator op) { return kSymbols[static_cast<size_t>(op)]; }

Status overflow(Operator op) { return invalid_argument("the result of {} does not fit into a 64-bit integer", symbol(op)); }

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return unsupported("** with a negative exponent is not supported");
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow(Operator::kPower);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(Operator::kPower);
  }
  return Value::integer(result);
}

Result<Value> integer_arithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fits = true;
  switch (op) {
    case Operator::kAdd: fits = !__builtin_add_overflow(a, b, &result); break;
    case Operator::kSubtract: fits = !__builtin_sub_overflow(a, b, &result); break;
    case Operator::kMultiply: fits = !__builtin_mul_overflow(a, b, &result); break;
    case Operator::kPower: return integer_power(a, b);
    case Operator::kDivide:
      if (b == 0) return invalid_argument("division by zero");
      return Value::number(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    default: {
      if (b == 0) return invalid_argument("integer division or modulo by zero");
      if (b == -1) return op == Operator::kModulo ? Value::integer(0) : integer_arithmetic(Operator::kSubtract, 0, a);
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      result = op == Operator::kModulo ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
    }
  }
  return fits ? Result<Value>(Value::integer(result)) : overflow(op);
}

Result<Value> float_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd: return Value::number(a + b);
    case Operator::kSubtract: return Value::number(a - b);
    case Operator::kMultiply: return Value::number(a * b);
    case Operator::kDivide: return b == 0 ? Result<Value>(invalid_argument("float division by zero")) : Value::number(a / b);
    default: return unsupported("{} is not supported for floats", symbol(op));
  }
}

Result<Value> add(Interpreter& interp, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    CHORAL_RETURN_IF_ERROR(interp.check_text(a.str().size() + b.str().size()));
    return Value::text(a.str() + b.str());
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return make_sequence(a.kind(), std::move(items), interp.limits());
  }
  if (a.is_string() || a.is_sequence())
    return invalid_argument("can only concatenate {} (not \"{}\") to {}", type_name(a), type_name(b), type_name(a));
  return invalid_argument("unsupported operand type(s) for +: '{}' and '{}'", type_name(a), type_name(b));
}

Result<Value> repeat(Interpreter& interp, const Value& what, int64_t times) {
  const auto n = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  if (what.is_string()) {
    const std::string& unit = what.str();
    if (unit.empty() || n == 0) return Value::text("");
    CHORAL_RETURN_IF_ERROR(interp.check_text(n > interp.limits().max_string_bytes ? n : n * unit.size()));
    std::string out;
    out.reserve(n * unit.size());
    for (uint64_t i = 0; i < n; ++i) out += unit;
    return Value::text(std::move(out));
  }
  const Values& unit = what.items();
  Values items;
  if (!unit.empty()) {
    CHORAL_RETURN_IF_ERROR(interp.check_elements(n > interp.limits().max_elements ? n : n * unit.size()));
    items.reserve(n * unit.size());
    for (uint64_t i = 0; i < n; ++i) items.insert(items.end(), unit.begin(), unit.end());
  }
  return make_sequence(what.kind(), std::move(items), interp.limits());
}

constexpr int kUnordered = 2;  // NaN with anything

// -1, 0, 1 or kUnordered.
Result<int> order(Operator op, const Value& a, const Value& b) {
  CHORAL_RETURN_IF_ERROR(check_defined(a));
  CHORAL_RETURN_IF_ERROR(check_defined(b));
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_real() && b.is_real()) {
    const auto is_nan = [](const Value& v) { return v.is_float() && std::isnan(v.as_double()); };
    if (is_nan(a) || is_nan(b)) return kUnordered;
    const KeyLess below;
    return below(a, b) ? -1 : below(b, a) ? 1 : 0;
  }
  if (a.is_string() && b.is_string()) return sign(a.str(), b.str());  // UTF-8 keeps the order of code points
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Values &x = a.items(), &y = b.items();
    size_t i = 0;
    while (i < x.size() && i < y.size() && equal(x[i], y[i])) ++i;
    return i < x.size() && i < y.size() ? order(op, x[i], y[i]) : Result<int>(sign(x.size(), y.size()));
  }
  return invalid_argument("'{}' not supported between instances of '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

Result<bool> contains(Interpreter& interp, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is_string()) return invalid_argument("'in <string>' requires string as left operand, not {}", type_name(item));
      CHORAL_RETURN_IF_ERROR(interp.look(container.str().size() + item.str().size()));
      return find_text(container.str(), item.str()) != std::string::npos;
    case Kind::kDict:
      if (!hashable(item)) return invalid_argument("unhashable type: '{}'", type_name(item));
      CHORAL_RETURN_IF_ERROR(interp.lookup_cost(item));
      return container.dict().find(item) != nullptr;
    default: break;
  }
  if (!is_iterable(container)) return invalid_argument("argument of type '{}' is not iterable", type_name(container));
  // Each comparison costs what the lighter of the two does, so all together no more than the list.
  CHORAL_RETURN_IF_ERROR(interp.compare_cost(container, container));
  CHORAL_TRY(const auto iterator, iterate(interp, container));
  while (const Value* next = iterator->next()) {
    if (next->same(item) || equal(*next, item)) return true;
  }
  return false;
}

std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  const std::string_view type = type_name(value);
  if (type == "Namespace") return fmt::format("jinja2.utils.{} object", type);
  if (type == "Macro" || type == "LoopContext") return fmt::format("jinja2.runtime.{} object", type);
  return fmt::format("{} object", type);
}

Value missing_attribute(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("{} has no attribute {}", string_repr(object_name(object)), name_repr(name)));
}

bool changes_its_value(const Value& value, std::string_view name) {
  return (value.is_list() && has_word("append clear pop reverse insert sort extend remove", name)) ||
         (value.is_dict() && has_word("clear pop popitem setdefault update", name));
}

// What Python's getattr gives; nothing when there is no such attribute.
Result<std::optional<Value>> own_attribute(Interpreter& interp, const Value& object, std::string_view name) {
  if (object.is_object()) {
    CHORAL_TRY(auto found, object.object()->attribute(interp, name));
    if (found) return found;
  } else if (const Builtin* method = find_builtin(methods(object.kind()), name)) {
    CHORAL_TRY(Value bound, interp.object(std::make_shared<Function>(method, object, true)));
    return std::optional(std::move(bound));
  }
  if (has_word(refused_methods(object), name))
    return unsupported("the method '{}' of {} is not supported", name, type_name(object));
  const bool reserved = name.size() > 4 && name.starts_with("__") && name.ends_with("__") && !object.object_as<Namespace>();
  if (!reserved && !changes_its_value(object, name)) return std::optional<Value>();
  return std::optional(
      Value::undefined(fmt::format("access to attribute {} of '{}' object is unsafe.", name_repr(name), type_name(object))));
}

// Where code point `i` of a text begins, counted from the nearer end.
Result<size_t> offset_of(Interpreter& interp, const Text& text, size_t i) {
  if (text.ascii()) return i;
  const size_t from_end = text.length - i;
  CHORAL_RETURN_IF_ERROR(interp.walk(std::min(i, from_end)));
  if (i <= from_end) return byte_offset(text.bytes, i);
  size_t at = text.bytes.size();
  for (size_t left = from_end; left > 0; --left) at = last_code_point(std::string_view(text.bytes).substr(0, at));
  return at;
}

// Nothing when there is none.
Result<std::optional<Value>> own_item(Interpreter& interp, const Value& object, const Value& key) {
  if (object.is_dict()) {
    CHORAL_RETURN_IF_ERROR(interp.lookup_cost(key));
    const Value* found = hashable(key) ? object.dict().find(key) : nullptr;
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  const auto* range = object.object_as<Series>();
  const bool indexed = object.is_sequence() || object.is_string() || (range != nullptr && range->is_range());
  if (!indexed || !key.is_integral()) return std::optional<Value>();
  const int64_t n = *length_of(object);
  const int64_t i = key.as_int() < 0 ? key.as_int() + n : key.as_int();
  if (i < 0 || i >= n) return std::optional<Value>();
  if (!object.is_string()) return std::optional((range != nullptr ? range->elements() : object).items()[i]);
  CHORAL_TRY(const size_t begin, offset_of(interp, object.text_value(), i));
  size_t end = begin;
  next_code_point(object.str(), &end);
  return std::optional(Value::text(object.str().substr(begin, end - begin)));
}

struct Bounds {
  int64_t start, count, step;
};

Result<Bounds> slice_bounds(const Value& start, const Value& stop, const Value& step, int64_t n) {
  for (const Value* v : {&start, &stop, &step}) {
    CHORAL_RETURN_IF_ERROR(check_defined(*v));
    if (!v->is_none() && !v->is_integral())
      return invalid_argument("slice indices must be integers or None or have an __index__ method");
  }
  const int64_t s = step.is_none() ? 1 : step.as_int();
  if (s == 0) return invalid_argument("slice step cannot be zero");
  const int64_t low = s > 0 ? 0 : -1, high = s > 0 ? n : n - 1;
  const auto place = [&](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    return std::clamp(v.as_int() < 0 ? v.as_int() + n : v.as_int(), low, high);
  };
  const int64_t from = place(start, s > 0 ? low : high), to = place(stop, s > 0 ? high : low);
  const int64_t span = std::max<int64_t>(s > 0 ? to - from : from - to, 0);
  const uint64_t stride = s > 0 ? static_cast<uint64_t>(s) : uint64_t{0} - static_cast<uint64_t>(s);
  return Bounds{from, span == 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(span - 1) / stride + 1), s};
}

}  // namespace

Status check_defined(const Value& value) {
  return value.is_undefined() ? invalid_argument("{}", value.undefined_message()) : Status();
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_double() != 0;
    case Kind::kBigInt: return true;
    default: return length_of(value).value_or(1) != 0;
  }
}

Result<Value> binary(Interpreter& interp, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kModulo && a.is_string()) return printf_format(interp, a.str(), b);
  CHORAL_RETURN_IF_ERROR(check_defined(a));
  CHORAL_RETURN_IF_ERROR(check_defined(b));
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_real() && b.is_real()) return float_arithmetic(op, a.as_double(), b.as_double());
  if (op == Operator::kAdd) return add(interp, a, b);
  if (op == Operator::kMultiply) {
    const auto repeatable = [](const Value& v) { return v.is_string() || v.is_sequence(); };
    if (repeatable(a) && b.is_integral()) return repeat(interp, a, b.as_int());
    if (repeatable(b) && a.is_integral()) return repeat(interp, b, a.as_int());
    if (repeatable(a) || repeatable(b))
      return invalid_argument("can't multiply sequence by non-int of type '{}'", type_name(repeatable(a) ? b : a));
  }
  return invalid_argument("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

Result<Value> negate(const Value& value) {
  CHORAL_RETURN_IF_ERROR(check_defined(value));
  if (value.is_integral()) return integer_arithmetic(Operator::kSubtract, 0, value.as_int());
  if (value.is_float()) return Value::number(-value.as_double());
  return invalid_argument("bad operand type for unary -: '{}'", type_name(value));
}

Result<bool> compare(Interpreter& interp, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kIn || op == Operator::kNotIn) {
    CHORAL_TRY(const bool found, contains(interp, b, a));
    return found == (op == Operator::kIn);
  }
  CHORAL_RETURN_IF_ERROR(interp.compare_cost(a, b));
  if (op == Operator::kEqual || op == Operator::kNotEqual) return equal(a, b) == (op == Operator::kEqual);
  CHORAL_TRY(const int sign, order(op, a, b));
  switch (op) {
    case Operator::kLess: return sign == -1;
    case Operator::kLessEqual: return sign == -1 || sign == 0;
    case Operator::kGreater: return sign == 1;
    default: return sign == 1 || sign == 0;
  }
}

Result<Value> get_own_attribute(Interpreter& interp, const Value& object, std::string_view name) {
  CHORAL_RETURN_IF_ERROR(interp.walk(name.size()));
  CHORAL_TRY(auto own, own_attribute(interp, object, name));
  return own ? *std::move(own) : missing_attribute(object, name);
}

Result<Value> get_attribute(Interpreter& interp, const Value& object, std::string_view name) {
  CHORAL_RETURN_IF_ERROR(check_defined(object));
  CHORAL_RETURN_IF_ERROR(interp.walk(name.size()));
  CHORAL_TRY(auto own, own_attribute(interp, object, name));
  // A dict may have a key that looks reserved; only a real attribute would win over it, and dicts show none of those.
  if (object.is_dict() && (!own || (own->is_undefined() && !changes_its_value(object, name)))) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return own ? *std::move(own) : missing_attribute(object, name);
}

Result<Value> get_item(Interpreter& interp, const Value& object, const Value& key) {
  CHORAL_RETURN_IF_ERROR(check_defined(object));
  CHORAL_TRY(auto item, own_item(interp, object, key));
  if (item) return *std::move(item);
  if (key.is_string()) return get_own_attribute(interp, object, key.str());
  CHORAL_TRY(const std::string shown, to_repr(interp, key));
  return Value::undefined(fmt::format("{} has no element {}", object_name(object), cut_name(shown)));
}

Result<Value> get_slice(Interpreter& interp, const Value& object, const Value& start, const Value& stop, const Value& step) {
  CHORAL_RETURN_IF_ERROR(check_defined(object));
  if (object.is_dict()) return invalid_argument("unhashable type: 'slice'");
  if (object.object_as<Series>() != nullptr)
    return unsupported("a slice of a {} is not supported; make it a list with |list first", type_name(object));
  if (!object.is_sequence() && !object.is_string())
    return invalid_argument("'{}' object is not subscriptable", type_name(object));
  CHORAL_TRY(const Bounds bounds, slice_bounds(start, stop, step, *length_of(object)));
  const auto index = [&](int64_t i) { return bounds.start + i * bounds.step; };
  CHORAL_RETURN_IF_ERROR(interp.step(static_cast<uint64_t>(bounds.count) / 16));
  if (object.is_string()) {
    const std::string& text = object.str();
    if (bounds.count == 0) return Value::text("");
    if (bounds.step == 1) {
      CHORAL_TRY(const size_t begin, offset_of(interp, object.text_value(), bounds.start));
      CHORAL_TRY(const size_t end, offset_of(interp, object.text_value(), bounds.start + bounds.count));
      return Value::text(text.substr(begin, end - begin));
    }
    CHORAL_RETURN_IF_ERROR(interp.walk(text.size()));
    CHORAL_RETURN_IF_ERROR(interp.allocated(object.text_value().length * sizeof(char32_t)));
    const std::u32string points = decode(text);
    std::string out;
    for (int64_t i = 0; i < bounds.count; ++i) append_utf8(points[index(i)], &out);
    return Value::text(std::move(out));
  }
  Values out;
  out.reserve(bounds.count);
  for (int64_t i = 0; i < bounds.count; ++i) out.push_back(object.items()[index(i)]);
  return object.is_list() ? interp.list(std::move(out)) : interp.tuple(std::move(out));
}

Result<Value> get_path(Interpreter& interp, const Value& object, const Value& path) {
  if (path.is_none()) return object;
  if (!path.is_string()) return get_item(interp, object, path);
  CHORAL_RETURN_IF_ERROR(interp.walk(path.str().size()));
  Value current = object;
  for (std::string_view rest = path.str();;) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    CHORAL_RETURN_IF_ERROR(interp.step());
    const bool number =
        !part.empty() && part.size() < 10 && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    CHORAL_TRY(current, get_item(interp, current, number ? Value::integer(std::stoll(std::string(part))) : Value::text(part)));
    if (dot == std::string_view::npos) return current;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace choral::text::jinja
