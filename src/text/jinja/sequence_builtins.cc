// The filters of sequences, dicts and numbers, and the methods of lists and dicts.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

Result<Value> length(Call& call) {
  const auto n = length_of(call.self);
  if (!n) return invalid_argument("object of type '{}' has no len()", type_name(call.self));
  return Value::integer(*n);
}

Result<Value> first(Call& call) {
  if (call.self.is_string() && !call.self.str().empty()) return get_item(call.interp, call.self, Value::integer(0));
  CHORAL_TRY(const auto iterator, iterate(call.interp, call.self));
  const Value* item = iterator->next();
  return item != nullptr ? *item : Value::undefined("No first item, sequence was empty.");
}

Result<Value> last(Call& call) {
  const auto* series = call.self.object_as<Series>();
  if (!is_iterable(call.self) || (series != nullptr && series->once()))
    return invalid_argument("'{}' object is not reversible", type_name(call.self));
  if (call.self.is_string() && !call.self.str().empty()) return get_item(call.interp, call.self, Value::integer(-1));
  CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
  return elements.items().empty() ? Value::undefined("No last item, sequence was empty.") : elements.items().back();
}

Result<Value> list_filter(Call& call) {
  CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
  return elements.is_list() ? elements : call.interp.list(elements.items());
}

Result<Value> join(Call& call) {
  CHORAL_TRY(const std::string separator, call.bound[0] ? to_text(call.interp, *call.bound[0]) : Result<std::string>(""));
  CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
  std::string out;
  for (const Value& element : elements.items()) {
    CHORAL_TRY(const Value item, get_path(call.interp, element, call.given(1) ? *call.bound[1] : Value::none()));
    CHORAL_TRY(const std::string text, to_text(call.interp, item));
    CHORAL_RETURN_IF_ERROR(call.interp.look(separator.size() + text.size()));
    CHORAL_RETURN_IF_ERROR(call.interp.check_text(out.size() + separator.size() + text.size()));
    if (&element != elements.items().data()) out += separator;
    out += text;
  }
  return Value::text(std::move(out));
}

Result<Value> items(Call& call) {
  if (call.self.is_undefined()) return call.interp.iterator({});
  if (!call.self.is_dict()) return invalid_argument("Can only get item pairs from a mapping.");
  CHORAL_TRY(const Value pairs, call.interp.view(call.self, Series::Type::kItems));
  return call.interp.iterator(pairs.object_as<Series>()->elements().items());
}

Result<Value> default_filter(Call& call) {
  const bool falls = call.self.is_undefined() || (call.flag(1, false) && !truth(call.self));
  if (!falls) return call.self;
  return call.bound[0] != nullptr ? *call.bound[0] : Value::text("");
}

// foo|attr("x") is foo.x without falling back to foo["x"].
Result<Value> attr(Call& call) {
  CHORAL_RETURN_IF_ERROR(check_defined(call.self));
  if (!call.bound[0]->is_string()) return invalid_argument("attribute name must be string, not '{}'", type_name(*call.bound[0]));
  return get_own_attribute(call.interp, call.self, call.bound[0]->str());
}

// The filters that Python runs lazily: one element in, none or one out.
template <class Each>
Result<Value> lazily(Call& call, const Each& each) {
  Values out;
  if (truth(call.self)) {
    CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
    for (const Value& item : elements.items()) CHORAL_RETURN_IF_ERROR(each(item, &out));
  }
  return call.interp.iterator(std::move(out));
}

// The filter or test that argument `at` names, with the arguments behind it.
Result<Value> applied(Call& call, std::string_view kind, size_t at, const Value& subject) {
  const Values& given = call.args.positional;
  if (!given[at].is_string()) return invalid_argument("the {} name must be str, not {}", kind, type_name(given[at]));
  CHORAL_RETURN_IF_ERROR(call.interp.step(given.size() + call.args.named.size()));
  Arguments rest{Values(given.begin() + static_cast<ptrdiff_t>(at) + 1, given.end()), call.args.named};
  return call.interp.apply(kind, given[at].str(), subject, rest);
}

Result<Value> map(Call& call) {
  const auto& named = call.args.named;
  return lazily(call, [&](const Value& item, Values* out) -> Status {
    Value value;
    if (!call.args.positional.empty()) {
      CHORAL_TRY(value, applied(call, "filter", 0, item));
    } else if (named.size() == 1 && named[0].first == "attribute") {
      CHORAL_TRY(value, get_path(call.interp, item, named[0].second));
    } else if (named.empty()) {
      return invalid_argument("map requires a filter argument");
    } else {
      return unsupported("map() takes the name of a filter or attribute=…; other named arguments are not supported");
    }
    return out->push_back(std::move(value)), Status();
  });
}

template <bool kByAttribute, bool kKeep>
Result<Value> select(Call& call) {
  const Values& given = call.args.positional;
  constexpr size_t kTest = kByAttribute ? 1 : 0;
  return lazily(call, [&](const Value& item, Values* out) -> Status {
    if (given.size() < kTest) return invalid_argument("Missing parameter for attribute name");
    CHORAL_TRY(Value tested, get_path(call.interp, item, kByAttribute ? given[0] : Value::none()));
    if (given.size() > kTest) {
      CHORAL_TRY(tested, applied(call, "test", kTest, tested));
    }
    if (truth(tested) == kKeep) out->push_back(item);
    return {};
  });
}

struct Keyed {
  Value key, item;
};

Result<Value> fold_case(Interpreter& interp, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  CHORAL_RETURN_IF_ERROR(interp.walk(value.str().size()));
  CHORAL_RETURN_IF_ERROR(interp.allocated(value.str().size()));
  return Value::text(lower(value.str()));
}

// Stable, as Python's sorted; the first failing comparison is the error.
Result<Value> sorted(Interpreter& interp, std::vector<Keyed> keyed, bool descending) {
  Status failed;
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    if (!failed.ok()) return false;
    const Result<bool> below = compare(interp, Operator::kLess, (descending ? b : a).key, (descending ? a : b).key);
    if (!below.ok()) failed = below.status();
    return below.ok() && *below;
  });
  CHORAL_RETURN_IF_ERROR(std::move(failed));
  Values out;
  for (Keyed& entry : keyed) out.push_back(std::move(entry.item));
  return interp.list(std::move(out));
}

Result<Value> sort(Call& call) {
  const Value path = call.given(2) ? *call.bound[2] : Value::none();
  if (path.is_string() && path.str().find(',') != std::string::npos)
    return unsupported("sort() by several attributes is not supported");
  CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
  std::vector<Keyed> keyed;
  for (const Value& item : elements.items()) {
    CHORAL_TRY(const Value part, get_path(call.interp, item, path));
    CHORAL_TRY(Value key, fold_case(call.interp, part, call.flag(1, false)));
    keyed.push_back({std::move(key), item});
  }
  return sorted(call.interp, std::move(keyed), call.flag(0, false));
}

Result<Value> dictsort(Call& call) {
  CHORAL_RETURN_IF_ERROR(check_defined(call.self));
  CHORAL_TRY(const std::string_view by, call.text(1, "key"));
  if (by != "key" && by != "value") return invalid_argument("You can only sort by either \"key\" or \"value\"");
  if (!call.self.is_dict()) return invalid_argument("'{}' object has no attribute 'items'", type_name(call.self));
  std::vector<Keyed> keyed;
  for (const auto& [k, v] : call.self.dict().entries()) {
    CHORAL_TRY(Value pair, call.interp.tuple({k, v}));
    CHORAL_TRY(Value key, fold_case(call.interp, by == "key" ? k : v, call.flag(0, false)));
    keyed.push_back({std::move(key), std::move(pair)});
  }
  return sorted(call.interp, std::move(keyed), call.flag(2, false));
}

// A text backwards, or what iterates so.
Result<Value> reverse(Call& call) {
  if (call.self.is_string()) return get_slice(call.interp, call.self, Value::none(), Value::none(), Value::integer(-1));
  CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
  return call.interp.iterator(Values(elements.items().rbegin(), elements.items().rend()));
}

// The first of those before which no other comes.
template <Operator kBefore>
Result<Value> extreme(Call& call) {
  CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
  Value best_key, best = Value::undefined("No aggregated item, sequence was empty.");
  for (const Value& item : elements.items()) {
    CHORAL_TRY(const Value part, get_path(call.interp, item, call.given(1) ? *call.bound[1] : Value::none()));
    CHORAL_TRY(Value key, fold_case(call.interp, part, call.flag(0, false)));
    const bool is_first = &item == elements.items().data();
    CHORAL_TRY(const bool before, is_first ? Result<bool>(true) : compare(call.interp, kBefore, key, best_key));
    if (!before) continue;
    best_key = std::move(key);
    best = item;
  }
  return best;
}

Result<Value> sum(Call& call) {
  Value total = call.bound[1] != nullptr ? *call.bound[1] : Value::integer(0);
  if (total.is_string()) return invalid_argument("sum() can't sum strings [use ''.join(seq) instead]");
  CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
  for (const Value& item : elements.items()) {
    CHORAL_TRY(const Value part, get_path(call.interp, item, call.given(0) ? *call.bound[0] : Value::none()));
    CHORAL_TRY(total, binary(call.interp, Operator::kAdd, total, part));
  }
  return total;
}

Result<Value> unique(Call& call) {
  CHORAL_TRY(const Value elements, elements_of(call.interp, call.self));
  std::set<Value, KeyLess> seen;
  Values out;
  for (const Value& item : elements.items()) {
    CHORAL_TRY(const Value part, get_path(call.interp, item, call.given(1) ? *call.bound[1] : Value::none()));
    if (!hashable(part)) return invalid_argument("unhashable type: '{}'", type_name(part));
    CHORAL_TRY(Value key, fold_case(call.interp, part, call.flag(0, false)));
    CHORAL_RETURN_IF_ERROR(call.interp.lookup_cost(key));
    if (seen.insert(std::move(key)).second) out.push_back(item);
  }
  return call.interp.iterator(std::move(out));
}

// Decimal text as a number; nothing when it is none.
template <class Number>
Result<std::optional<Number>> read_number(std::string_view text) {
  text = strip(text, true, true);
  if (text.find('_') != text.npos) return unsupported("'_' in a text that becomes a number is not supported");
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty() || text.back() == ')') return std::optional<Number>();
  if (error == std::errc::result_out_of_range) return invalid_argument("the number {} is too large", name_repr(text));
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

Result<Value> int_filter(Call& call) {
  CHORAL_RETURN_IF_ERROR(check_defined(call.self));
  CHORAL_TRY(const int64_t base, call.integer(1, 10));
  if (base != 10) return unsupported("int() with a base is not supported");
  if (call.self.is_integral()) return Value::integer(call.self.as_int());
  if (call.self.kind() == Kind::kBigInt) return call.self;
  double real = call.self.is_float() ? call.self.as_double() : std::nan("");
  if (call.self.is_string()) {
    CHORAL_TRY(const std::optional<int64_t> whole, read_number<int64_t>(call.self.str()));
    if (whole) return Value::integer(*whole);
    CHORAL_TRY(const std::optional<double> read, read_number<double>(call.self.str()));
    if (read && !std::isinf(*read)) real = *read;
  }
  if (std::isnan(real)) return call.bound[0] != nullptr ? *call.bound[0] : Value::integer(0);
  if (!(std::abs(real) < 0x1p63)) return invalid_argument("a number does not fit into a 64-bit integer");
  return Value::integer(static_cast<int64_t>(real));
}

Result<Value> abs_filter(Call& call) {
  if (call.self.is_float()) return Value::number(std::abs(call.self.as_double()));
  if (!call.self.is_integral()) return invalid_argument("bad operand type for abs(): '{}'", type_name(call.self));
  return call.self.as_int() < 0 ? negate(call.self) : Value::integer(call.self.as_int());
}

// Python rounds the exact binary value, ties to even: printing with that many digits and reading back does the same.
Result<Value> round_filter(Call& call) {
  CHORAL_TRY(const std::string_view method, call.text(1, "common"));
  CHORAL_TRY(const int64_t digits, call.integer(0, 0));
  if (method != "common" || digits < 0 || digits > 20)
    return unsupported("round() to other than 0 to 20 digits, or other than 'common', is not supported");
  if (call.self.is_integral()) return Value::integer(call.self.as_int());
  if (!call.self.is_float()) return invalid_argument("type {} doesn't define __round__ method", type_name(call.self));
  double value = call.self.as_double();
  const std::string text = fmt::format("{:.{}f}", value, digits);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return Value::number(value);
}

template <Series::Type kType>
Result<Value> view(Call& call) {
  return call.interp.view(call.self, kType);
}

Result<Value> dict_get(Call& call) {
  const Value& key = *call.bound[0];
  if (!hashable(key)) return invalid_argument("unhashable type: '{}'", type_name(key));
  CHORAL_RETURN_IF_ERROR(call.interp.lookup_cost(key));
  if (const Value* found = call.self.dict().find(key)) return *found;
  return call.bound[1] != nullptr ? *call.bound[1] : Value::none();
}

constexpr Builtin kSequenceFilters[] = {
    {"length", length, "", 0, false},
    {"count", length, "", 0, false},
    {"first", first, "", 0, false},
    {"last", last, "", 0, false},
    {"list", list_filter},
    {"join", join, "d attribute"},
    {"items", items},
    {"attr", attr, "name", 1, false},
    {"default", default_filter, "default_value boolean", 0, false},
    {"d", default_filter, "default_value boolean", 0, false},
    {"map", map, "*"},
    {"select", select<false, true>, "*"},
    {"reject", select<false, false>, "*"},
    {"selectattr", select<true, true>, "*"},
    {"rejectattr", select<true, false>, "*"},
    {"sort", sort, "reverse case_sensitive attribute"},
    {"dictsort", dictsort, "case_sensitive by reverse"},
    {"reverse", reverse},
    {"min", extreme<Operator::kLess>, "case_sensitive attribute"},
    {"max", extreme<Operator::kGreater>, "case_sensitive attribute"},
    {"sum", sum, "attribute start"},
    {"unique", unique, "case_sensitive attribute"},
    {"int", int_filter, "default base"},
    {"abs", abs_filter},
    {"round", round_filter, "precision method"},
};

constexpr Builtin kDictMethods[] = {
    {"items", view<Series::Type::kItems>},
    {"keys", view<Series::Type::kKeys>},
    {"values", view<Series::Type::kValues>},
    {"get", dict_get, "/key /default", 1, false},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kSequenceFilters; }

std::span<const Builtin> methods(Kind kind) {
  if (kind == Kind::kString) return text_methods();
  return kind == Kind::kDict ? std::span<const Builtin>(kDictMethods) : std::span<const Builtin>();
}

}  // namespace choral::text::jinja
