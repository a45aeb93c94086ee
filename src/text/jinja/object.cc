#include "text/jinja/object.h"

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_form.h"

namespace choral::text::jinja {

const Value* Arguments::find_named(std::string_view name) const {
  for (const auto& [n, v] : named)
    if (n == name) return &v;
  return nullptr;
}

Result<std::string> Object::repr(Interpreter&) const { return fmt::format("<{} object>", type_name()); }
Result<Value> Object::call(Interpreter&, Arguments&) { return invalid_argument("'{}' object is not callable", type_name()); }
std::optional<Value> Object::attribute(Interpreter&, std::string_view) { return std::nullopt; }
Result<Values> Object::elements(Interpreter&) const { return invalid_argument("'{}' object is not iterable", type_name()); }

Iterator::Iterator(std::string_view type, std::shared_ptr<const Values> items, uint32_t items_depth, Status error)
    : type_(type), items_(std::move(items)), items_depth_(items_depth), error_(std::move(error)) {}

Result<std::string> Iterator::repr(Interpreter&) const { return fmt::format("<{} object>", type_); }

Result<const Value*> Iterator::next() {
  if (position_ < items_->size()) return &(*items_)[position_++];
  if (!error_.ok()) return std::exchange(error_, Status());
  return nullptr;
}

Range::Range(int64_t start, int64_t stop, int64_t step) : start_(start), stop_(stop), step_(step), count_(0) {
  const auto span = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? step : -static_cast<__int128>(step);
  if (span > 0) count_ = static_cast<int64_t>(std::min<__int128>((span + stride - 1) / stride, INT64_MAX));
}

Result<std::string> Range::repr(Interpreter&) const {
  return step_ == 1 ? fmt::format("range({}, {})", start_, stop_) : fmt::format("range({}, {}, {})", start_, stop_, step_);
}

bool Range::equals(const Object& other) const {
  const auto* that = dynamic_cast<const Range*>(&other);
  if (that == nullptr || that->count_ != count_) return false;
  return count_ == 0 || (start_ == that->start_ && (count_ == 1 || step_ == that->step_));
}

Result<Values> Range::elements(Interpreter&) const {
  Values out;
  out.reserve(count_);
  for (int64_t i = 0; i < count_; ++i) out.push_back(Value::integer(at(i)));
  return out;
}

std::string_view DictView::type_name() const {
  return part_ == Part::kKeys ? "dict_keys" : part_ == Part::kValues ? "dict_values" : "dict_items";
}

Result<Values> DictView::elements(Interpreter& interp) const {
  if (part_ == Part::kItems) CHORAL_RETURN_IF_ERROR(interp.allocated(dict_.dict().size() * 4 * sizeof(Value)));
  Values out;
  out.reserve(dict_.dict().size());
  for (const auto& [k, v] : dict_.dict().entries()) {
    if (part_ == Part::kItems) {
      CHORAL_TRY(Value pair, interp.tuple({k, v}));
      out.push_back(std::move(pair));
    } else {
      out.push_back(part_ == Part::kKeys ? k : v);
    }
  }
  return out;
}

Result<std::string> DictView::repr(Interpreter& interp) const {
  CHORAL_TRY(Values items, elements(interp));
  CHORAL_TRY(const Value list, interp.list(std::move(items)));
  CHORAL_TRY(const std::string text, to_repr(interp, list));
  return fmt::format("{}({})", type_name(), text);
}

bool DictView::equals(const Object& other) const {
  const auto* that = dynamic_cast<const DictView*>(&other);
  if (that == nullptr || part_ == Part::kValues || that->part_ != part_) return false;
  if (part_ == Part::kItems) return equal(dict_, that->dict_);
  if (dict_.dict().size() != that->dict_.dict().size()) return false;
  for (const auto& entry : dict_.dict().entries())
    if (that->dict_.dict().find(entry.first) == nullptr) return false;
  return true;
}

Result<std::string> Namespace::repr(Interpreter& interp) const {
  CHORAL_TRY(const Value dict, interp.dict(attributes_));
  CHORAL_TRY(const std::string text, to_repr(interp, dict));
  return fmt::format("<Namespace {}>", text);
}

std::optional<Value> Namespace::attribute(Interpreter&, std::string_view name) {
  const Value* found = attributes_.find(name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

Value Cycler::next() {
  Value out = items_[position_];
  position_ = (position_ + 1) % items_.size();
  return out;
}

std::optional<Value> Cycler::attribute(Interpreter&, std::string_view name) {
  if (name == "current") return items_[position_];
  const Value self = Value::object(shared_from_this());
  if (name == "next") {
    return Value::object(std::make_shared<Function>(
        "next", [](Interpreter&, const Value& cycler, Arguments&) -> Result<Value> { return cycler.object_as<Cycler>()->next(); },
        self, true));
  }
  if (name == "reset") {
    return Value::object(std::make_shared<Function>(
        "reset",
        [](Interpreter&, const Value& cycler, Arguments&) -> Result<Value> {
          cycler.object_as<Cycler>()->reset();
          return Value::none();
        },
        self, true));
  }
  return std::nullopt;
}

Result<Value> Function::call(Interpreter& interp, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(interp.pay(linear_, self_, args));
  return body_(interp, self_, args);
}

Result<Value> Joiner::call(Interpreter&, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("joiner", args));
  return std::exchange(used_, true) ? separator_ : Value::text("");
}

Result<std::string> Function::repr(Interpreter&) const {
  if (!method_) return fmt::format("<function {}>", name_);
  return fmt::format("<built-in method {} of {} object>", name_, jinja::type_name(self_));
}

}  // namespace choral::text::jinja
