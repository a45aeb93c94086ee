#include "text/jinja/globals.h"

#include <ctime>

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/text_form.h"

namespace choral::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;  // as in Jinja's sandbox
constexpr uint64_t kKeptBytes = 128;   // of a namespace or cycler without what it holds

Result<Value> make_range(Interpreter&, const Value&, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("range", args, {"", "", ""}, 1));
  CHORAL_TRY(int64_t start, int_argument(bound[0], 0));
  int64_t stop = start;
  if (bound[1] == nullptr) {
    start = 0;
  } else {
    CHORAL_TRY(stop, int_argument(bound[1], 0));
  }
  CHORAL_TRY(const int64_t step, int_argument(bound[2], 1));
  if (step == 0) return invalid_argument("range() arg 3 must not be zero");
  auto range = std::make_shared<Range>(start, stop, step);
  if (*range->length() > kMaxRange)
    return invalid_argument("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  return Value::object(std::move(range));
}

// dict(mapping or pairs, name=value, …)
Result<Dict> collect(Interpreter& interp, Arguments& args) {
  Dict out;
  if (args.positional.size() > 1) return invalid_argument("dict expected at most 1 argument, got {}", args.positional.size());
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is_dict()) {
      CHORAL_RETURN_IF_ERROR(interp.allocated(from.dict().size() * 4 * sizeof(Value)));
      out = from.dict();
    } else {
      CHORAL_TRY(const auto items, elements_of(interp, from));
      for (const Value& item : *items) {
        CHORAL_TRY(const auto pair, elements_of(interp, item));
        if (pair->size() != 2)
          return invalid_argument("dictionary update sequence element has length {}; 2 is required", pair->size());
        if (!hashable((*pair)[0])) return invalid_argument("unhashable type: '{}'", type_name((*pair)[0]));
        CHORAL_RETURN_IF_ERROR(interp.lookup_cost((*pair)[0]));
        CHORAL_RETURN_IF_ERROR(interp.allocated(4 * sizeof(Value)));
        out.set((*pair)[0], (*pair)[1]);
      }
    }
  }
  CHORAL_RETURN_IF_ERROR(interp.allocated(args.named.size() * Namespace::kEntryBytes));
  for (const auto& [name, value] : args.named) out.set(Value::text(name), value);
  return out;
}

Result<Value> make_dict_value(Interpreter& interp, const Value&, Arguments& args) {
  CHORAL_TRY(Dict entries, collect(interp, args));
  return interp.dict(std::move(entries));
}

Result<Value> make_namespace(Interpreter& interp, const Value&, Arguments& args) {
  CHORAL_TRY(Dict entries, collect(interp, args));
  CHORAL_RETURN_IF_ERROR(interp.allocated(kKeptBytes + entries.size() * Namespace::kEntryBytes));
  return Value::object(interp.keep<Namespace>(std::move(entries)));
}

Result<Value> make_cycler(Interpreter& interp, const Value&, Arguments& args) {
  if (args.positional.empty()) return invalid_argument("at least one item has to be provided");
  CHORAL_RETURN_IF_ERROR(interp.allocated(kKeptBytes + args.positional.size() * sizeof(Value)));
  return Value::object(interp.keep<Cycler>(args.positional));
}

Result<Value> make_joiner(Interpreter& interp, const Value&, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("joiner", args, {"sep"}));
  return interp.object(std::make_shared<Joiner>(bound[0] != nullptr ? *bound[0] : Value::text(", ")));
}

Result<Value> raise_exception(Interpreter& interp, const Value&, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("raise_exception", args, {"message"}, 1));
  CHORAL_TRY(std::string text, to_text(interp, *bound[0]));
  return interp.raise(std::move(text));
}

Result<Value> strftime_now(Interpreter& interp, const Value&, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("strftime_now", args, {"format"}, 1));
  CHORAL_TRY(const std::string_view format, text_argument(bound[0], ""));
  if (format.size() > 1000) return too_large("the format of strftime_now is longer than 1000 bytes");
  std::tm parts{};
  const std::time_t now = interp.now_unix_s() ? static_cast<std::time_t>(*interp.now_unix_s()) : std::time(nullptr);
  if (interp.now_unix_s() ? gmtime_r(&now, &parts) == nullptr : localtime_r(&now, &parts) == nullptr)
    return invalid_argument("the time given to strftime_now is out of range");
  // %f is Python's alone: microseconds, of which a fixed clock has none. %z and %Z are empty for a time without zone.
  std::string pattern;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] == '%' && i + 1 < format.size()) {
      const char c = format[++i];
      if (c == 'f') {
        pattern += "000000";
      } else if (c != 'z' && c != 'Z') {
        pattern.append({'%', c});
      }
    } else {
      pattern.push_back(format[i]);
    }
  }
  pattern.push_back('.');  // so that an empty result is not an overflow
  std::string out(pattern.size() * 32 + 128, '\0');
  const size_t n = std::strftime(out.data(), out.size(), pattern.c_str(), &parts);
  out.resize(n == 0 ? 0 : n - 1);
  return Value::text(std::move(out));
}

}  // namespace

std::vector<std::pair<std::string_view, Value>> global_functions() {
  static constexpr std::pair<std::string_view, Function::Body> kGlobals[] = {
      {"range", make_range},          {"dict", make_dict_value}, {"namespace", make_namespace},
      {"cycler", make_cycler},        {"joiner", make_joiner},   {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  std::vector<std::pair<std::string_view, Value>> out;
  for (const auto& [name, body] : kGlobals)
    out.emplace_back(name, Value::object(std::make_shared<Function>(name, body, Value::none(), false)));
  return out;
}

}  // namespace choral::text::jinja
