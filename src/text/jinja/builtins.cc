// Finding and calling; the tests, the global functions, and what is refused by name.
#include "text/jinja/builtins.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <vector>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace choral::text::jinja {
namespace {

constexpr std::string_view kRefusedFilters =
    "batch center filesizeformat float forceescape groupby pprint random slice striptags truncate urlencode urlize wordcount "
    "wordwrap xmlattr";
constexpr std::string_view kRefusedTests = "escaped filter lower test upper";

Result<Value> refuse_function(Call&) {
  return unsupported("the functions dict, cycler, joiner and lipsum are not supported; use {{…}}, loop.cycle or loop.first");
}

constexpr int64_t kMaxRange = 100000;  // as in Jinja's sandbox
constexpr uint64_t kKeptBytes = 128;   // of a namespace without what it holds

Result<Value> make_range(Call& call) {
  CHORAL_TRY(int64_t start, call.integer(0, 0));
  CHORAL_TRY(int64_t stop, call.integer(1, 0));
  CHORAL_TRY(const int64_t step, call.integer(2, 1));
  if (call.bound[1] == nullptr) stop = std::exchange(start, 0);
  if (step == 0) return invalid_argument("range() arg 3 must not be zero");
  const auto span = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? step : -static_cast<__int128>(step);
  const __int128 count = span > 0 ? (span + stride - 1) / stride : 0;
  if (count > kMaxRange)
    return invalid_argument("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  CHORAL_RETURN_IF_ERROR(call.interp.step(static_cast<uint64_t>(count)));
  Values items;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) items.push_back(Value::integer(start + i * step));
  CHORAL_TRY(Value elements, call.interp.list(std::move(items)));
  const std::string text =
      step == 1 ? fmt::format("range({}, {})", start, stop) : fmt::format("range({}, {}, {})", start, stop, step);
  return Value::object(std::make_shared<Series>(Series::Type::kRange, std::move(elements), Value::text(text)));
}

Result<Value> make_namespace(Call& call) {
  if (!call.args.positional.empty())
    return unsupported("namespace() of a dict is not supported; name the values: namespace(a=1)");
  CHORAL_RETURN_IF_ERROR(call.interp.allocated(kKeptBytes + call.args.named.size() * Namespace::kEntryBytes));
  Dict entries;
  for (const auto& [name, value] : call.args.named) entries.set(Value::text(name), value);
  return call.interp.make_namespace(std::move(entries));
}

Result<Value> raise_exception(Call& call) {
  CHORAL_TRY(std::string text, to_text(call.interp, *call.bound[0]));
  return call.interp.raise(std::move(text));
}

Result<Value> strftime_now(Call& call) {
  CHORAL_TRY(const std::string_view format, call.text(0, ""));
  if (format.size() > 1000) return too_large("the format of strftime_now is longer than 1000 bytes");
  const auto fixed = call.interp.now_unix_s();
  std::tm parts{};
  const std::time_t now = fixed ? static_cast<std::time_t>(*fixed) : std::time(nullptr);
  if ((fixed ? gmtime_r(&now, &parts) : localtime_r(&now, &parts)) == nullptr)
    return invalid_argument("the time given to strftime_now is out of range");
  // %f is Python's alone: microseconds, of which a fixed clock has none. %z and %Z are empty for a time without zone.
  std::string pattern;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i] == '%' && i + 1 < format.size() ? format[++i] : '\0';
    if (c == '\0') {
      pattern.push_back(format[i]);
    } else if (c == 'f') {
      pattern += "000000";
    } else if (c != 'z' && c != 'Z') {
      pattern.append({'%', c});
    }
  }
  pattern.push_back('.');  // so that an empty result is not an overflow
  std::string out(pattern.size() * 32 + 128, '\0');
  const size_t n = std::strftime(out.data(), out.size(), pattern.c_str(), &parts);
  out.resize(n == 0 ? 0 : n - 1);
  return Value::text(std::move(out));
}

constexpr Builtin kGlobals[] = {
    {"range", make_range, "/start /stop /step", 1},
    {"namespace", make_namespace, "*"},
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
    {"dict", refuse_function, "*"},
    {"cycler", refuse_function, "*"},
    {"joiner", refuse_function, "*"},
    {"lipsum", refuse_function, "*"},
};

template <auto kIs>
Result<Value> plain(Call& call) {
  return Value::boolean(std::invoke(kIs, call.self));
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is_int() || v.kind() == Kind::kBigInt; }
bool is_number(const Value& v) { return v.is_real() || v.kind() == Kind::kBigInt; }
bool is_sequence(const Value& v) {
  const auto* series = v.object_as<Series>();
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is_dict() || (series != nullptr && series->is_range());
}

Result<bool> divides(Call& call, const Value& number, int64_t rest) {
  CHORAL_TRY(const Value left, binary(call.interp, Operator::kModulo, call.self, number));
  return equal(left, Value::integer(rest));
}

template <int kRest>
Result<Value> parity(Call& call) {
  CHORAL_TRY(const bool holds, divides(call, Value::integer(2), kRest));
  return Value::boolean(holds);
}

Result<Value> divisible(Call& call) {
  CHORAL_TRY(const bool holds, divides(call, *call.bound[0], 0));
  return Value::boolean(holds);
}

template <Operator kOp>
Result<Value> compared(Call& call) {
  CHORAL_TRY(const bool holds, compare(call.interp, kOp, call.self, *call.bound[0]));
  return Value::boolean(holds);
}

Result<Value> same_as(Call& call) { return Value::boolean(call.self.same(*call.bound[0])); }

constexpr Builtin kTests[] = {
    {"defined", plain<is_defined>, "", 0, false},
    {"undefined", plain<&Value::is_undefined>, "", 0, false},
    {"none", plain<&Value::is_none>, "", 0, false},
    {"boolean", plain<&Value::is_bool>, "", 0, false},
    {"true", plain<is_true>, "", 0, false},
    {"false", plain<is_false>, "", 0, false},
    {"integer", plain<is_integer>, "", 0, false},
    {"float", plain<&Value::is_float>, "", 0, false},
    {"number", plain<is_number>, "", 0, false},
    {"string", plain<&Value::is_string>, "", 0, false},
    {"mapping", plain<&Value::is_dict>, "", 0, false},
    {"sequence", plain<is_sequence>, "", 0, false},
    {"iterable", plain<is_iterable>, "", 0, false},
    {"callable", plain<is_callable>, "", 0, false},
    {"sameas", same_as, "other", 1, false},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible, "num", 1},
    {"in", compared<Operator::kIn>, "/seq", 1},
    {"== eq equalto", compared<Operator::kEqual>, "/other", 1},
    {"!= ne", compared<Operator::kNotEqual>, "/other", 1},
    {"< lt lessthan", compared<Operator::kLess>, "/other", 1},
    {"<= le", compared<Operator::kLessEqual>, "/other", 1},
    {"> gt greaterthan", compared<Operator::kGreater>, "/other", 1},
    {">= ge", compared<Operator::kGreaterEqual>, "/other", 1},
};

Status bind(const Builtin& builtin, Call& call) {
  std::string_view names[4];
  size_t count = 0;
  for (std::string_view rest = builtin.parameters; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(' '));
    names[count++] = name;
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  const Arguments& args = call.args;
  if (args.positional.size() > count)
    return invalid_argument("{}() takes at most {} positional arguments but {} were given", builtin.name, count,
                            args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i) call.bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto i = static_cast<size_t>(std::find(names, names + count, name) - names);
    if (i == count) return invalid_argument("{}() got an unexpected keyword argument {}", builtin.name, name_repr(name));
    if (call.bound[i] != nullptr) return invalid_argument("{}() got multiple values for argument '{}'", builtin.name, name);
    call.bound[i] = &value;
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (call.bound[i] == nullptr)
      return invalid_argument("{}() missing a required argument: '{}'", builtin.name, names[i].substr(names[i][0] == '/'));
  }
  return {};
}

}  // namespace

Result<int64_t> Call::integer(size_t i, int64_t otherwise) const {
  if (bound[i] == nullptr) return otherwise;
  CHORAL_RETURN_IF_ERROR(check_defined(*bound[i]));
  if (bound[i]->is_integral()) return bound[i]->as_int();
  return invalid_argument("'{}' object cannot be interpreted as an integer", jinja::type_name(*bound[i]));
}

Result<std::string_view> Call::text(size_t i, std::string_view otherwise) const {
  if (!given(i)) return otherwise;
  CHORAL_RETURN_IF_ERROR(check_defined(*bound[i]));
  if (bound[i]->is_string()) return std::string_view(bound[i]->str());
  return invalid_argument("expected str, got {}", jinja::type_name(*bound[i]));
}

bool Call::flag(size_t i, bool otherwise) const { return bound[i] == nullptr ? otherwise : truth(*bound[i]); }

std::span<const Builtin> tests() { return kTests; }
std::span<const Builtin> globals() { return kGlobals; }

std::span<const Builtin> filters() {
  static const std::vector<Builtin> all = [] {
    std::vector<Builtin> out(text_filters().begin(), text_filters().end());
    out.insert(out.end(), sequence_filters().begin(), sequence_filters().end());
    return out;
  }();
  return all;
}

std::string_view refused_methods(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return "casefold center encode expandtabs format_map index isalnum isalpha isascii isdecimal isdigit isidentifier "
             "islower isnumeric isprintable isspace istitle isupper ljust maketrans rfind rindex rjust rpartition swapcase "
             "translate zfill";
    case Kind::kDict: return "copy fromkeys";
    case Kind::kList: return "copy count index";
    case Kind::kTuple: return "count index";
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
      return "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes";
    case Kind::kFloat: return "as_integer_ratio conjugate fromhex hex imag is_integer real";
    case Kind::kObject:
      return value.object_as<Series>() != nullptr ? "close count gi_frame index isdisjoint mapping send start step stop throw"
                                                  : "";
    default: return "";
  }
}

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Builtin& entry) { return has_word(entry.name, name); });
  return found == table.end() ? nullptr : &*found;
}

Status no_builtin(std::string_view kind, std::string_view name, std::string_view found) {
  if (has_word(kind == "filter" ? kRefusedFilters : kRefusedTests, name))
    return unsupported("the {} '{}' is not supported", kind, name);
  return invalid_argument("No {} named '{}'{}.", kind, name, found);
}

Result<Value> invoke(Interpreter& interp, const Builtin& builtin, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(interp.pay(builtin.linear, self, args));
  Call call{interp, self, args};
  if (builtin.parameters != "*") CHORAL_RETURN_IF_ERROR(bind(builtin, call));
  return builtin.body(call);
}

bool has_word(std::string_view words, std::string_view word) {
  if (word.empty() || word.find(' ') != word.npos) return false;
  for (size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

}  // namespace choral::text::jinja
