// What the parts of the extension module share. The Python half (python/choral) gives these things the names and forms that
// users see.
#pragma once

#include <nanobind/nanobind.h>

#include "choral/llm.h"

namespace choral::python {

namespace nb = nanobind;

// Throws choral.ChoralError of the status's code. The GIL may be released.
[[noreturn]] void raise(const Status& status);

inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}
template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

void bind_errors(nb::module_& m);
void bind_options(nb::module_& m);
void bind_outputs(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_streams(nb::module_& m);
void bind_ops(nb::module_& m);

}  // namespace choral::python
