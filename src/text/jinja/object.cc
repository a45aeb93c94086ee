#include "text/jinja/object.h"

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {

Result<std::string> Object::repr(Interpreter&) const {
  return invalid_argument("a '{}' object has no text of its own{}", type_name(),
                          type_name() == "generator" ? "; use |list or |join" : "");
}
Result<Value> Object::call(Interpreter&, Arguments&) { return invalid_argument("'{}' object is not callable", type_name()); }
Result<std::optional<Value>> Object::attribute(Interpreter&, std::string_view) { return std::optional<Value>(); }

std::string_view Series::type_name() const {
  constexpr std::string_view kNames[] = {"range", "dict_keys", "dict_values", "dict_items", "generator"};
  return kNames[static_cast<size_t>(type_)];
}

Result<std::string> Series::repr(Interpreter& interp) const {
  if (once()) return Object::repr(interp);
  if (is_range()) return origin_.str();
  CHORAL_TRY(const std::string text, to_repr(interp, elements_));
  return fmt::format("{}({})", type_name(), text);
}

bool Series::equals(const Series& other) const {
  if (type_ != other.type_) return false;
  switch (type_) {
    case Type::kRange: return equal(elements_, other.elements_);
    case Type::kItems: return equal(origin_, other.origin_);
    case Type::kKeys:
      return elements_.items().size() == other.elements_.items().size() &&
             std::all_of(elements_.items().begin(), elements_.items().end(),
                         [&](const Value& key) { return other.origin_.dict().find(key) != nullptr; });
    default: return this == &other;
  }
}

Result<std::string> Namespace::repr(Interpreter& interp) const {
  CHORAL_TRY(const Value dict, interp.dict(attributes_));
  CHORAL_TRY(const std::string text, to_repr(interp, dict));
  return fmt::format("<Namespace {}>", text);
}

Result<std::optional<Value>> Namespace::attribute(Interpreter&, std::string_view name) {
  const Value* found = attributes_.find(name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

Result<Value> Function::call(Interpreter& interp, Arguments& args) { return invoke(interp, *builtin_, self_, args); }

Result<Value> elements_of(Interpreter& interp, const Value& value) {
  if (value.is_sequence()) return value;
  Values out;
  if (value.is_string()) {
    const size_t length = value.text_value().length;
    CHORAL_RETURN_IF_ERROR(interp.check_elements(length));
    CHORAL_RETURN_IF_ERROR(interp.step(length));
    CHORAL_RETURN_IF_ERROR(interp.allocated(length * 2 * sizeof(Value)));
    const std::string& text = value.str();
    for (size_t pos = 0; pos < text.size();) {
      const size_t start = pos;
      next_code_point(text, &pos);
      out.push_back(Value::text(text.substr(start, pos - start)));
    }
  } else if (value.is_dict()) {
    CHORAL_RETURN_IF_ERROR(interp.step(value.dict().size()));
    for (const auto& entry : value.dict().entries()) out.push_back(entry.first);
  } else if (auto* series = value.object_as<Series>()) {
    if (!series->once()) return series->elements();
    CHORAL_RETURN_IF_ERROR(interp.step(series->left()));
    while (const Value* next = series->next()) out.push_back(*next);
  } else if (!value.is_undefined()) {
    return invalid_argument("'{}' object is not iterable", type_name(value));
  }
  CHORAL_RETURN_IF_ERROR(interp.allocated(out.size() * sizeof(Value)));
  return interp.list(std::move(out));
}

Result<std::shared_ptr<Series>> iterate(Interpreter& interp, const Value& value) {
  if (auto* series = value.object_as<Series>(); series != nullptr && series->once())
    return std::static_pointer_cast<Series>(value.shared_object());
  CHORAL_TRY(Value elements, elements_of(interp, value));
  return std::make_shared<Series>(Series::Type::kIterator, std::move(elements));
}

bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is_dict() || v.object_as<Series>() != nullptr;
}

std::optional<int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return static_cast<int64_t>(value.text_value().length);
  if (value.is_sequence()) return std::ssize(value.items());
  if (value.is_dict()) return std::ssize(value.dict());
  const auto* series = value.object_as<Series>();
  return series != nullptr && !series->once() ? std::optional(std::ssize(series->elements().items())) : std::nullopt;
}

bool is_callable(const Value& value) { return value.is_undefined() || (value.is_object() && value.object()->callable()); }

}  // namespace choral::text::jinja
