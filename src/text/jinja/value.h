// A value of the template language: what Python would hold, without Python's reach. None, booleans, 64-bit integers,
// floats, text, lists, tuples and dicts are immutable and shared; everything else (namespace, macro, loop, range, …) is an
// Object. What holds values knows its depth, lists and dicts their total weight too, which make_* keeps under the limits:
// so destroying, comparing or printing a value can overflow neither the stack nor the step budget.
// Thread-safety: immutable values may be shared between threads; Objects belong to one rendering.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/limits.h"

namespace choral::text::jinja {

class Value;
class Dict;
class Object;
using Values = std::vector<Value>;

// kBigInt: an integer of the JSON input past 64 bits. It can be printed, compared for equality and written back, no more.
enum class Kind : uint8_t { kUndefined, kNone, kBool, kInt, kFloat, kBigInt, kString, kList, kTuple, kDict, kObject };

struct Text {
  explicit Text(std::string s);
  std::string bytes;  // valid UTF-8
  size_t length;      // in code points
  bool ascii() const { return length == bytes.size(); }
};

struct Sequence {
  Values items;
  uint32_t depth = 1;
  uint64_t weight = 1;
};

class Value {
 public:
  Value() = default;
  static Value undefined(std::string message);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) { return integer_kind(Kind::kBool, b ? 1 : 0); }
  static Value integer(int64_t i) { return integer_kind(Kind::kInt, i); }
  static Value number(double d) { return integer_kind(Kind::kFloat, std::bit_cast<int64_t>(d)); }
  static Value big(std::string digits);
  static Value text(std::string s);
  static Value text(std::string_view s) { return text(std::string(s)); }
  static Value text(const char* s) { return text(std::string(s)); }
  static Value object(std::shared_ptr<Object> o) { return Value(Kind::kObject, std::move(o)); }

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_tuple() const { return kind() == Kind::kTuple; }
  bool is_sequence() const { return is_list() || is_tuple(); }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_integral() const { return is_bool() || is_int(); }  // an int to Python's arithmetic
  bool is_real() const { return is_integral() || is_float(); }

  // Only for the kind named.
  std::string_view undefined_message() const;
  bool as_bool() const { return scalar_ != 0; }
  int64_t as_int() const { return scalar_; }  // also of a bool
  double as_double() const { return is_float() ? std::bit_cast<double>(scalar_) : static_cast<double>(scalar_); }
  const std::string& big_digits() const { return get<std::string>(); }
  const std::string& str() const { return get<Text>().bytes; }
  const Text& text_value() const { return get<Text>(); }
  const Sequence& sequence() const { return get<Sequence>(); }
  const Values& items() const { return sequence().items; }
  const Dict& dict() const { return get<Dict>(); }
  Object* object() const { return static_cast<Object*>(shared_.get()); }
  std::shared_ptr<Object> shared_object() const { return std::static_pointer_cast<Object>(shared_); }
  template <class T>
  T* object_as() const {
    return is_object() ? dynamic_cast<T*>(object()) : nullptr;
  }

  uint32_t depth() const;               // 0 for a scalar; of an object see Object::depth()
  uint64_t weight() const;              // values inside, itself included; text counts one per 128 bytes
  bool same(const Value& other) const;  // Python's `is`

 private:
  explicit Value(Kind kind, std::shared_ptr<void> shared = nullptr) : kind_(kind), shared_(std::move(shared)) {}
  static Value integer_kind(Kind kind, int64_t scalar) {
    Value value(kind);
    value.scalar_ = scalar;
    return value;
  }
  template <class T>
  const T& get() const {
    return *static_cast<const T*>(shared_.get());
  }
  friend Result<Value> make_sequence(Kind, Values, const RenderLimits&);
  friend Result<Value> make_dict(Dict, const RenderLimits&);

  Kind kind_ = Kind::kUndefined;
  int64_t scalar_ = 0;            // the bool, int or bits of the float
  std::shared_ptr<void> shared_;  // what the other kinds hold; of that type, see value.cc
};

// Keys of a dict: text, numbers (1, 1.0 and true are one key), None and tuples of such, in one total order.
struct KeyLess {
  bool operator()(const Value& a, const Value& b) const;
};

// Keeps the order of insertion; a key set again keeps its place.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);

 private:
  friend class Value;
  friend Result<Value> make_dict(Dict, const RenderLimits&);
  std::vector<Entry> entries_;
  std::map<Value, size_t, KeyLess> index_;  // only past a few entries; ordered, so no hash can be flooded
  uint32_t depth_ = 1;
  uint64_t weight_ = 1;
};

// too_large when the whole would be over max_elements or max_value_depth.
Result<Value> make_sequence(Kind list_or_tuple, Values items, const RenderLimits& limits);
inline Result<Value> make_list(Values items, const RenderLimits& limits) {
  return make_sequence(Kind::kList, std::move(items), limits);
}
Result<Value> make_dict(Dict dict, const RenderLimits& limits);
Result<Value> make_object(std::shared_ptr<Object> object, const RenderLimits& limits);

// Strict UTF-8 JSON, bounded in depth and size (json_read.cc). invalid_argument with the byte offset; lone surrogates and
// invalid UTF-8 are refused. A key given twice keeps its last value.
Result<Value> read_json(std::string_view text, const RenderLimits& limits);

std::string_view type_name(const Value& value);  // Python's: "str", "NoneType", …
bool hashable(const Value& value);
bool equal(const Value& a, const Value& b);  // Python's ==

}  // namespace choral::text::jinja
