// What the modules _core and _group share: the conversion of penstock::error to a Python exception, and waits
// that handle signals.
#pragma once

#include <penstock/error.hpp>

#include <nanobind/nanobind.h>

#include <exception>

namespace penstock::python {

namespace nb = nanobind;

/// Raises penstock.error, or the subclass for its kind: penstock._errors makes it.
inline void raise(const error& what) {
  try {
    const nb::object made = nb::module_::import_("penstock._errors")
                                .attr("make")(name_of(what.code()), what.what(), what.os_code());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  } catch (nb::python_error& failed) {
    failed.restore();
  }
}

/// Raises penstock::error in Python: for nanobind::register_exception_translator.
inline void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const error& what) {
    raise(what);
  }
}

/// Takes the GIL and runs Python's signal handlers; throws what they raise.
inline void look_after_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace penstock::python
