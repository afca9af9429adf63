// The module penstock._worker: runs a job worker, for penstock.worker. Links only libpenstock_worker, so that
// workers contain no CUDA code.
#include "python/core/parts.hpp"

#include <penstock/job.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>

namespace penstock::python {
namespace {

/// The text of str(object); empty if that raises too.
std::string text_of(nb::handle object) {
  try {
    return nb::cast<std::string>(nb::str(object));
  } catch (...) {
    PyErr_Clear();
    return {};
  }
}

std::string bytes_of(nb::handle object) {
  const nb::bytes bytes = nb::borrow<nb::bytes>(object);
  return {bytes.c_str(), bytes.size()};
}

/// Calls run(argument, give, number, attempt), where give(parts) writes the result directly where the caller
/// will read it. If run() returns a value instead of calling give, it is the job's error: (type, text,
/// traceback).
void run_job(const nb::object& run, JobCall& call) {
  const nb::gil_scoped_acquire gil;
  const nb::object argument = nb::steal<nb::object>(
      PyMemoryView_FromMemory(reinterpret_cast<char*>(const_cast<std::byte*>(call.argument().data())),
                              static_cast<Py_ssize_t>(call.argument().size()), PyBUF_READ));
  std::exception_ptr too_large;
  const nb::object give = nb::cpp_function([&](const std::vector<nb::object>& parts) {
    const part_views views(parts);
    const nb::gil_scoped_release others_run;
    try {
      views.write(call.result(views.size()));
    } catch (...) {
      too_large = std::current_exception();
      throw;
    }
  });
  std::string type;
  std::string text;
  std::string traceback;
  try {
    const nb::object why = run(argument, give, call.job(), call.attempt());
    if (!too_large && why.is_none()) return;
    if (!why.is_none()) {
      const nb::tuple said = nb::borrow<nb::tuple>(why);
      type = bytes_of(said[0]);
      text = bytes_of(said[1]);
      traceback = bytes_of(said[2]);
    }
  } catch (nb::python_error& raised) {
    type = text_of(raised.type().attr("__name__"));
    text = text_of(raised.value());
  }
  if (too_large) std::rethrow_exception(too_large);
  throw job_exception(std::move(type), std::move(text), std::move(traceback));
}

int job_loop(const nb::object& run) {
  const nb::gil_scoped_release others_run;
  return job_main({{"call", [&run](JobCall& call) { run_job(run, call); }}});
}

}  // namespace
}  // namespace penstock::python

NB_MODULE(_worker, m) {
  namespace nb = nanobind;
  nb::set_leak_warnings(false);
  m.def("job_loop", &penstock::python::job_loop, nb::arg("run"));
}
