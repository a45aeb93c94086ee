#include "text/jinja/arguments.h"

#include <algorithm>

#include "text/jinja/operators.h"

namespace choral::text::jinja {

Status bind_arguments(std::string_view function, const Arguments& args, std::span<const std::string_view> names, size_t required,
                      const Value** out) {
  if (args.positional.size() > names.size())
    return invalid_argument("{}() takes at most {} positional arguments but {} were given", function, names.size(),
                            args.positional.size());
  std::fill(out, out + names.size(), nullptr);
  for (size_t i = 0; i < args.positional.size(); ++i) out[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end() || name.empty())
      return invalid_argument("{}() got an unexpected keyword argument '{}'", function, name);
    const auto i = static_cast<size_t>(at - names.begin());
    if (out[i] != nullptr) return invalid_argument("{}() got multiple values for argument '{}'", function, name);
    out[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i] == nullptr) return invalid_argument("{}() missing a required argument: '{}'", function, names[i]);
  }
  return {};
}

Status no_arguments(std::string_view function, const Arguments& args) {
  if (args.positional.empty() && args.named.empty()) return {};
  return invalid_argument("{}() takes no arguments ({} given)", function, args.positional.size() + args.named.size());
}

Result<int64_t> int_argument(const Value* value, int64_t otherwise) {
  if (value == nullptr) return otherwise;
  CHORAL_RETURN_IF_ERROR(check_defined(*value));
  if (value->is_integral()) return value->as_int();
  return invalid_argument("'{}' object cannot be interpreted as an integer", type_name(*value));
}

Result<std::string_view> text_argument(const Value* value, std::string_view otherwise) {
  if (value == nullptr || value->is_none()) return otherwise;
  CHORAL_RETURN_IF_ERROR(check_defined(*value));
  if (value->is_string()) return std::string_view(value->str());
  return invalid_argument("expected str, got {}", type_name(*value));
}

bool bool_argument(const Value* value, bool otherwise) { return value == nullptr ? otherwise : truth(*value); }

}  // namespace choral::text::jinja
