#include "serve/openai/long_json.h"

#include <optional>
#include <utility>

namespace choral::serve {
namespace {

class LongJsonText : public AnswerText {
 public:
  explicit LongJsonText(LongJson root) : root_(std::move(root)) {}

  bool write(size_t enough_bytes, std::string& out) override {
    if (root_) put(*std::exchange(root_, std::nullopt), out);
    while (!open_.empty()) {
      if (out.size() >= enough_bytes) return true;
      std::visit([&](auto& open) { go_on(open, open_.back().next++, out); }, open_.back().value);
    }
    return false;
  }

 private:
  // A list or an object whose first entries are written.
  struct Open {
    template <class T>
    explicit Open(T list_or_object) : value(std::in_place_type<T>, std::move(list_or_object)) {}
    std::variant<LongList, LongObject> value;
    size_t next = 0;
  };

  void put(LongJson json, std::string& out) {
    if (auto* value = std::get_if<Json>(&json.value())) {
      out += dumped(*value);
    } else if (auto* list = std::get_if<LongList>(&json.value())) {
      out += '[';
      open_.emplace_back(std::move(*list));
    } else {
      out += '{';
      open_.emplace_back(std::move(std::get<LongObject>(json.value())));
    }
  }

  // What is put may move what is open: nothing is read of it afterwards.
  void go_on(LongList& list, size_t at, std::string& out) {
    if (at == list.size) return close(']', out);
    if (at > 0) out += ',';
    put(list.entry(at), out);
  }
  void go_on(LongObject& object, size_t at, std::string& out) {
    if (at == object.members().size()) return close('}', out);
    LongObject::Member& member = object.members()[at];
    if (at > 0) out += ',';
    out += dumped(Json(member.name));
    out += ':';
    put(std::move(member.value), out);
  }
  void close(char bracket, std::string& out) {
    out += bracket;
    open_.pop_back();
  }

  std::optional<LongJson> root_;  // not begun
  std::vector<Open> open_;        // outermost first
};

}  // namespace

LongObject::LongObject(Json members) {
  for (auto& [name, value] : members.items()) add(name, std::move(value));
}

void LongObject::add(std::string_view name, LongJson value) { members_.push_back({std::string(name), std::move(value)}); }

std::unique_ptr<AnswerText> long_text(LongJson json) { return std::make_unique<LongJsonText>(std::move(json)); }

}  // namespace choral::serve
