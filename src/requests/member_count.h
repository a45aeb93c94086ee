// How many members an aggregate has, at compile time: so that a table of its fields cannot forget one that is added.
#pragma once

#include <cstddef>

namespace choral::requests {

struct AnyMember {
  template <class T>
  operator T() const;  // never defined
};

template <class Aggregate, class... Members>
consteval size_t member_count() {
  if constexpr (requires { Aggregate{Members{}..., AnyMember{}}; }) {
    return member_count<Aggregate, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}

}  // namespace choral::requests
