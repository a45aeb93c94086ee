#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/object.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

constexpr size_t kIndexFrom = 16;

Status too_heavy(uint64_t weight, uint32_t depth, const RenderLimits& limits) {
  if (depth > static_cast<uint32_t>(limits.max_value_depth))
    return too_large("values are nested more than {} deep (max_value_depth)", limits.max_value_depth);
  if (weight > limits.max_elements)
    return too_large("a list or dict would hold more than {} elements (max_elements)", limits.max_elements);
  return {};
}

// Numbers compare as Python's do: an int and a float by value, without rounding the int.
int compare_reals(const Value& a, const Value& b) {
  if (!a.is_float() && !b.is_float()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  if (a.is_float() && b.is_float()) return a.as_double() < b.as_double() ? -1 : a.as_double() > b.as_double();
  if (a.is_float()) return -compare_reals(b, a);
  const double d = b.as_double();
  if (std::isnan(d)) return -1;
  if (d >= 0x1p63) return -1;
  if (d < -0x1p63) return 1;
  const double whole = std::trunc(d);
  if (a.as_int() != static_cast<int64_t>(whole)) return a.as_int() < static_cast<int64_t>(whole) ? -1 : 1;
  return d > whole ? -1 : d < whole;
}

int key_class(const Value& v) { return v.is_real() ? 1 : static_cast<int>(v.kind()) + 2; }

}  // namespace

Text::Text(std::string s) : bytes(std::move(s)), length(code_point_count(bytes)) {}

// The undefined value keeps what a use of it says.
Value Value::undefined(std::string message) { return Value(Kind::kUndefined, std::make_shared<std::string>(std::move(message))); }
std::string_view Value::undefined_message() const {
  return shared_ ? get<std::string>() : std::string_view("value is undefined");
}
Value Value::big(std::string digits) { return Value(Kind::kBigInt, std::make_shared<std::string>(std::move(digits))); }
Value Value::text(std::string s) { return Value(Kind::kString, std::make_shared<Text>(std::move(s))); }

uint32_t Value::depth() const {
  if (is_sequence()) return sequence().depth;
  if (is_dict()) return dict().depth_;
  return is_object() ? object()->depth() : 0;
}

uint64_t Value::weight() const {
  switch (kind()) {
    case Kind::kString: return 1 + str().size() / 128;
    case Kind::kList:
    case Kind::kTuple: return sequence().weight;
    case Kind::kDict: return dict().weight_;
    case Kind::kBigInt: return 1 + big_digits().size() / 128;
    case Kind::kObject: {
      const auto* series = object_as<Series>();
      return series != nullptr ? series->elements().weight() : 1;
    }
    default: return 1;
  }
}

bool Value::same(const Value& other) const {
  if (kind() != other.kind()) return false;
  if (shared_ != other.shared_) return is_string() && str().size() < 2 && str() == other.str();  // Python keeps one of each
  return scalar_ == other.scalar_;
}

bool KeyLess::operator()(const Value& a, const Value& b) const {
  const int class_a = key_class(a), class_b = key_class(b);
  if (class_a != class_b) return class_a < class_b;
  if (class_a == 1) return compare_reals(a, b) < 0;
  switch (a.kind()) {
    case Kind::kString: return a.str() < b.str();
    case Kind::kBigInt: return a.big_digits() < b.big_digits();
    case Kind::kTuple:
      return std::lexicographical_compare(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), KeyLess());
    case Kind::kObject: return a.object() < b.object();
    default: return false;
  }
}

const Value* Dict::find(const Value& key) const {
  if (!index_.empty()) {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &entries_[it->second].second;
  }
  const KeyLess less;
  for (const auto& [k, v] : entries_)
    if (!less(k, key) && !less(key, k)) return &v;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) return find(Value::text(key));
  for (const auto& [k, v] : entries_)
    if (k.is_string() && k.str() == key) return &v;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  if (const Value* old = find(key)) {
    *const_cast<Value*>(old) = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(entries_.back().first, entries_.size() - 1);
  } else if (entries_.size() >= kIndexFrom) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
  }
}

Result<Value> make_sequence(Kind list_or_tuple, Values items, const RenderLimits& limits) {
  auto made = std::make_shared<Sequence>();
  for (const Value& v : items) {
    made->depth = std::max(made->depth, v.depth() + 1);
    made->weight += v.weight();
  }
  CHORAL_RETURN_IF_ERROR(too_heavy(made->weight, made->depth, limits));
  made->items = std::move(items);
  return Value(list_or_tuple, std::move(made));
}

Result<Value> make_dict(Dict dict, const RenderLimits& limits) {
  dict.depth_ = 1;
  dict.weight_ = 1;
  for (const auto& [k, v] : dict.entries_) {
    dict.depth_ = std::max({dict.depth_, k.depth() + 1, v.depth() + 1});
    dict.weight_ += k.weight() + v.weight();
  }
  CHORAL_RETURN_IF_ERROR(too_heavy(dict.weight_, dict.depth_, limits));
  return Value(Kind::kDict, std::make_shared<Dict>(std::move(dict)));
}

Result<Value> make_object(std::shared_ptr<Object> object, const RenderLimits& limits) {
  CHORAL_RETURN_IF_ERROR(too_heavy(1, object->depth(), limits));
  return Value::object(std::move(object));
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt:
    case Kind::kBigInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kObject: return value.object()->type_name();
  }
  return "object";
}

bool hashable(const Value& value) {
  if (value.is_tuple()) return std::all_of(value.items().begin(), value.items().end(), hashable);
  return !value.is_list() && !value.is_dict();
}

bool equal(const Value& a, const Value& b) {
  if (a.is_real() && b.is_real()) {
    if (a.is_float() && std::isnan(a.as_double())) return false;
    return compare_reals(a, b) == 0;
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kBigInt: return a.big_digits() == b.big_digits();
    case Kind::kString: return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return &a.sequence() == &b.sequence() ||
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
    case Kind::kDict: {
      if (&a.dict() == &b.dict()) return true;
      if (a.dict().size() != b.dict().size()) return false;
      return std::all_of(a.dict().entries().begin(), a.dict().entries().end(), [&](const Dict::Entry& entry) {
        const Value* other = b.dict().find(entry.first);
        return other != nullptr && equal(entry.second, *other);
      });
    }
    case Kind::kObject: {
      const auto *x = a.object_as<Series>(), *y = b.object_as<Series>();
      return a.object() == b.object() || (x != nullptr && y != nullptr && x->equals(*y));
    }
    default: return false;
  }
}

}  // namespace choral::text::jinja
