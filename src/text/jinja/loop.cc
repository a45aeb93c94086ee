#include "text/jinja/loop.h"

#include <algorithm>

#include "text/jinja/arguments.h"

namespace choral::text::jinja {

Result<Value> loop_cycle(Interpreter&, const Value& self, Arguments& args) {
  const auto* loop = self.object_as<Loop>();
  if (args.positional.empty()) return invalid_argument("no items for cycling given");
  return args.positional[static_cast<size_t>(loop->index0_) % args.positional.size()];
}

Result<Value> loop_changed(Interpreter& interp, const Value& self, Arguments& args) {
  auto* loop = self.object_as<Loop>();
  const auto& now = args.positional;
  for (const Value& value : now) CHORAL_RETURN_IF_ERROR(interp.compare_cost(value, value));
  const bool same = loop->changed_ && std::equal(loop->changed_->begin(), loop->changed_->end(), now.begin(), now.end(), equal);
  if (loop->outer_ == nullptr && !loop->changed_) {  // a loop that is over can hold others from now on, and itself
    CHORAL_RETURN_IF_ERROR(interp.allocated(sizeof(Loop)));
    interp.keep_object(self.shared_object());
  }
  if (!same) loop->changed_ = now;
  return Value::boolean(!same);
}

Loop::Loop(std::shared_ptr<Iterator> source, Accept accept, std::optional<int64_t> known_length, const Stmt* stmt, ScopePtr outer,
           int depth)
    : source_(std::move(source)),
      accept_(std::move(accept)),
      length_(known_length),
      stmt_(stmt),
      outer_(std::move(outer)),
      depth_(depth) {}

void Loop::clear() {
  accept_ = nullptr;
  outer_ = nullptr;
  before_ = current_ = after_ = std::nullopt;
  changed_ = std::nullopt;
  source_ = std::make_shared<Iterator>("iterator", std::make_shared<const Values>(), 0);
}

Result<std::optional<Value>> Loop::draw() const {
  while (true) {
    CHORAL_TRY(const Value* next, source_->next());
    if (next == nullptr) return std::optional<Value>();
    const Value value = *next;
    if (!accept_) return std::optional(value);
    CHORAL_TRY(const bool accepted, accept_(value));
    if (accepted) return std::optional(value);
  }
}

void Loop::peek() const {
  if (after_ || ended_ || !error_.ok()) return;
  Result<std::optional<Value>> drawn = draw();
  if (!drawn.ok()) {
    error_ = drawn.status();
    return;
  }
  after_ = std::move(drawn).value();
  ended_ = !after_;
}

Result<bool> Loop::advance() {
  peek();
  CHORAL_RETURN_IF_ERROR(error_);
  if (!after_) return false;
  ++index0_;
  before_ = std::move(current_);
  current_ = std::exchange(after_, std::nullopt);
  return true;
}

std::optional<int64_t> Loop::length() const {
  if (length_) return length_;
  auto rest = std::make_shared<Values>();
  peek();
  const int64_t peeked = after_ ? 1 : 0;
  while (error_.ok() && !ended_) {
    Result<std::optional<Value>> drawn = draw();
    if (!drawn.ok()) {
      error_ = drawn.status();
    } else if (!drawn->has_value()) {
      break;
    } else {
      rest->push_back(**drawn);
    }
  }
  length_ = index0_ + 1 + peeked + static_cast<int64_t>(rest->size());
  // What was read passed the test already; the iterator gives it again without asking.
  source_ = std::make_shared<Iterator>("iterator", std::move(rest), source_->depth());
  const_cast<Loop*>(this)->accept_ = nullptr;
  return length_;
}

Result<std::string> Loop::repr(Interpreter&) const { return fmt::format("<LoopContext {}/{}>", index0_ + 1, *length()); }

std::optional<Value> Loop::attribute(Interpreter&, std::string_view name) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "length") return Value::integer(*length());
  if (name == "revindex") return Value::integer(*length() - index0_);
  if (name == "revindex0") return Value::integer(*length() - index0_ - 1);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "last" || name == "nextitem") {
    peek();
    if (name == "last") return Value::boolean(!after_);
    return after_ ? *after_ : Value::undefined("there is no next item");
  }
  const Value self = Value::object(shared_from_this());
  if (name == "cycle") return Value::object(std::make_shared<Function>("cycle", loop_cycle, self, true));
  if (name == "changed") return Value::object(std::make_shared<Function>("changed", loop_changed, self, true));
  return std::nullopt;
}

Result<Value> Loop::call(Interpreter& interp, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("loop", args, {"iterable"}, 1));
  if (stmt_ == nullptr || !stmt_->recursive)
    return invalid_argument("The loop must have the 'recursive' marker to be called recursively.");
  if (outer_ == nullptr) return invalid_argument("the loop has ended");
  std::string out;
  Interpreter::Flow flow{};
  CHORAL_RETURN_IF_ERROR(interp.loop_over(*stmt_, *bound[0], depth_ + 1, outer_, &out, &flow));
  return Value::text(std::move(out));
}

}  // namespace choral::text::jinja
