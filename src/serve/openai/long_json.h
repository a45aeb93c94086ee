// JSON whose long lists are made entry by entry while they are written: an answer with a million log-probabilities is never in
// memory as a whole, neither as values nor as text. For .cc files only (serve/openai/json.h). Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "serve/openai/answer_form.h"
#include "serve/openai/json.h"

namespace choral::serve {

class LongJson;

// entry(i) is asked for each i once, in order, when it is written.
struct LongList {
  size_t size = 0;
  std::function<LongJson(size_t)> entry;
};

class LongObject {
 public:
  LongObject() = default;
  explicit LongObject(Json members);  // an object

  void add(std::string_view name, LongJson value);  // behind those before
  struct Member;
  std::vector<Member>& members() { return members_; }

 private:
  std::vector<Member> members_;
};

class LongJson {
 public:
  using Value = std::variant<Json, LongList, LongObject>;

  LongJson(Json value) : value_(std::in_place_type<Json>, std::move(value)) {}
  LongJson(LongList list) : value_(std::in_place_type<LongList>, std::move(list)) {}
  LongJson(LongObject object) : value_(std::in_place_type<LongObject>, std::move(object)) {}

  Value& value() { return value_; }

 private:
  Value value_;
};

struct LongObject::Member {
  std::string name;
  LongJson value;
};

// What the lists' functions refer to outlives it.
std::unique_ptr<AnswerText> long_text(LongJson json);

}  // namespace choral::serve
