// Statuses as exceptions: a class a code, below ChoralError, which choral/errors.py defines.
#include "binding.h"

namespace choral::python {
namespace {

struct StatusError {
  Status status;
};

void set_python_error(const Status& status) {
  const nb::object error = nb::module_::import_("choral.errors")
                               .attr("error_of")(nb::str(code_name(status.code()).data(), code_name(status.code()).size()),
                                                 nb::str(status.message().c_str()));
  PyErr_SetObject(error.type().ptr(), error.ptr());
}

}  // namespace

void raise(const Status& status) { throw StatusError{status}; }

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const StatusError& error) {
      set_python_error(error.status);
    }
  });
}

}  // namespace choral::python
