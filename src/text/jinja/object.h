// Everything in the language that has identity or behaviour: ranges, dict views, iterators, namespaces, functions, and (in
// control.h) macros and loops. An Object answers only what it overrides; the defaults are refusals.
// Thread-safety: one rendering, one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace choral::text::jinja {

class Interpreter;
struct Builtin;

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual Result<std::string> repr(Interpreter& interp) const;
  // One more than the deepest value whose destruction this one's may bring about. 0 for what the interpreter or the
  // stack keeps longer than any value that leads to it: namespaces, loops.
  virtual uint32_t depth() const { return 0; }
  virtual bool callable() const { return false; }
  virtual Result<Value> call(Interpreter& interp, Arguments& args);
  virtual Result<std::optional<Value>> attribute(Interpreter& interp, std::string_view name);
};

// Elements that can be read one by one. A range and the views of a dict can be read again and again; an iterator, which is
// what Python's lazy filters give, once, and it is always true and has no length. A lazy filter runs at once here.
class Series final : public Object {
 public:
  enum class Type { kRange, kKeys, kValues, kItems, kIterator };
  // `elements`: a list or tuple. `origin`: of a view its dict, of a range how it is printed.
  Series(Type type, Value elements, Value origin = {})
      : type_(type), elements_(std::move(elements)), origin_(std::move(origin)) {}
  std::string_view type_name() const override;
  Result<std::string> repr(Interpreter& interp) const override;
  uint32_t depth() const override { return elements_.depth() + 1; }
  bool equals(const Series& other) const;
  bool once() const { return type_ == Type::kIterator; }
  bool is_range() const { return type_ == Type::kRange; }
  const Value& elements() const { return elements_; }
  const Value* next() { return left() > 0 ? &elements_.items()[position_++] : nullptr; }
  size_t left() const { return elements_.items().size() - position_; }

 private:
  Type type_;
  Value elements_, origin_;
  size_t position_ = 0;
};

// namespace(): the one thing a template can change. May contain itself; the interpreter empties all at the end.
class Namespace final : public Object {
 public:
  static constexpr uint64_t kEntryBytes = 8 * sizeof(Value);  // about what an attribute takes, with its place in the index
  explicit Namespace(Dict attributes) : attributes_(std::move(attributes)) {}
  std::string_view type_name() const override { return "Namespace"; }
  Result<std::string> repr(Interpreter& interp) const override;
  Result<std::optional<Value>> attribute(Interpreter& interp, std::string_view name) override;
  bool has(std::string_view name) const { return attributes_.find(name) != nullptr; }
  void set(std::string_view name, Value value) { attributes_.set(Value::text(name), std::move(value)); }
  void clear() { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

// A global function, or a method bound to its value.
class Function final : public Object {
 public:
  Function(const Builtin* builtin, Value self, bool method) : builtin_(builtin), self_(std::move(self)), method_(method) {}
  std::string_view type_name() const override { return method_ ? "builtin_function_or_method" : "function"; }
  uint32_t depth() const override { return self_.depth() + 1; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interp, Arguments& args) override;

 private:
  const Builtin* builtin_;
  Value self_;
  bool method_;
};

// All elements of what Python would iterate, as a list or tuple: items, keys of a dict, characters of text, what is left of
// an iterator, which is read to its end. Undefined is empty.
Result<Value> elements_of(Interpreter& interp, const Value& value);
Result<std::shared_ptr<Series>> iterate(Interpreter& interp, const Value& value);  // an iterator gives itself
bool is_iterable(const Value& value);
std::optional<int64_t> length_of(const Value& value);  // what len() gives; nothing where it raises
bool is_callable(const Value& value);

}  // namespace choral::text::jinja
