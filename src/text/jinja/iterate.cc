#include "text/jinja/iterate.h"

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict: return true;
    case Kind::kObject: return value.object()->iterable();
    default: return false;
  }
}

std::optional<int64_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return static_cast<int64_t>(value.text_value().length);
    case Kind::kList:
    case Kind::kTuple: return std::ssize(value.items());
    case Kind::kDict: return std::ssize(value.dict());
    case Kind::kObject: return value.object()->length();
    default: return std::nullopt;
  }
}

Result<std::shared_ptr<const Values>> elements_of(Interpreter& interp, const Value& value) {
  if (value.is_list() || value.is_tuple()) return value.shared_items();
  Values out;
  if (value.is_string()) {
    const size_t length = value.text_value().length;
    CHORAL_RETURN_IF_ERROR(interp.check_elements(length));
    CHORAL_RETURN_IF_ERROR(interp.step(length));
    CHORAL_RETURN_IF_ERROR(interp.allocated(length * 2 * sizeof(Value)));
    out.reserve(length);
    const std::string& text = value.str();
    for (size_t pos = 0; pos < text.size();) {
      const size_t start = pos;
      next_code_point(text, &pos);
      out.push_back(Value::text(text.substr(start, pos - start)));
    }
  } else if (value.is_dict()) {
    CHORAL_RETURN_IF_ERROR(interp.step(value.dict().size()));
    for (const auto& entry : value.dict().entries()) out.push_back(entry.first);
  } else if (auto* iterator = value.object_as<Iterator>()) {
    CHORAL_RETURN_IF_ERROR(interp.step(iterator->remaining()));
    while (true) {
      CHORAL_TRY(const Value* next, iterator->next());
      if (next == nullptr) break;
      out.push_back(*next);
    }
  } else if (value.is_object() && value.object()->iterable()) {
    CHORAL_RETURN_IF_ERROR(interp.step(static_cast<uint64_t>(value.object()->length().value_or(0))));
    CHORAL_TRY(out, value.object()->elements(interp));
  } else if (!value.is_undefined()) {
    return invalid_argument("'{}' object is not iterable", type_name(value));
  }
  CHORAL_RETURN_IF_ERROR(interp.allocated(out.size() * sizeof(Value)));
  return std::make_shared<const Values>(std::move(out));
}

Result<std::shared_ptr<Iterator>> iterate(Interpreter& interp, const Value& value) {
  if (value.object_as<Iterator>() != nullptr) return std::static_pointer_cast<Iterator>(value.shared_object());
  CHORAL_TRY(auto items, elements_of(interp, value));
  return std::make_shared<Iterator>("iterator", std::move(items), value.depth());
}

}  // namespace choral::text::jinja
