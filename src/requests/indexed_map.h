// The map of a JSON object that comes from outside: members in the order they were written, each found in log n steps.
// nlohmann's ordered_map looks through all members for each key it is given, the square of their number in all; and there is no
// hash that chosen keys could defeat. A key that stands twice keeps its place and gets the last value. Built by a parser, then
// only read; not thread-safe.
#pragma once

#include <map>
#include <nlohmann/json.hpp>

namespace choral::requests {

template <class Key, class T, class Less = std::less<Key>, class Allocator = std::allocator<std::pair<const Key, T>>>
class IndexedMap : public nlohmann::ordered_map<Key, T, Less, Allocator> {
  using Members = nlohmann::ordered_map<Key, T, Less, Allocator>;

 public:
  using Members::Members;

  T& operator[](const Key& key) {
    if (this->size() < kIndexFrom) return Members::operator[](key);
    for (size_t i = places_.size(); i < this->size(); ++i) places_.emplace(this->data()[i].first, i);
    const auto [place, is_new] = places_.emplace(key, this->size());
    if (is_new) this->emplace_back(key, T{});
    return this->data()[place->second].second;
  }

  // A parser with a filter drops members, which moves the others.
  typename Members::iterator erase(typename Members::iterator member) {
    places_.clear();
    return Members::erase(member);
  }

 private:
  static constexpr size_t kIndexFrom = 16;  // fewer are compared faster than looked up

  std::map<Key, size_t, std::less<>> places_;  // of the first members; the rest follows at the next key
};

}  // namespace choral::requests
