// Memory that cannot be had, as a Status. The standard library and Arena throw std::bad_alloc; it is caught at few borders, where
// what was begun can be given up as a whole: a load, an adapter, a request, a step.
#pragma once

#include <new>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "base/status.h"

namespace choral {

// Says what was being done and which limit stands in the way, if that is known.
Status out_of_memory(std::string_view doing);

// The Status or Result of `work`; resource_exhausted when it ran out of memory while `doing`.
template <class Work>
std::invoke_result_t<Work> or_out_of_memory(std::string_view doing, Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // more than any memory holds
  }
  return out_of_memory(doing);
}

}  // namespace choral
