// An immutable list that is shared by copies. A request's lists may be as long as the vocabulary; so each is in memory once,
// however many prompts and completions the request asks for. Reads like a vector. A value; thread-safe as such.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace choral::engine {

template <class T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = const T*;
  SharedList() = default;
  SharedList(std::vector<T> items) {
    if (!items.empty()) items_ = std::make_shared<const std::vector<T>>(std::move(items));
  }
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}

  bool empty() const { return items_ == nullptr; }
  size_t size() const { return empty() ? 0 : items_->size(); }
  const T* data() const { return empty() ? nullptr : items_->data(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](size_t i) const { return (*items_)[i]; }

 private:
  std::shared_ptr<const std::vector<T>> items_;  // null: empty
};

}  // namespace choral::engine
