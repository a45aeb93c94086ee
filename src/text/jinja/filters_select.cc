#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_form.h"

namespace choral::text::jinja {
namespace {

// A lazy filter of Python's: one element in, none or one out; the first error waits in the iterator.
template <class Each>
Result<Value> lazily(Interpreter& interp, const Value& subject, const Each& each) {
  Values out;
  if (!truth(subject)) return interp.iterator("generator", {});
  Result<std::shared_ptr<const Values>> items = elements_of(interp, subject);
  Status error = items.status();
  if (error.ok()) {
    for (const Value& item : **items) {
      error = each(item, &out);
      if (!error.ok()) break;
    }
  }
  if (error.code() == Code::kTooLarge) return error;
  return interp.iterator("generator", std::move(out), std::move(error));
}

Result<Value> map(Interpreter& interp, const Value& subject, Arguments& args) {
  if (args.positional.empty()) {
    const Value* attribute = args.find_named("attribute");
    const Value* otherwise = args.find_named("default");
    return lazily(interp, subject, [&](const Value& item, Values* out) -> Status {
      if (attribute == nullptr) return invalid_argument("map requires a filter argument");
      for (const auto& [name, value] : args.named)
        if (name != "attribute" && name != "default") return invalid_argument("Unexpected keyword argument {}", name_repr(name));
      CHORAL_TRY(Value value, get_path(interp, item, *attribute, otherwise));
      out->push_back(std::move(value));
      return {};
    });
  }
  return lazily(interp, subject, [&](const Value& item, Values* out) -> Status {
    const Value& name = args.positional[0];
    if (!name.is_string()) return invalid_argument("the filter name of map must be str, not {}", type_name(name));
    CHORAL_RETURN_IF_ERROR(interp.step(args.positional.size() + args.named.size()));
    Arguments rest{Values(args.positional.begin() + 1, args.positional.end()), args.named};
    CHORAL_TRY(Value value, interp.apply_filter(name.str(), item, rest));
    out->push_back(std::move(value));
    return {};
  });
}

template <bool kByAttribute, bool kKeep>
Result<Value> select(Interpreter& interp, const Value& subject, Arguments& args) {
  return lazily(interp, subject, [&](const Value& item, Values* out) -> Status {
    const size_t off = kByAttribute ? 1 : 0;
    if (args.positional.size() < off) return invalid_argument("Missing parameter for attribute name");
    Value tested = item;
    if (kByAttribute) {
      CHORAL_TRY(tested, get_path(interp, item, args.positional[0]));
    }
    bool holds = truth(tested);
    if (args.positional.size() > off) {
      const Value& name = args.positional[off];
      if (!name.is_string()) return invalid_argument("the test name must be str, not {}", type_name(name));
      CHORAL_RETURN_IF_ERROR(interp.step(args.positional.size() + args.named.size()));
      Arguments rest{Values(args.positional.begin() + static_cast<ptrdiff_t>(off) + 1, args.positional.end()), args.named};
      CHORAL_TRY(holds, interp.apply_test(name.str(), tested, rest));
    }
    if (holds == kKeep) out->push_back(item);
    return {};
  });
}

constexpr FilterEntry kSelectFilters[] = {
    {"map", map},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
};

}  // namespace

std::span<const FilterEntry> select_filters() { return kSelectFilters; }

}  // namespace choral::text::jinja
