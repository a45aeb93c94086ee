#include "text/jinja/access.h"

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  const std::string_view type = type_name(value);
  if (type == "Namespace" || type == "Cycler" || type == "Joiner") return fmt::format("jinja2.utils.{} object", type);
  if (type == "Macro" || type == "LoopContext") return fmt::format("jinja2.runtime.{} object", type);
  return fmt::format("{} object", type);
}

Value missing_attribute(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("{} has no attribute {}", string_repr(object_name(object)), name_repr(name)));
}

// What Python's getattr gives; nothing when there is no such attribute.
Result<std::optional<Value>> own_attribute(Interpreter& interp, const Value& object, std::string_view name) {
  if (object.is_object()) {
    if (auto found = object.object()->attribute(interp, name)) return found;
  } else if (const Method* method = find_method(object, name)) {
    CHORAL_TRY(Value bound, interp.object(std::make_shared<Function>(method->name, method->body, object, true, method->linear)));
    return std::optional(std::move(bound));
  }
  const bool reserved = name.size() > 4 && name.starts_with("__") && name.ends_with("__") && !object.object_as<Namespace>();
  if (reserved || changes_its_value(object, name))
    return std::optional(
        Value::undefined(fmt::format("access to attribute {} of '{}' object is unsafe.", name_repr(name), type_name(object))));
  return std::optional<Value>();
}

// Where code point `i` of a text begins, counted from the nearer end.
Result<size_t> offset_of(Interpreter& interp, const Text& text, int64_t i) {
  const auto from_start = static_cast<size_t>(i);
  if (text.ascii()) return from_start;
  const size_t from_end = text.length - from_start;
  CHORAL_RETURN_IF_ERROR(interp.walk(std::min(from_start, from_end)));
  if (from_start <= from_end) return byte_offset(text.bytes, from_start);
  size_t at = text.bytes.size();
  for (size_t left = from_end; left > 0; --left) {
    do --at;
    while ((text.bytes[at] & 0xC0) == 0x80);
  }
  return at;
}

// Null when there is none.
Result<std::optional<Value>> own_item(Interpreter& interp, const Value& object, const Value& key) {
  if (object.is_dict()) {
    CHORAL_RETURN_IF_ERROR(interp.lookup_cost(key));
    if (!hashable(key)) return std::optional<Value>();
    const Value* found = object.dict().find(key);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  if (!key.is_integral()) return std::optional<Value>();
  const auto* range = object.object_as<Range>();
  const bool indexed = object.is_list() || object.is_tuple() || object.is_string() || range != nullptr;
  if (!indexed) return std::optional<Value>();
  const int64_t n = *length_of(object);
  int64_t i = key.as_int();
  if (i < 0) i += n;
  if (i < 0 || i >= n) return std::optional<Value>();
  if (range != nullptr) return std::optional(Value::integer(range->at(i)));
  if (!object.is_string()) return std::optional(object.items()[i]);
  const std::string& text = object.str();
  CHORAL_TRY(const size_t begin, offset_of(interp, object.text_value(), i));
  size_t end = begin;
  next_code_point(text, &end);
  return std::optional(Value::text(text.substr(begin, end - begin)));
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
  const uint64_t span =
      s > 0 ? (to > from ? static_cast<uint64_t>(to - from) : 0) : (from > to ? static_cast<uint64_t>(from - to) : 0);
  const uint64_t stride = s > 0 ? static_cast<uint64_t>(s) : uint64_t{0} - static_cast<uint64_t>(s);
  return Bounds{from, static_cast<int64_t>(span == 0 ? 0 : (span - 1) / stride + 1), s};
}

}  // namespace

bool is_callable(const Value& value) { return value.is_undefined() || (value.is_object() && value.object()->callable()); }

Result<Value> get_attribute(Interpreter& interp, const Value& object, std::string_view name) {
  CHORAL_RETURN_IF_ERROR(check_defined(object));
  CHORAL_RETURN_IF_ERROR(interp.walk(name.size()));
  CHORAL_TRY(auto own, own_attribute(interp, object, name));
  if (own) {
    // A dict may have a key that looks reserved; only a real attribute would win over it, and dicts show none of those.
    if (!own->is_undefined() || !object.is_dict() || changes_its_value(object, name)) return *std::move(own);
  }
  if (object.is_dict()) {
    if (const Value* found = object.dict().find(name)) return *found;
    if (own) return *std::move(own);
  }
  return missing_attribute(object, name);
}

Result<Value> get_item(Interpreter& interp, const Value& object, const Value& key) {
  CHORAL_RETURN_IF_ERROR(check_defined(object));
  CHORAL_TRY(auto item, own_item(interp, object, key));
  if (item) return *std::move(item);
  if (key.is_string()) {
    CHORAL_RETURN_IF_ERROR(interp.walk(key.str().size()));
    CHORAL_TRY(auto own, own_attribute(interp, object, key.str()));
    if (own) return *std::move(own);
    return missing_attribute(object, key.str());
  }
  if (key.is_undefined()) {
    return Value::undefined(fmt::format("{} has no element Undefined", object_name(object)));
  }
  CHORAL_TRY(const std::string shown, to_repr(interp, key));
  return Value::undefined(fmt::format("{} has no element {}", object_name(object), cut_name(shown)));
}

Result<Value> get_slice(Interpreter& interp, const Value& object, const Value& start, const Value& stop, const Value& step) {
  CHORAL_RETURN_IF_ERROR(check_defined(object));
  const auto* range = object.object_as<Range>();
  if (object.is_dict()) return invalid_argument("unhashable type: 'slice'");
  if (!object.is_list() && !object.is_tuple() && !object.is_string() && range == nullptr)
    return invalid_argument("'{}' object is not subscriptable", type_name(object));
  CHORAL_TRY(const Bounds bounds, slice_bounds(start, stop, step, *length_of(object)));
  const auto index = [&](int64_t i) { return bounds.start + i * bounds.step; };
  if (range != nullptr) {
    const int64_t first = range->at(bounds.start), stride = range->step() * bounds.step;
    return Value::object(std::make_shared<Range>(first, first + bounds.count * stride, stride));
  }
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

Result<Value> get_path(Interpreter& interp, const Value& object, const Value& path, const Value* otherwise) {
  Value current = object;
  const auto follow = [&](const Value& key) -> Status {
    CHORAL_RETURN_IF_ERROR(interp.step());
    CHORAL_TRY(current, get_item(interp, current, key));
    if (otherwise != nullptr && !otherwise->is_none() && current.is_undefined()) current = *otherwise;
    return {};
  };
  if (path.is_none()) return current;
  if (path.is_string()) CHORAL_RETURN_IF_ERROR(interp.walk(path.str().size()));
  if (!path.is_string()) {
    CHORAL_RETURN_IF_ERROR(follow(path));
    return current;
  }
  std::string_view rest = path.str();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool number =
        !part.empty() && part.size() < 10 && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    CHORAL_RETURN_IF_ERROR(follow(number ? Value::integer(std::stoll(std::string(part))) : Value::text(part)));
    if (dot == std::string_view::npos) return current;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace choral::text::jinja
