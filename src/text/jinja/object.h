// Everything in the language that has identity or behaviour: functions, methods, macros, namespaces, loops, ranges, dict
// views and one-shot iterators. An Object answers only what it overrides; the defaults are Python's refusals.
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

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
  const Value* find_named(std::string_view name) const;
};

class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual Result<std::string> repr(Interpreter& interp) const;
  virtual bool truth() const { return true; }
  virtual uint64_t weight() const { return 1; }  // as Value::weight(): of what equals() looks at
  // One more than the deepest value whose destruction this one's may bring about. 0 for what the interpreter or the
  // stack keeps longer than any value that leads to it: namespaces, cyclers, loops.
  virtual uint32_t depth() const { return 0; }
  virtual bool callable() const { return false; }
  virtual Result<Value> call(Interpreter& interp, Arguments& args);
  virtual std::optional<Value> attribute(Interpreter& interp, std::string_view name);
  virtual bool iterable() const { return false; }
  virtual bool subscriptable() const { return false; }
  virtual bool reversible() const { return false; }
  virtual bool equals(const Object& other) const { return this == &other; }
  virtual std::optional<int64_t> length() const { return std::nullopt; }
  // The elements, for an iterable that can be read again and again.
  virtual Result<Values> elements(Interpreter& interp) const;
};

// A position in a sequence; as a value it is Python's generator: readable once, no length, always true. A filter that is
// lazy in Python runs at once here, and its error waits at the place where Python would meet it.
class Iterator final : public Object {
 public:
  // `items_depth`: of the deepest item.
  Iterator(std::string_view type, std::shared_ptr<const Values> items, uint32_t items_depth, Status error = {});
  std::string_view type_name() const override { return type_; }
  uint32_t depth() const override { return items_depth_ + 1; }
  Result<std::string> repr(Interpreter& interp) const override;
  bool iterable() const override { return true; }
  // Null when exhausted; an error once the items before it are read.
  Result<const Value*> next();
  size_t remaining() const { return items_->size() - position_; }

 private:
  std::string_view type_;
  std::shared_ptr<const Values> items_;
  uint32_t items_depth_;
  size_t position_ = 0;
  Status error_;
};

class Range final : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step);
  std::string_view type_name() const override { return "range"; }
  Result<std::string> repr(Interpreter& interp) const override;
  bool truth() const override { return count_ > 0; }
  bool iterable() const override { return true; }
  bool subscriptable() const override { return true; }
  bool reversible() const override { return true; }
  bool equals(const Object& other) const override;
  std::optional<int64_t> length() const override { return count_; }
  Result<Values> elements(Interpreter& interp) const override;
  int64_t at(int64_t i) const { return start_ + i * step_; }
  int64_t step() const { return step_; }

 private:
  int64_t start_, stop_, step_, count_;
};

class DictView final : public Object {
 public:
  enum class Part { kKeys, kValues, kItems };
  DictView(Value dict, Part part) : dict_(std::move(dict)), part_(part) {}
  std::string_view type_name() const override;
  Result<std::string> repr(Interpreter& interp) const override;
  bool truth() const override { return dict_.dict().size() > 0; }
  uint64_t weight() const override { return dict_.weight(); }
  uint32_t depth() const override { return dict_.depth() + 1; }
  bool iterable() const override { return true; }
  bool reversible() const override { return true; }
  bool equals(const Object& other) const override;
  std::optional<int64_t> length() const override { return std::ssize(dict_.dict()); }
  Result<Values> elements(Interpreter& interp) const override;

 private:
  Value dict_;
  Part part_;
};

// namespace(): the one thing a template can change. May contain itself; the interpreter empties all at the end.
class Namespace final : public Object {
 public:
  static constexpr uint64_t kEntryBytes = 8 * sizeof(Value);  // about what an attribute takes, with its place in the index
  explicit Namespace(Dict attributes) : attributes_(std::move(attributes)) {}
  std::string_view type_name() const override { return "Namespace"; }
  Result<std::string> repr(Interpreter& interp) const override;
  std::optional<Value> attribute(Interpreter& interp, std::string_view name) override;
  bool has(std::string_view name) const { return attributes_.find(name) != nullptr; }
  void set(std::string_view name, Value value) { attributes_.set(Value::text(name), std::move(value)); }
  void clear() { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

class Cycler final : public Object {
 public:
  explicit Cycler(Values items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Interpreter& interp, std::string_view name) override;
  Value next();
  void reset() { position_ = 0; }
  void clear() { items_.clear(); }

 private:
  Values items_;
  size_t position_ = 0;
};

class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  uint32_t depth() const override { return separator_.depth() + 1; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interp, Arguments& args) override;

 private:
  Value separator_;
  bool used_ = false;
};

// A global function, or a method bound to its value.
class Function final : public Object {
 public:
  using Body = Result<Value> (*)(Interpreter&, const Value& self, Arguments& args);
  Function(std::string_view name, Body body, Value self, bool method, bool linear = true)
      : name_(name), body_(body), self_(std::move(self)), method_(method), linear_(linear) {}
  std::string_view type_name() const override { return method_ ? "builtin_function_or_method" : "function"; }
  uint32_t depth() const override { return self_.depth() + 1; }
  Result<std::string> repr(Interpreter& interp) const override;
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interp, Arguments& args) override;

 private:
  std::string_view name_;
  Body body_;
  Value self_;
  bool method_, linear_;
};

}  // namespace choral::text::jinja
