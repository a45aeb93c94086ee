#include <nlohmann/json.hpp>

#include "text/jinja/value.h"

namespace choral::text::jinja {
namespace {

// Events of the parser, whose own stack is a bit vector: depth is bounded here, not by the machine's stack.
class Builder {
 public:
  // The member types that nlohmann's parser asks for.
  using number_integer_t = int64_t;
  using number_unsigned_t = uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  explicit Builder(const RenderLimits& limits) : limits_(limits) {}

  bool null() { return add(Value::none()); }
  bool boolean(bool b) { return add(Value::boolean(b)); }
  bool number_integer(int64_t i) { return add(Value::integer(i)); }
  bool number_unsigned(uint64_t u) {
    return add(u <= INT64_MAX ? Value::integer(static_cast<int64_t>(u)) : Value::big(std::to_string(u)));
  }
  bool number_float(double d, const std::string& digits) {
    if (digits.find_first_of(".eE") == std::string::npos) return add(Value::big(digits));
    return add(Value::number(d));
  }
  bool string(std::string& s) { return add(Value::text(std::move(s))); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(true); }
  bool start_array(size_t) { return open(false); }
  bool key(std::string& s) {
    open_.back().key = Value::text(std::move(s));
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    if (status_.ok()) {
      std::string_view what = error.what();
      if (const size_t bracket = what.find("] "); bracket != std::string_view::npos) what.remove_prefix(bracket + 2);
      status_ = invalid_argument("bad JSON at byte {}: {}", position, what);
    }
    return false;
  }

  Result<Value> finish() && {
    CHORAL_RETURN_IF_ERROR(std::move(status_));
    return std::move(result_);
  }

 private:
  struct Level {
    bool is_object;
    Dict dict;
    Values list;
    Value key;
  };

  bool open(bool is_object) {
    if (open_.size() >= static_cast<size_t>(limits_.max_value_depth)) {
      status_ = too_large("the JSON is nested more than {} deep (max_value_depth)", limits_.max_value_depth);
      return false;
    }
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool add(Value value) {
    if (++count_ > limits_.max_elements) {
      status_ = too_large("the JSON holds more than {} values (max_elements)", limits_.max_elements);
      return false;
    }
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().dict.set(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().list.push_back(std::move(value));
    }
    return true;
  }

  bool close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    Result<Value> made = level.is_object ? make_dict(std::move(level.dict), limits_) : make_list(std::move(level.list), limits_);
    if (!made.ok()) {
      status_ = std::move(made).status();
      return false;
    }
    return add(std::move(made).value());
  }

  const RenderLimits& limits_;
  std::vector<Level> open_;
  size_t count_ = 0;
  Value result_;
  Status status_;
};

}  // namespace

Result<Value> read_json(std::string_view text, const RenderLimits& limits) {
  Builder handler(limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  return std::move(handler).finish();
}

}  // namespace choral::text::jinja
