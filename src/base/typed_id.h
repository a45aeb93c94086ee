// An id as a type of its own: ids of other things do not convert into it, nor does a bare int. Compares and hashes as the
// number, and costs no more. A fresh TypedId is 0, which is never assigned. A plain value.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace choral {

// using FooId = TypedId<struct FooTag>;
template <class Tag>
class TypedId {
 public:
  constexpr TypedId() = default;
  constexpr explicit TypedId(int32_t value) : value_(value) {}
  constexpr int32_t value() const { return value_; }
  constexpr auto operator<=>(const TypedId&) const = default;

 private:
  int32_t value_ = 0;
};

}  // namespace choral

template <class Tag>
struct std::hash<choral::TypedId<Tag>> {
  size_t operator()(choral::TypedId<Tag> id) const { return std::hash<int32_t>()(id.value()); }
};
