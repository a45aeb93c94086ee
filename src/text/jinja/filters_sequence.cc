#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

Result<Value> length(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("len", args));
  const auto n = length_of(subject);
  if (!n) return invalid_argument("object of type '{}' has no len()", type_name(subject));
  return Value::integer(*n);
}

Result<Value> first(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("do_first", args));
  if (subject.is_string() && !subject.str().empty()) return get_item(interp, subject, Value::integer(0));
  CHORAL_TRY(const auto iterator, iterate(interp, subject));
  CHORAL_TRY(const Value* item, iterator->next());
  return item != nullptr ? *item : Value::undefined("No first item, sequence was empty.");
}

bool reversible(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_list() || v.is_tuple() || v.is_dict() ||
         (v.is_object() && v.object()->reversible());
}

Result<Value> last(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("do_last", args));
  if (!reversible(subject)) return invalid_argument("'{}' object is not reversible", type_name(subject));
  if (subject.is_string() && !subject.str().empty()) return get_item(interp, subject, Value::integer(-1));
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  return items->empty() ? Value::undefined("No last item, sequence was empty.") : items->back();
}

Result<Value> list_filter(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("do_list", args));
  if (subject.is_list()) return subject;
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  return interp.list(*items);
}

Result<Value> reverse(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("do_reverse", args));
  if (subject.is_string()) {
    std::u32string points = decode(subject.str());
    std::reverse(points.begin(), points.end());
    return Value::text(encode(points));
  }
  if (!is_iterable(subject)) return invalid_argument("argument must be iterable");
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  Values out(items->rbegin(), items->rend());
  return reversible(subject) ? interp.iterator("reversed", std::move(out)) : interp.list(std::move(out));
}

Result<Value> join(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_join", args, {"d", "attribute"}));
  std::string separator;
  if (bound[0] != nullptr) {
    CHORAL_TRY(separator, to_text(interp, *bound[0]));
  }
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  std::string out;
  for (size_t i = 0; i < items->size(); ++i) {
    Value item = (*items)[i];
    if (bound[1] != nullptr && !bound[1]->is_none()) {
      CHORAL_TRY(item, get_path(interp, item, *bound[1]));
    }
    CHORAL_TRY(const std::string text, to_text(interp, item));
    CHORAL_RETURN_IF_ERROR(interp.look(separator.size() + text.size()));
    CHORAL_RETURN_IF_ERROR(interp.check_text(out.size() + separator.size() + text.size()));
    if (i > 0) out += separator;
    out += text;
  }
  return Value::text(std::move(out));
}

Result<Value> items(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("do_items", args));
  if (subject.is_undefined()) return interp.iterator("generator", {});
  if (!subject.is_dict()) return interp.iterator("generator", {}, invalid_argument("Can only get item pairs from a mapping."));
  CHORAL_TRY(Values pairs, DictView(subject, DictView::Part::kItems).elements(interp));
  return interp.iterator("generator", std::move(pairs));
}

Result<Value> default_filter(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_default", args, {"default_value", "boolean"}));
  const bool falls = subject.is_undefined() || (bool_argument(bound[1], false) && !truth(subject));
  if (!falls) return subject;
  return bound[0] != nullptr ? *bound[0] : Value::text("");
}

// foo|attr("x") is foo.x without falling back to foo["x"].
Result<Value> attr(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_attr", args, {"name"}, 1));
  CHORAL_RETURN_IF_ERROR(check_defined(subject));
  if (!bound[0]->is_string()) return invalid_argument("attribute name must be string, not '{}'", type_name(*bound[0]));
  const std::string& name = bound[0]->str();
  if (subject.is_dict() && find_method(subject, name) == nullptr && !changes_its_value(subject, name))
    return Value::undefined(fmt::format("'dict object' has no attribute {}", name_repr(name)));
  return get_attribute(interp, subject, name);
}

Result<Value> batch(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_batch", args, {"linecount", "fill_with"}, 1));
  CHORAL_TRY(const int64_t size, int_argument(bound[0], 0));
  CHORAL_TRY(const auto all, elements_of(interp, subject));
  Values out, line;
  const auto flush = [&]() -> Status {
    CHORAL_TRY(Value list, interp.list(std::exchange(line, {})));
    out.push_back(std::move(list));
    return {};
  };
  for (const Value& item : *all) {
    if (std::ssize(line) == size) CHORAL_RETURN_IF_ERROR(flush());
    line.push_back(item);
  }
  if (!line.empty()) {
    if (bound[1] != nullptr && !bound[1]->is_none() && std::ssize(line) < size) {
      if (size > static_cast<int64_t>(interp.limits().max_elements))
        return too_large("batch of {} elements (max_elements)", size);
      line.resize(size, *bound[1]);
    }
    CHORAL_RETURN_IF_ERROR(flush());
  }
  return interp.iterator("generator", std::move(out));
}

Result<Value> slice(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_slice", args, {"slices", "fill_with"}, 1));
  CHORAL_TRY(const int64_t slices, int_argument(bound[0], 0));
  CHORAL_TRY(const auto all, elements_of(interp, subject));
  if (slices == 0) return interp.iterator("generator", {}, invalid_argument("integer division or modulo by zero"));
  if (slices > static_cast<int64_t>(interp.limits().max_elements)) return too_large("{} slices (max_elements)", slices);
  CHORAL_RETURN_IF_ERROR(interp.allocated(static_cast<uint64_t>(std::max<int64_t>(slices, 0)) * 3 * sizeof(Value)));
  Values out;
  const auto n = static_cast<int64_t>(all->size());
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t count = n / slices + (i < n % slices ? 1 : 0);
    Values part(all->begin() + begin, all->begin() + begin + count);
    begin += count;
    if (bound[1] != nullptr && !bound[1]->is_none() && i >= n % slices) part.push_back(*bound[1]);
    CHORAL_TRY(Value list, interp.list(std::move(part)));
    out.push_back(std::move(list));
  }
  return interp.iterator("generator", std::move(out));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"length", length, false},
    {"count", length, false},
    {"first", first, false},
    {"last", last, false},
    {"list", list_filter},
    {"reverse", reverse},
    {"join", join},
    {"items", items},
    {"attr", attr, false},
    {"default", default_filter, false},
    {"d", default_filter, false},
    {"batch", batch},
    {"slice", slice},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kSequenceFilters; }

}  // namespace choral::text::jinja
