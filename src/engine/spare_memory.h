// Memory held back for the time when there is no more: telling somebody of a shortage takes some too, and so does a change that
// must be made whole once it is begun. It is given back to the system meanwhile. Belongs to one thread.
#pragma once

#include <memory>
#include <new>
#include <string_view>
#include <type_traits>

#include "base/out_of_memory.h"

namespace choral::engine {

class SpareMemory {
 public:
  // Takes it (again). False: there is none to be had now.
  bool keep() {
    if (held_ == nullptr) held_.reset(new (std::nothrow) char[kBytes]);
    return held_ != nullptr;
  }
  void give_back() { held_.reset(); }

  // As choral::or_out_of_memory(), whose error takes memory itself.
  template <class Work>
  std::invoke_result_t<Work> or_out_of_memory(std::string_view doing, Work&& work) {
    try {
      return choral::or_out_of_memory(doing, work);
    } catch (const std::bad_alloc&) {
      give_back();
      std::invoke_result_t<Work> error = out_of_memory(doing);
      keep();
      return error;
    }
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 20;
  std::unique_ptr<char[]> held_;
};

}  // namespace choral::engine
