#include "text/grammar/json_schema_check.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/printable.h"
#include "text/grammar/regex_size.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

using Element = simdjson::dom::element;

constexpr int64_t kMaxCount = 65536;    // of maxLength, minItems and the like
constexpr int kMaxReferenceChain = 64;  // of $refs that are nothing but a $ref
constexpr int kTagDepth = 16;           // of a structural tag around its schemas
constexpr size_t kMaxSchemas = 20000;   // in one text

constexpr std::array<std::string_view, 7> kTypes = {"array", "boolean", "integer", "null", "number", "object", "string"};

enum class Holds {
  kSchema,
  kSchemas,
  kNamedSchemas,
  kSchemaOrSchemas,
  kPatternSchemas,
  kPattern,
  kCount,
  kNumber,
  kType,
  kNames,
  kValues,
  kReference,
  kText,
  kUnserved
};
struct Keyword {
  std::string_view name;
  Holds holds;
};
// kUnserved: would be ignored by the library, so that an answer could break it.
constexpr std::array kKeywords = {
    Keyword{"$defs", Holds::kNamedSchemas},
    Keyword{"$ref", Holds::kReference},
    Keyword{"additionalItems", Holds::kSchema},
    Keyword{"additionalProperties", Holds::kSchema},
    Keyword{"allOf", Holds::kSchemas},
    Keyword{"anyOf", Holds::kSchemas},
    Keyword{"contains", Holds::kUnserved},
    Keyword{"definitions", Holds::kNamedSchemas},
    Keyword{"dependentRequired", Holds::kUnserved},
    Keyword{"dependentSchemas", Holds::kUnserved},
    Keyword{"else", Holds::kUnserved},
    Keyword{"enum", Holds::kValues},
    Keyword{"exclusiveMaximum", Holds::kNumber},
    Keyword{"exclusiveMinimum", Holds::kNumber},
    Keyword{"format", Holds::kText},
    Keyword{"if", Holds::kUnserved},
    Keyword{"items", Holds::kSchemaOrSchemas},
    Keyword{"maxItems", Holds::kCount},
    Keyword{"maxLength", Holds::kCount},
    Keyword{"maxProperties", Holds::kCount},
    Keyword{"maximum", Holds::kNumber},
    Keyword{"minItems", Holds::kCount},
    Keyword{"minLength", Holds::kCount},
    Keyword{"minProperties", Holds::kCount},
    Keyword{"minimum", Holds::kNumber},
    Keyword{"multipleOf", Holds::kUnserved},
    Keyword{"not", Holds::kUnserved},
    Keyword{"oneOf", Holds::kSchemas},
    Keyword{"pattern", Holds::kPattern},
    Keyword{"patternProperties", Holds::kPatternSchemas},
    Keyword{"prefixItems", Holds::kSchemas},
    Keyword{"properties", Holds::kNamedSchemas},
    Keyword{"propertyNames", Holds::kSchema},
    Keyword{"required", Holds::kNames},
    Keyword{"then", Holds::kUnserved},
    Keyword{"type", Holds::kType},
    Keyword{"unevaluatedItems", Holds::kSchema},
    Keyword{"unevaluatedProperties", Holds::kSchema},
    Keyword{"uniqueItems", Holds::kUnserved},
};

const Keyword* find_keyword(std::string_view name) {
  const auto at = std::lower_bound(kKeywords.begin(), kKeywords.end(), name,
                                   [](const Keyword& keyword, std::string_view n) { return keyword.name < n; });
  return at == kKeywords.end() || at->name != name ? nullptr : &*at;
}

class Checker {
 public:
  Checker(const GrammarLimits& limits, std::string_view what) : limits_(limits), what_(what) {}

  Status schema(Element element) { return schema_of(element, element); }
  Status format(Element element);

 private:
  // One more step of the path while it lives.
  class Step {
   public:
    Step(std::string& path, std::string_view name) : path_(path), size_(path.size()) {
      if (!path.empty()) path += '.';
      path += printable(name, 60);
    }
    Step(std::string& path, size_t index) : path_(path), size_(path.size()) { path += fmt::format("[{}]", index); }
    ~Step() { path_.resize(size_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    std::string& path_;
    size_t size_;
  };

  std::string place() const { return fmt::format("{}, {}", what_, path_.empty() ? "at its top" : path_); }
  Status wrong(std::string_view why) const { return invalid_argument("{}: {}", place(), why); }

  Status schema_of(Element element, Element root);
  Status schemas(Element element, Element root);
  Status named_schemas(Element element, Element root, bool patterns);
  Status keyword(Holds holds, Element value, Element root);
  Status pattern(std::string_view regex) const {
    return check_regex(regex, {.max_bytes = limits_.max_regex_bytes}).while_(place());
  }
  Status type(Element value) const;
  Status names(Element value) const;
  Status reference(Element value, Element root) const;
  Status unserved(Element value) const;

  const GrammarLimits& limits_;
  std::string_view what_;
  std::string path_;
  size_t seen_ = 0;
};

Status Checker::schema_of(Element element, Element root) {
  if (++seen_ > kMaxSchemas) return too_large("{}: more than {} schemas in one", what_, kMaxSchemas);
  if (element.is_bool()) return {};
  simdjson::dom::object object;
  if (element.get(object)) return wrong("a schema is an object, true or false");
  for (const auto& [key, value] : object) {
    const Keyword* known = find_keyword(key);
    if (!known) continue;
    const Step step(path_, key);
    CHORAL_RETURN_IF_ERROR(keyword(known->holds, value, root));
  }
  return {};
}

Status Checker::keyword(Holds holds, Element value, Element root) {
  switch (holds) {
    case Holds::kSchema: return schema_of(value, root);
    case Holds::kSchemas: return schemas(value, root);
    case Holds::kSchemaOrSchemas: return value.is_array() ? schemas(value, root) : schema_of(value, root);
    case Holds::kNamedSchemas: return named_schemas(value, root, false);
    case Holds::kPatternSchemas: return named_schemas(value, root, true);
    case Holds::kPattern: return value.is_string() ? pattern(value.get_string().value()) : wrong("a pattern is a string");
    case Holds::kCount: {
      int64_t count;
      if (value.get(count) || count < 0) return wrong("a count is an integer from 0");
      if (count > kMaxCount) return too_large("{}: {} is over {}, the most that is served", place(), count, kMaxCount);
      return {};
    }
    case Holds::kNumber: return value.is_number() ? Status() : wrong("a bound is a number");
    case Holds::kType: return type(value);
    case Holds::kNames: return names(value);
    case Holds::kValues: {
      simdjson::dom::array values;
      return value.get(values) || values.begin() == values.end() ? wrong("an enum is an array of one value or more") : Status();
    }
    case Holds::kReference: return reference(value, root);
    case Holds::kText: return value.is_string() ? Status() : wrong("a format is a string");
    case Holds::kUnserved: return unserved(value);
  }
  return {};
}

Status Checker::schemas(Element element, Element root) {
  simdjson::dom::array list;
  if (element.get(list) || list.begin() == list.end()) return wrong("an array of one schema or more is wanted");
  size_t index = 0;
  for (const Element each : list) {
    const Step step(path_, index++);
    CHORAL_RETURN_IF_ERROR(schema_of(each, root));
  }
  return {};
}

Status Checker::named_schemas(Element element, Element root, bool patterns) {
  simdjson::dom::object object;
  if (element.get(object)) return wrong("an object with a schema for each name is wanted");
  for (const auto& [name, value] : object) {
    const Step step(path_, name);
    if (patterns) CHORAL_RETURN_IF_ERROR(pattern(name));
    CHORAL_RETURN_IF_ERROR(schema_of(value, root));
  }
  return {};
}

Status Checker::type(Element value) const {
  const auto is_type = [](Element e) {
    return e.is_string() && std::binary_search(kTypes.begin(), kTypes.end(), e.get_string().value());
  };
  bool fits = is_type(value);
  if (simdjson::dom::array list; !value.get(list)) {
    fits = list.begin() != list.end();
    for (const Element each : list) fits = fits && is_type(each);
  }
  return fits ? Status() : wrong("a type is one of array, boolean, integer, null, number, object, string, or an array of these");
}

Status Checker::names(Element value) const {
  simdjson::dom::array list;
  bool fits = !value.get(list);
  if (fits) {
    for (const Element each : list) fits = fits && each.is_string();
  }
  return fits ? Status() : wrong("an array of property names is wanted");
}

Status Checker::reference(Element value, Element root) const {
  Element at = value;
  for (int hops = 0; hops < kMaxReferenceChain; ++hops) {
    std::string_view target;
    if (at.get(target)) return wrong("a $ref is a string");
    if (!target.starts_with('#')) return unsupported("{}: only references into the same schema (#/…) are served", place());
    Element found;
    if (target == "#") {
      found = root;
    } else if (target[1] != '/' || root.at_pointer(target.substr(1)).get(found)) {
      return wrong(fmt::format("{} is nowhere in this schema", quoted(target, 80)));
    }
    simdjson::dom::object object;
    if (found.get(object) || object.at_key("$ref").get(at)) return {};
  }
  return wrong("this $ref leads only to itself");
}

Status Checker::unserved(Element value) const {
  bool flag = true;
  if (!value.get(flag) && !flag) return {};  // "uniqueItems": false asks for nothing
  return unsupported("{}: this keyword cannot be kept while an answer is written; leave it out and check the answer", place());
}

// A structural tag's tree: whatever carries a schema, a regular expression, a grammar or a count, wherever it stands.
Status Checker::format(Element element) {
  if (simdjson::dom::array list; !element.get(list)) {
    size_t index = 0;
    for (const Element each : list) {
      const Step step(path_, index++);
      CHORAL_RETURN_IF_ERROR(format(each));
    }
    return {};
  }
  simdjson::dom::object object;
  if (element.get(object)) return {};
  for (const auto& [key, value] : object) {
    const Step step(path_, key);
    if (key == "json_schema" || key == "schema") {
      CHORAL_RETURN_IF_ERROR(schema(value));
    } else if (key == "pattern" && value.is_string()) {
      CHORAL_RETURN_IF_ERROR(pattern(value.get_string().value()));
    } else if (key == "grammar" && value.is_string()) {
      CHORAL_RETURN_IF_ERROR(check_ebnf(value.get_string().value(), limits_).while_(place()));
    } else if (int64_t count; (key == "min" || key == "max") && !value.get(count) && count > kMaxCount) {
      return too_large("{}: {} is over {}, the most that is served", place(), count, kMaxCount);
    } else {
      CHORAL_RETURN_IF_ERROR(format(value));
    }
  }
  return {};
}

Result<Element> parse(std::string_view text, std::string_view what, const GrammarLimits& limits, int max_depth,
                      simdjson::dom::parser& parser) {
  if (text.size() > limits.max_text_bytes) {
    return too_large("{}: it has {} bytes, {} are allowed", what, text.size(), limits.max_text_bytes);
  }
  if (parser.allocate(std::max<size_t>(text.size(), 64), static_cast<size_t>(max_depth))) {
    return resource_exhausted("{}: no memory to read it", what);
  }
  Element root;
  const simdjson::error_code error = parser.parse(text.data(), text.size()).get(root);
  if (error == simdjson::DEPTH_ERROR) return too_large("{}: it is nested more than {} deep", what, max_depth);
  if (error) return invalid_argument("{}: it is not JSON: {}", what, simdjson::error_message(error));
  return root;
}

// Moves behind a quoted text, a character class or a comment; 0 when it never ends.
size_t behind(std::string_view text, size_t begin, char end) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == end) {
      return i + 1;
    } else if (text[i] == '\n') {
      return 0;
    }
  }
  return 0;
}

}  // namespace

bool is_schema_keyword(std::string_view name) { return find_keyword(name) != nullptr; }

Status check_json_schema(std::string_view schema, const GrammarLimits& limits) {
  simdjson::dom::parser parser;
  CHORAL_TRY(const Element root, parse(schema, "JSON schema", limits, limits.max_depth, parser));
  return Checker(limits, "JSON schema").schema(root);
}

Status check_structural_tag(std::string_view tag, const GrammarLimits& limits) {
  simdjson::dom::parser parser;
  CHORAL_TRY(const Element root, parse(tag, "structural tag", limits, limits.max_depth + kTagDepth, parser));
  if (!root.is_object()) return invalid_argument("structural tag: an object is wanted");
  return Checker(limits, "structural tag").format(root);
}

Status check_ebnf(std::string_view grammar, const GrammarLimits& limits) {
  if (grammar.size() > limits.max_text_bytes) {
    return too_large("grammar: it has {} bytes, {} are allowed", grammar.size(), limits.max_text_bytes);
  }
  std::string storage;
  if (sanitize_utf8(grammar, storage).data() != grammar.data()) return invalid_argument("grammar: it is not UTF-8");
  int depth = 0;
  bool counting = false;  // inside {2,5}
  int64_t count = 0;
  for (size_t i = 0; i < grammar.size();) {
    const char c = grammar[i];
    if (c == '"' || c == '[') {
      const size_t end = behind(grammar, i, c == '"' ? '"' : ']');
      if (end == 0) return invalid_argument("grammar, byte {}: this {} is never closed", i, c);
      i = end;
      continue;
    }
    if (c == '#') {
      i = std::min(grammar.find('\n', i), grammar.size());
      continue;
    }
    depth += (c == '(') - (c == ')');
    if (depth < 0) return invalid_argument("grammar, byte {}: this ) closes nothing", i);
    if (depth > limits.max_depth)
      return too_large("grammar, byte {}: parentheses are nested more than {} deep", i, limits.max_depth);
    if (c == '{' || c == '}') counting = c == '{';
    const bool digit = c >= '0' && c <= '9';
    count = digit && counting ? count * 10 + (c - '0') : 0;
    if (count > kMaxCount) return too_large("grammar, byte {}: a repetition of more than {}", i, kMaxCount);
    ++i;
  }
  if (depth > 0) return invalid_argument("grammar: {} parentheses are never closed", depth);
  return {};
}

}  // namespace choral::text
