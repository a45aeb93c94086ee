#include "text/grammar/plain_schema.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/json_quoted.h"
#include "text/grammar/json_schema_check.h"

namespace choral::text {
namespace {

using Element = simdjson::dom::element;
using Object = simdjson::dom::object;
using Array = simdjson::dom::array;
using Kind = SchemaNode::Kind;
using NodeId = std::optional<uint32_t>;  // none: the schema is not plain

constexpr size_t kMostNodes = 20000;
constexpr size_t kMostTextBytes = size_t{1} << 20;
constexpr int kMostInside = 64;
constexpr double kExact = 9e15;  // integers up to here are doubles too

std::bitset<256> bytes(std::string_view some) {
  std::bitset<256> set;
  for (const char c : some) set.set(static_cast<uint8_t>(c));
  return set;
}

class Reader {
 public:
  explicit Reader(Element root) : root_(root) {}

  NodeId schema(Element element);
  std::vector<SchemaNode> take() { return std::move(nodes_); }

 private:
  NodeId schema_here(Element element);
  NodeId add(SchemaNode node);
  // Whether every keyword in it that means something is among these.
  static bool has_only(Object object, std::initializer_list<std::string_view> keywords);
  NodeId of_type(Object object, std::string_view type);
  NodeId of_types(Object object, Array types);
  NodeId reference(std::string_view target);
  NodeId either(Array choices);
  NodeId either(std::vector<uint32_t> choices);
  NodeId one_of(Object object, const std::vector<Element>& values);
  NodeId object_of(Object object);
  NodeId array_of(Object object);
  NodeId string_of(Object object);
  NodeId integer_of(Object object);

  Element root_;
  std::vector<SchemaNode> nodes_;
  std::vector<size_t> depths_;                             // of nodes: containers in each other
  std::map<std::string, NodeId, std::less<>> references_;  // none: it is being read, or is not plain
  size_t text_bytes_ = 0;
  int inside_ = 0;  // so many schemas, by references too
};

bool is_of_type(Element value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_int64();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_bool();
  return type == "null" && value.is_null();
}

// Null: the value is no scalar, or may be written in several ways.
std::optional<std::string> text_of(Element value) {
  if (value.is_string()) return json_quoted(value.get_string().value());
  if (value.is_bool()) return value.get_bool().value() ? "true" : "false";
  if (value.is_null()) return "null";
  if (value.is_int64()) return std::to_string(value.get_int64().value());
  return std::nullopt;
}

NodeId Reader::add(SchemaNode node) {
  if (nodes_.size() >= kMostNodes) return std::nullopt;
  size_t depth = 0;
  const auto look = [&](uint32_t inner) { depth = std::max(depth, depths_[inner]); };
  for (const auto& property : node.properties) look(property.value);
  for (const uint32_t inner : node.nodes) look(inner);
  if (node.kind == Kind::kObject || node.kind == Kind::kArray) ++depth;
  if (depth > SchemaAutomaton::kMaxDepth) return std::nullopt;
  for (const std::string& text : node.texts) text_bytes_ += text.size();
  if (text_bytes_ > kMostTextBytes) return std::nullopt;
  nodes_.push_back(std::move(node));
  depths_.push_back(depth);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

bool Reader::has_only(Object object, std::initializer_list<std::string_view> keywords) {
  for (const auto& [key, value] : object) {
    if (std::find(keywords.begin(), keywords.end(), key) != keywords.end() || key == "$defs" || key == "definitions") continue;
    if (key == "const" || is_schema_keyword(key)) return false;
  }
  return true;
}

NodeId Reader::schema(Element element) {
  if (inside_ == kMostInside) return std::nullopt;
  ++inside_;
  const NodeId node = schema_here(element);
  --inside_;
  return node;
}

NodeId Reader::schema_here(Element element) {
  Object object;
  if (element.get(object)) {
    bool any = false;
    if (element.get(any) || !any) return std::nullopt;
    return add({.kind = Kind::kAny, .first = bytes("{[\"-0123456789tfn")});
  }
  if (std::string_view target; !object.at_key("$ref").get(target)) {
    return has_only(object, {"$ref"}) ? reference(target) : std::nullopt;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    if (Array choices; !object.at_key(key).get(choices)) return has_only(object, {key}) ? either(choices) : std::nullopt;
  }
  if (Array values; !object.at_key("enum").get(values)) return one_of(object, {values.begin(), values.end()});
  if (Element value; !object.at_key("const").get(value)) return one_of(object, {value});
  if (std::string_view type; !object.at_key("type").get(type)) return of_type(object, type);
  if (Array types; !object.at_key("type").get(types)) return of_types(object, types);
  if (!object.at_key("properties").error()) return object_of(object);
  if (!has_only(object, {})) return std::nullopt;
  return add({.kind = Kind::kAny, .first = bytes("{[\"-0123456789tfn")});
}

NodeId Reader::of_type(Object object, std::string_view type) {
  if (type == "object") return object_of(object);
  if (type == "array") return array_of(object);
  if (type == "string") return string_of(object);
  if (type == "integer") return integer_of(object);
  if (!has_only(object, {"type"})) return std::nullopt;
  if (type == "number") return add({.kind = Kind::kNumber, .first = bytes("-0123456789")});
  if (type == "boolean") return add({.kind = Kind::kOneOf, .texts = {"false", "true"}, .first = bytes("ft")});
  return add({.kind = Kind::kOneOf, .texts = {"null"}, .first = bytes("n")});
}

// Scalars without a bound, and null: what else stands beside several types speaks of one of them.
NodeId Reader::of_types(Object object, Array types) {
  if (!has_only(object, {"type"})) return std::nullopt;
  std::vector<uint32_t> choices;
  for (const Element each : types) {
    const std::string_view type = each.get_string().value();
    if (type == "object" || type == "array") return std::nullopt;
    const NodeId node = of_type(object, type);
    if (!node) return std::nullopt;
    choices.push_back(*node);
  }
  return either(std::move(choices));
}

NodeId Reader::reference(std::string_view target) {
  const auto [at, is_new] = references_.try_emplace(std::string(target), std::nullopt);
  if (!is_new) return at->second;
  Element found = root_;
  if (target != "#" && root_.at_pointer(target.substr(1)).get(found)) return std::nullopt;
  return at->second = schema(found);
}

NodeId Reader::either(Array choices) {
  std::vector<uint32_t> nodes;
  for (const Element each : choices) {
    const NodeId node = schema(each);
    if (!node) return std::nullopt;
    nodes.push_back(*node);
  }
  return either(std::move(nodes));
}

NodeId Reader::either(std::vector<uint32_t> choices) {
  if (choices.size() == 1) return choices.front();
  SchemaNode node{.kind = Kind::kEither};
  for (const uint32_t choice : choices) {
    const SchemaNode& each = nodes_[choice];
    if ((node.first & each.first).any()) return std::nullopt;
    node.first |= each.first;
    if (each.kind == Kind::kEither) {
      node.nodes.insert(node.nodes.end(), each.nodes.begin(), each.nodes.end());
    } else {
      node.nodes.push_back(choice);
    }
  }
  return add(std::move(node));
}

NodeId Reader::one_of(Object object, const std::vector<Element>& values) {
  if (!has_only(object, {"enum", "const", "type"})) return std::nullopt;
  if (!object.at_key("enum").error() && !object.at_key("const").error()) return std::nullopt;
  SchemaNode node{.kind = Kind::kOneOf};
  const auto type = object.at_key("type");
  for (const Element value : values) {
    std::string_view name;
    if (!type.error() && (type.get(name) || !is_of_type(value, name))) return std::nullopt;
    auto text = text_of(value);
    if (!text) return std::nullopt;
    node.first.set(static_cast<uint8_t>(text->front()));
    node.texts.push_back(std::move(*text));
  }
  std::sort(node.texts.begin(), node.texts.end());
  node.texts.erase(std::unique(node.texts.begin(), node.texts.end()), node.texts.end());
  return add(std::move(node));
}

NodeId Reader::object_of(Object object) {
  if (!has_only(object, {"type", "properties", "required", "additionalProperties"})) return std::nullopt;
  if (Element more; !object.at_key("additionalProperties").get(more)) {
    bool allowed = true;
    if (more.get(allowed) || allowed) return std::nullopt;
  }
  Object properties;
  if (object.at_key("properties").get(properties) || properties.begin() == properties.end()) return std::nullopt;
  SchemaNode node{.kind = Kind::kObject, .first = bytes("{")};
  std::vector<std::pair<std::string, uint32_t>> names;
  for (const auto& [name, value] : properties) {
    const NodeId inner = schema(value);
    if (!inner) return std::nullopt;
    names.emplace_back(json_quoted(name).substr(1), static_cast<uint32_t>(names.size()));
    node.properties.push_back({*inner, 0});
  }
  std::sort(names.begin(), names.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(names.begin(), names.end(), same) != names.end()) return std::nullopt;
  std::vector<bool> is_required(names.size());
  if (Array required; !object.at_key("required").get(required)) {
    for (const Element each : required) {
      const std::string name = json_quoted(each.get_string().value()).substr(1);
      const auto at = std::lower_bound(names.begin(), names.end(), std::pair(name, uint32_t{0}));
      if (at == names.end() || at->first != name) return std::nullopt;
      is_required[at->second] = true;
    }
  }
  auto next = static_cast<uint32_t>(names.size());
  for (uint32_t place = next; place-- > 0;) {
    if (is_required[place]) next = place;
    node.properties[place].required_from = next;
  }
  for (auto& [name, place] : names) {
    node.texts.push_back(std::move(name));
    node.places.push_back(place);
  }
  return add(std::move(node));
}

// False: there is a bound that is no count.
bool read_bounds(Object object, const char* least_key, const char* most_key, SchemaNode& node) {
  node.most = SchemaNode::kUnbounded;
  const auto read = [&](const char* key, int64_t& bound) {
    const auto value = object.at_key(key);
    return value.error() == simdjson::NO_SUCH_FIELD || !value.get(bound);
  };
  return read(least_key, node.least) && read(most_key, node.most) && node.least <= node.most;
}

NodeId Reader::array_of(Object object) {
  SchemaNode node{.kind = Kind::kArray, .first = bytes("[")};
  if (!has_only(object, {"type", "items", "minItems", "maxItems"}) || !read_bounds(object, "minItems", "maxItems", node)) {
    return std::nullopt;
  }
  Element items;
  if (object.at_key("items").get(items) || items.is_array()) return std::nullopt;
  const NodeId inner = schema(items);
  if (!inner) return std::nullopt;
  node.nodes.push_back(*inner);
  return add(std::move(node));
}

NodeId Reader::string_of(Object object) {
  SchemaNode node{.kind = Kind::kString, .first = bytes("\"")};
  if (!has_only(object, {"type", "minLength", "maxLength"}) || !read_bounds(object, "minLength", "maxLength", node)) {
    return std::nullopt;
  }
  return add(std::move(node));
}

NodeId Reader::integer_of(Object object) {
  if (!has_only(object, {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) return std::nullopt;
  SchemaNode node{.kind = Kind::kInteger, .least = -SchemaNode::kUnbounded, .most = SchemaNode::kUnbounded};
  for (const auto& [key, value] : object) {
    double bound = 0;
    if (value.get(bound)) continue;  // no bound, or none that is a number
    if (std::abs(bound) > kExact) return std::nullopt;
    if (key == "minimum") node.least = std::max(node.least, static_cast<int64_t>(std::ceil(bound)));
    if (key == "exclusiveMinimum") node.least = std::max(node.least, static_cast<int64_t>(std::floor(bound)) + 1);
    if (key == "maximum") node.most = std::min(node.most, static_cast<int64_t>(std::floor(bound)));
    if (key == "exclusiveMaximum") node.most = std::min(node.most, static_cast<int64_t>(std::ceil(bound)) - 1);
  }
  if (node.least > node.most) return std::nullopt;
  if (node.least < 0) node.first.set('-');
  if (node.most >= 0) node.first |= bytes("0123456789");
  return add(std::move(node));
}

}  // namespace

std::shared_ptr<const SchemaAutomaton> read_plain_schema(std::string_view schema, std::shared_ptr<const JsonTokens> tokens) {
  simdjson::dom::parser parser;
  Element root;
  if (parser.parse(schema.data(), schema.size()).get(root)) return nullptr;
  Reader reader(root);
  const NodeId top = reader.schema(root);
  if (!top) return nullptr;
  return std::make_shared<const SchemaAutomaton>(reader.take(), *top, std::move(tokens));
}

}  // namespace choral::text
