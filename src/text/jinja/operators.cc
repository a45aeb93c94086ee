#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/find_text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/printf_format.h"

namespace choral::text::jinja {
namespace {

constexpr std::string_view kSymbols[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
std::string_view symbol(Operator op) { return kSymbols[static_cast<size_t>(op)]; }

Status overflow(Operator op) { return invalid_argument("the result of {} does not fit into a 64-bit integer", symbol(op)); }

Status bad_operands(Operator op, const Value& a, const Value& b) {
  return invalid_argument("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
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
  switch (op) {
    case Operator::kAdd: return __builtin_add_overflow(a, b, &result) ? Result<Value>(overflow(op)) : Value::integer(result);
    case Operator::kSubtract: return __builtin_sub_overflow(a, b, &result) ? Result<Value>(overflow(op)) : Value::integer(result);
    case Operator::kMultiply: return __builtin_mul_overflow(a, b, &result) ? Result<Value>(overflow(op)) : Value::integer(result);
    case Operator::kDivide:
      if (b == 0) return invalid_argument("division by zero");
      return Value::number(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (b == 0) return invalid_argument("integer division or modulo by zero");
      if (b == -1) return op == Operator::kModulo ? Value::integer(0) : integer_arithmetic(Operator::kSubtract, 0, a);
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      if (op == Operator::kModulo) return Value::integer(adjust ? remainder + b : remainder);
      return Value::integer(a / b - (adjust ? 1 : 0));
    }
    default:
      if (b >= 0) return integer_power(a, b);
      if (a == 0) return invalid_argument("0.0 cannot be raised to a negative power");
      return Value::number(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

Result<Value> float_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd: return Value::number(a + b);
    case Operator::kSubtract: return Value::number(a - b);
    case Operator::kMultiply: return Value::number(a * b);
    case Operator::kDivide: return b == 0 ? Result<Value>(invalid_argument("float division by zero")) : Value::number(a / b);
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (b == 0) return invalid_argument("{}", op == Operator::kModulo ? "float modulo" : "float floor division by zero");
      double remainder = std::fmod(a, b);
      double quotient = (a - remainder) / b;
      if (remainder != 0 && (b < 0) != (remainder < 0)) {
        remainder += b;
        quotient -= 1;
      }
      if (op == Operator::kModulo) return Value::number(remainder == 0 ? std::copysign(0.0, b) : remainder);
      if (quotient == 0) return Value::number(std::copysign(0.0, a / b));
      const double floored = std::floor(quotient);
      return Value::number(quotient - floored > 0.5 ? floored + 1 : floored);
    }
    default: {
      if (a == 0 && b < 0) return invalid_argument("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
        return invalid_argument("a negative number cannot be raised to a fraction: complex numbers are not supported");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
        return invalid_argument("(34, 'Numerical result out of range')");
      return Value::number(result);
    }
  }
}

Result<Value> add(Interpreter& interp, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    CHORAL_RETURN_IF_ERROR(interp.check_text(a.str().size() + b.str().size()));
    std::string out;
    out.reserve(a.str().size() + b.str().size());
    out.append(a.str()).append(b.str());
    return Value::text(std::move(out));
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is_list() ? interp.list(std::move(items)) : interp.tuple(std::move(items));
  }
  if (a.is_string() || a.is_list() || a.is_tuple())
    return invalid_argument("can only concatenate {} (not \"{}\") to {}", type_name(a), type_name(b), type_name(a));
  return bad_operands(Operator::kAdd, a, b);
}

Result<bool> order(Operator op, const Value& a, const Value& b);

Result<bool> less_sequence(Operator op, const Value& a, const Value& b) {
  const Values &x = a.items(), &y = b.items();
  size_t i = 0;
  while (i < x.size() && i < y.size() && equal(x[i], y[i])) ++i;
  if (i < x.size() && i < y.size()) {
    if (op == Operator::kLess || op == Operator::kLessEqual) return order(Operator::kLess, x[i], y[i]);
    return order(Operator::kLess, y[i], x[i]);
  }
  switch (op) {
    case Operator::kLess: return x.size() < y.size();
    case Operator::kLessEqual: return x.size() <= y.size();
    case Operator::kGreater: return x.size() > y.size();
    default: return x.size() >= y.size();
  }
}

Result<bool> order(Operator op, const Value& a, const Value& b) {
  CHORAL_RETURN_IF_ERROR(check_defined(a));
  CHORAL_RETURN_IF_ERROR(check_defined(b));
  if (a.is_real() && b.is_real()) {
    if ((a.is_float() && std::isnan(a.as_double())) || (b.is_float() && std::isnan(b.as_double()))) return false;
    const KeyLess below;
    switch (op) {
      case Operator::kLess: return below(a, b);
      case Operator::kLessEqual: return !below(b, a);
      case Operator::kGreater: return below(b, a);
      default: return !below(a, b);
    }
  }
  if (a.is_string() && b.is_string()) {
    const int sign = a.str().compare(b.str());  // UTF-8 keeps the order of code points
    switch (op) {
      case Operator::kLess: return sign < 0;
      case Operator::kLessEqual: return sign <= 0;
      case Operator::kGreater: return sign > 0;
      default: return sign >= 0;
    }
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) return less_sequence(op, a, b);
  return invalid_argument("'{}' not supported between instances of '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

}  // namespace

Status check_defined(const Value& value) {
  return value.is_undefined() ? invalid_argument("{}", value.undefined_message()) : Status();
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return value.as_bool();
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_double() != 0;
    case Kind::kBigInt: return true;
    case Kind::kString: return !value.str().empty();
    case Kind::kList:
    case Kind::kTuple: return !value.items().empty();
    case Kind::kDict: return value.dict().size() > 0;
    case Kind::kObject: return value.object()->truth();
  }
  return false;
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
  if (!unit.empty() && n > interp.limits().max_elements / unit.size())
    return too_large("a list would hold more than {} elements (max_elements)", interp.limits().max_elements);
  Values items;
  if (!unit.empty()) {
    items.reserve(n * unit.size());
    for (uint64_t i = 0; i < n; ++i) items.insert(items.end(), unit.begin(), unit.end());
  }
  return what.is_list() ? interp.list(std::move(items)) : interp.tuple(std::move(items));
}

Result<Value> binary(Interpreter& interp, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kModulo && a.is_string()) {
    CHORAL_TRY(std::string text, printf_format(interp, a.str(), b));
    return Value::text(std::move(text));
  }
  CHORAL_RETURN_IF_ERROR(check_defined(a));
  CHORAL_RETURN_IF_ERROR(check_defined(b));
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_real() && b.is_real()) return float_arithmetic(op, a.as_double(), b.as_double());
  if (op == Operator::kAdd) return add(interp, a, b);
  if (op == Operator::kMultiply) {
    const auto repeatable = [](const Value& v) { return v.is_string() || v.is_list() || v.is_tuple(); };
    if (repeatable(a) && b.is_integral()) return repeat(interp, a, b.as_int());
    if (repeatable(b) && a.is_integral()) return repeat(interp, b, a.as_int());
    if (repeatable(a) || repeatable(b))
      return invalid_argument("can't multiply sequence by non-int of type '{}'", type_name(repeatable(a) ? b : a));
  }
  return bad_operands(op, a, b);
}

Result<Value> negate(const Value& value) {
  CHORAL_RETURN_IF_ERROR(check_defined(value));
  if (value.is_integral()) return integer_arithmetic(Operator::kSubtract, 0, value.as_int());
  if (value.is_float()) return Value::number(-value.as_double());
  return invalid_argument("bad operand type for unary -: '{}'", type_name(value));
}

Result<Value> positive(const Value& value) {
  CHORAL_RETURN_IF_ERROR(check_defined(value));
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is_float()) return value;
  return invalid_argument("bad operand type for unary +: '{}'", type_name(value));
}

Result<bool> contains(Interpreter& interp, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is_string()) return invalid_argument("'in <string>' requires string as left operand, not {}", type_name(item));
      CHORAL_RETURN_IF_ERROR(interp.look(container.str().size() + item.str().size()));
      return find_text(container.str(), item.str()) != std::string::npos;
    case Kind::kList:
    case Kind::kTuple:
      // Each comparison costs what the lighter of the two does, so all together no more than the list.
      CHORAL_RETURN_IF_ERROR(interp.compare_cost(container, container));
      return std::any_of(container.items().begin(), container.items().end(),
                         [&](const Value& v) { return v.same(item) || equal(v, item); });
    case Kind::kDict:
      if (!hashable(item)) return invalid_argument("unhashable type: '{}'", type_name(item));
      CHORAL_RETURN_IF_ERROR(interp.lookup_cost(item));
      return container.dict().find(item) != nullptr;
    case Kind::kObject:
      if (container.object()->iterable()) {
        CHORAL_TRY(const auto iterator, iterate(interp, container));
        while (true) {
          CHORAL_TRY(const Value* next, iterator->next());
          if (next == nullptr) return false;
          CHORAL_RETURN_IF_ERROR(interp.compare_cost(*next, item));
          if (equal(*next, item)) return true;
        }
      }
      [[fallthrough]];
    default: return invalid_argument("argument of type '{}' is not iterable", type_name(container));
  }
}

Result<bool> less(Interpreter& interp, const Value& a, const Value& b) { return compare(interp, Operator::kLess, a, b); }

Result<bool> compare(Interpreter& interp, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kIn) return contains(interp, b, a);
  if (op == Operator::kNotIn) {
    CHORAL_TRY(const bool found, contains(interp, b, a));
    return !found;
  }
  CHORAL_RETURN_IF_ERROR(interp.compare_cost(a, b));
  if (op == Operator::kEqual) return equal(a, b);
  if (op == Operator::kNotEqual) return !equal(a, b);
  return order(op, a, b);
}

}  // namespace choral::text::jinja
