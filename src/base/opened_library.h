// A library that is opened at run time, since most runs do without it, and is kept to the end of the program.
#pragma once

#include <dlfcn.h>

#include <string_view>

#include "base/status.h"

namespace choral {

struct OpenedLibrary {
  void* handle = nullptr;    // dlopen()'s
  std::string_view name;     // "libcurl"
  std::string_view lacking;  // how an error goes on behind "libcurl has no FUNCTION": why, and what to do

  // `out`: a pointer to a function of that name and of the pointer's type.
  template <class Pointer>
  Status find(const char* function, Pointer& out) const {
    out = reinterpret_cast<Pointer>(dlsym(handle, function));
    return out != nullptr ? Status() : unsupported("{} has no {}{}", name, function, lacking);
  }
};

}  // namespace choral
