#include "binding.h"

NB_MODULE(_choral, m) {
  m.doc() = "The engine, as the choral package binds it. Import choral instead.";
  m.attr("version") = nanobind::str(choral::version().data(), choral::version().size());
  choral::python::bind_errors(m);
  choral::python::bind_options(m);
  choral::python::bind_outputs(m);
  choral::python::bind_engine(m);
  choral::python::bind_streams(m);
  choral::python::bind_ops(m);
}
