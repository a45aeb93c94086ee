// Typed access to the fields of a JSON object, with errors that name the field and the place.
// Thread-safety: reads a parsed document; the document's parser must outlive it.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "base/status.h"

namespace choral::text {

class JsonFields {
 public:
  using Element = simdjson::dom::element;

  // `where` is for messages ("pre_tokenizer") and must outlive this.
  static Result<JsonFields> of(Element element, std::string_view where) {
    simdjson::dom::object object;
    if (element.get(object)) return corrupt("{} is not a JSON object", where);
    return JsonFields(object, where);
  }

  // The field, or nothing when it is absent or null.
  std::optional<Element> find(std::string_view key) const {
    Element value;
    if (object_.at_key(key).get(value) || value.is_null()) return std::nullopt;
    return value;
  }
  Result<Element> require(std::string_view key) const {
    const auto value = find(key);
    if (!value) return corrupt("{} has no {}", where_, quoted(key));
    return *value;
  }
  Result<std::string_view> string(std::string_view key) const {
    CHORAL_TRY(const Element value, require(key));
    std::string_view out;
    if (value.get(out)) return wrong(key, "a string");
    return out;
  }
  Result<std::string_view> string_or(std::string_view key, std::string_view fallback) const {
    return find(key) ? string(key) : Result<std::string_view>(fallback);
  }
  Result<bool> boolean_or(std::string_view key, bool fallback) const {
    const auto value = find(key);
    bool out = fallback;
    if (value && value->get(out)) return wrong(key, "true or false");
    return out;
  }
  Result<int64_t> integer(std::string_view key) const {
    CHORAL_TRY(const Element value, require(key));
    int64_t out;
    if (value.get(out)) return wrong(key, "an integer");
    return out;
  }
  Result<simdjson::dom::array> array(std::string_view key) const {
    CHORAL_TRY(const Element value, require(key));
    simdjson::dom::array out;
    if (value.get(out)) return wrong(key, "an array");
    return out;
  }
  Result<simdjson::dom::object> object(std::string_view key) const {
    CHORAL_TRY(const Element value, require(key));
    simdjson::dom::object out;
    if (value.get(out)) return wrong(key, "an object");
    return out;
  }
  std::string_view where() const { return where_; }
  Status wrong(std::string_view key, std::string_view what) const {
    return corrupt("{}: {} is not {}", where_, quoted(key), what);
  }

 private:
  JsonFields(simdjson::dom::object object, std::string_view where) : object_(object), where_(where) {}
  simdjson::dom::object object_;
  std::string_view where_;
};

}  // namespace choral::text
