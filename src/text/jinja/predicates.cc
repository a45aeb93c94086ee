#include "text/jinja/predicates.h"

#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_form.h"
#include "text/jinja/text_ops.h"

namespace choral::text::jinja {
namespace {

template <bool (*kIs)(const Value&)>
Result<bool> plain(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("test", args));
  return kIs(subject);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is_bool(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is_int() || v.kind() == Kind::kBigInt; }
bool is_float(const Value& v) { return v.is_float(); }
bool is_number(const Value& v) { return v.is_real() || v.kind() == Kind::kBigInt; }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool never(const Value&) { return false; }
bool is_sequence(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_list() || v.is_tuple() || v.is_dict() ||
         (v.is_object() && v.object()->subscriptable());
}

Result<bool> divisible(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("test_divisibleby", args, {"num"}, 1));
  CHORAL_TRY(const Value rest, binary(interp, Operator::kModulo, subject, *bound[0]));
  return equal(rest, Value::integer(0));
}

template <int kRest>
Result<bool> parity(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("test", args));
  CHORAL_TRY(const Value rest, binary(interp, Operator::kModulo, subject, Value::integer(2)));
  return equal(rest, Value::integer(kRest));
}

template <Operator kOp>
Result<bool> compared(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("test", args, {""}, 1));
  return compare(interp, kOp, subject, *bound[0]);
}

Result<bool> same_as(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("test_sameas", args, {"other"}, 1));
  return subject.same(*bound[0]);
}

template <bool (*kIs)(std::string_view)>
Result<bool> of_text(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("test", args));
  CHORAL_TRY(const std::string text, to_text(interp, subject));
  return kIs(text);
}

Result<bool> names_filter(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("test_filter", args));
  return subject.is_string() && find_filter(subject.str()) != nullptr;
}

Result<bool> names_test(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("test_test", args));
  return subject.is_string() && find_predicate(subject.str()) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"defined", plain<is_defined>, false},
    {"undefined", plain<is_undefined>, false},
    {"none", plain<is_none>, false},
    {"boolean", plain<is_boolean>, false},
    {"true", plain<is_true>, false},
    {"false", plain<is_false>, false},
    {"integer", plain<is_integer>, false},
    {"float", plain<is_float>, false},
    {"number", plain<is_number>, false},
    {"string", plain<is_string>, false},
    {"mapping", plain<is_mapping>, false},
    {"sequence", plain<is_sequence>, false},
    {"iterable", plain<is_iterable>, false},
    {"callable", plain<is_callable>, false},
    {"escaped", plain<never>, false},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible},
    {"lower", of_text<is_lower_text>},
    {"upper", of_text<is_upper_text>},
    {"sameas", same_as, false},
    {"filter", names_filter},
    {"test", names_test},
    {"in", compared<Operator::kIn>},
    {"==", compared<Operator::kEqual>},
    {"eq", compared<Operator::kEqual>},
    {"equalto", compared<Operator::kEqual>},
    {"!=", compared<Operator::kNotEqual>},
    {"ne", compared<Operator::kNotEqual>},
    {"<", compared<Operator::kLess>},
    {"lt", compared<Operator::kLess>},
    {"lessthan", compared<Operator::kLess>},
    {"<=", compared<Operator::kLessEqual>},
    {"le", compared<Operator::kLessEqual>},
    {">", compared<Operator::kGreater>},
    {"gt", compared<Operator::kGreater>},
    {"greaterthan", compared<Operator::kGreater>},
    {">=", compared<Operator::kGreaterEqual>},
    {"ge", compared<Operator::kGreaterEqual>},
};

}  // namespace

const TestEntry* find_predicate(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const TestEntry& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace choral::text::jinja
