// The module penstock._core: sessions, batches and configs, wrapped by the Python classes of the same names,
// which have the documentation. Events and reports are passed as JSON.
#include "python/core/module.hpp"

#include "python/core/errors.hpp"
#include "python/core/lease.hpp"
#include "python/core/session_core.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace penstock::python {
namespace {

// ---- sessions ---------------------------------------------------------------------------------------------

/// The program's on_event callback. Shared by the Python object, so that the garbage collector sees it, and
/// the session, whose thread calls it.
struct event_hook {
  nb::object callable;  // guarded by the GIL
  std::atomic<bool> off{false};

  void call(const event& what) {
    if (off) return;
    const std::string text = to_json(what);
    const nb::gil_scoped_acquire gil;
    if (!callable.is_valid()) return;
    const nb::object called = callable;
    try {
      called(text);
    } catch (nb::python_error& raised) {
      raised.discard_as_unraisable(called);
    }
  }
};

class session_handle {
 public:
  session_handle(const config& settings, bool digests, std::optional<std::uint64_t> batches, nb::bytes state,
                 bool control_socket, nb::object on_event, bool join_group, std::string config_file) {
    core_options options;
    options.digests = digests;
    options.batches = batches;
    const auto* begin = reinterpret_cast<const std::byte*>(state.c_str());
    options.state.assign(begin, begin + state.size());
    options.control_socket = control_socket;
    options.join_group = join_group;
    options.config_file = std::move(config_file);
    options.look_after_signals = look_after_signals;
    if (!on_event.is_none()) {
      hook_ = std::make_shared<event_hook>();
      hook_->callable = std::move(on_event);
      options.on_event = [hook = hook_](const event& what) { hook->call(what); };
    }
    const nb::gil_scoped_release others_run;
    core_ = session_core::make(settings, std::move(options));
  }
  ~session_handle() {
    if (!core_) return;
    close();
    const nb::gil_scoped_release others_run;
    core_.reset();
  }
  session_handle(const session_handle&) = delete;
  session_handle& operator=(const session_handle&) = delete;

  [[nodiscard]] const std::shared_ptr<session_core>& core() const { return core_; }
  void close(const std::string& by = {}, bool fails = false) {
    if (!core_->closed()) {
      const nb::gil_scoped_release others_run;
      core_->close(by, fails);
    }
    if (hook_) hook_->off = true;
    if (hook_) hook_->callable.reset();
  }
  /// The object's reference to the callback, for the garbage collector.
  [[nodiscard]] event_hook* hook() const { return hook_.get(); }

 private:
  std::shared_ptr<session_core> core_;
  std::shared_ptr<event_hook> hook_;
};

int traverse_session(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  if (event_hook* hook = nb::inst_ptr<session_handle>(self)->hook()) Py_VISIT(hook->callable.ptr());
  return 0;
}

int clear_session(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  if (event_hook* hook = nb::inst_ptr<session_handle>(self)->hook()) hook->callable.reset();
  return 0;
}

PyType_Slot session_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_session)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_session)},
                               {0, nullptr}};

class epoch_handle {
 public:
  epoch_handle(std::shared_ptr<session_core> core, std::uint64_t number)
      : core_(std::move(core)), epoch_(core_->epoch_of(number)) {}
  std::shared_ptr<lease> next() {
    const nb::gil_scoped_release others_run;
    return core_->next_of(epoch_);
  }

 private:
  std::shared_ptr<session_core> core_;
  session_core::epoch epoch_;
};

std::optional<std::chrono::milliseconds> as_time(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  if (!(*seconds >= 0)) throw error({errc::usage, "a time limit must be a number of seconds, 0 or more", 0});
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(*seconds, 1e9) * 1000));
}

void bind_sessions(nb::module_& m) {
  const auto core = [](const session_handle& s) -> session_core& { return *s.core(); };
  nb::class_<session_handle>(m, "Session", nb::type_slots(session_slots))
      .def(nb::init<const config&, bool, std::optional<std::uint64_t>, nb::bytes, bool, nb::object, bool,
                    std::string>(),
           nb::arg("settings"), nb::arg("digests"), nb::arg("batches").none(), nb::arg("state"),
           nb::arg("control_socket"), nb::arg("on_event").none(), nb::arg("join_group"),
           nb::arg("config_file"))
      .def("next",
           [core](const session_handle& s) {
             const nb::gil_scoped_release others_run;
             return core(s).next();
           })
      .def("epoch",
           [](const session_handle& s, std::uint64_t number) { return epoch_handle(s.core(), number); })
      .def("run_for",
           [core](const session_handle& s, double seconds) {
             const nb::gil_scoped_release others_run;
             return core(s).session().run_for(*as_time(seconds));
           })
      .def(
          "stop",
          [core](const session_handle& s, std::optional<double> seconds, const std::string& by) {
            const auto at_most = as_time(seconds);
            const nb::gil_scoped_release others_run;
            core(s).stop(at_most, by);
          },
          nb::arg("seconds").none(), nb::arg("by") = "")
      .def("close", &session_handle::close, nb::arg("by") = "", nb::arg("fails") = false)
      .def_prop_ro("closed", [core](const session_handle& s) { return core(s).closed(); })
      .def_prop_ro("lent", [core](const session_handle& s) { return core(s).lent(); })
      .def_prop_ro("buffers", [core](const session_handle& s) { return core(s).settings().gpu.buffers; })
      .def(
          "pause", [core](const session_handle& s) { core(s).session().pause(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "resume", [core](const session_handle& s) { core(s).session().resume(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "scale",
          [core](const session_handle& s, std::uint32_t workers) { core(s).session().scale(workers); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "scale_automatically", [core](const session_handle& s) { core(s).session().scale_automatically(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "restart",
          [core](const session_handle& s, std::uint32_t worker) { core(s).session().restart(worker); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "drain", [core](const session_handle& s, std::uint32_t worker) { core(s).session().drain(worker); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "retry_quarantined",
          [core](const session_handle& s, std::uint64_t sample) {
            return core(s).session().retry_quarantined(sample);
          },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "release_quarantined",
          [core](const session_handle& s, std::uint64_t sample) {
            return core(s).session().release_quarantined(sample);
          },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "status", [core](const session_handle& s) { return to_json(core(s).session().status()); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "report", [core](const session_handle& s) { return to_json(core(s).session().report()); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("state", [core](const session_handle& s) {
        std::vector<std::byte> state;
        {
          const nb::gil_scoped_release others_run;
          state = core(s).session().state();
        }
        return nb::bytes(reinterpret_cast<const char*>(state.data()), state.size());
      });
  m.def("leave_the_rest_to_the_exit", &leave_the_rest_to_the_exit, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<epoch_handle>(m, "Epoch").def("next", &epoch_handle::next);
}

// ---- batches ----------------------------------------------------------------------------------------------

/// One tensor of a batch. Supports Python's buffer protocol if it is on the host.
struct tensor_handle {
  std::shared_ptr<lease> held;
  std::size_t index = 0;
  bool record = false;

  [[nodiscard]] const leased_tensor& facts() const {
    return record ? held->records[index] : held->tensors[index];
  }
  [[nodiscard]] int cuda_device() const { return record ? -1 : held->cuda_device; }
};

/// The format code of Python's struct module; null for bfloat16, which it does not support.
const char* format_of(dtype type) {
  switch (type) {
    case dtype::uint8: return "B";
    case dtype::int8: return "b";
    case dtype::uint16: return "H";
    case dtype::int16: return "h";
    case dtype::uint32: return "I";
    case dtype::int32: return "i";
    case dtype::uint64: return "Q";
    case dtype::int64: return "q";
    case dtype::float16: return "e";
    case dtype::bfloat16: return nullptr;
    case dtype::float32: return "f";
    case dtype::float64: return "d";
  }
  return nullptr;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* t = nb::inst_ptr<tensor_handle>(self);
  const leased_tensor& facts = t->facts();
  const char* format = format_of(facts.type);
  view->obj = nullptr;
  if (t->cuda_device() >= 0) {
    PyErr_SetString(PyExc_BufferError, "this tensor is on a GPU: .numpy() copies it to the host");
    return -1;
  }
  if (format == nullptr && (flags & PyBUF_FORMAT) != 0) {
    PyErr_SetString(PyExc_BufferError,
                    "Python's buffer protocol has no bfloat16: use .torch() or .tobytes()");
    return -1;
  }
  static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
  const auto size = static_cast<Py_ssize_t>(size_of(facts.type));
  auto strides = std::make_unique<Py_ssize_t[]>(facts.strides.size() + 1);
  for (std::size_t i = 0; i < facts.strides.size(); ++i) strides[i] = facts.strides[i] * size;
  view->buf = facts.data;
  view->len = static_cast<Py_ssize_t>(facts.bytes);
  view->readonly = 0;
  view->itemsize = size;
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format) : nullptr;
  view->ndim = static_cast<int>(facts.shape.size());
  view->shape = (flags & PyBUF_ND) != 0
                    ? const_cast<Py_ssize_t*>(reinterpret_cast<const Py_ssize_t*>(facts.shape.data()))
                    : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? strides.get() : nullptr;
  view->suboffsets = nullptr;
  view->internal = strides.release();
  view->obj = self;
  Py_INCREF(self);
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) {
  delete[] static_cast<Py_ssize_t*>(view->internal);
}

PyType_Slot tensor_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {0, nullptr}};

nb::object capsule_of(const tensor_handle& t, bool versioned) {
  return dlpack_capsule(t.held, t.facts(), t.cuda_device(), versioned);
}

nb::list tensors_of(const std::shared_ptr<lease>& held, bool records) {
  nb::list all;
  const std::size_t count = records ? held->records.size() : held->tensors.size();
  for (std::size_t i = 0; i < count; ++i) all.append(tensor_handle{held, i, records});
  return all;
}

void bind_batches(nb::module_& m) {
  nb::class_<lease>(m, "Lease")
      .def_ro("epoch", &lease::epoch)
      .def_ro("sequence", &lease::sequence)
      .def_ro("samples", &lease::samples)
      .def_ro("cuda_device", &lease::cuda_device)
      .def("tensors", [](const std::shared_ptr<lease>& held) { return tensors_of(held, false); })
      .def("records", [](const std::shared_ptr<lease>& held) { return tensors_of(held, true); })
      .def_prop_ro("viewed", &lease::is_viewed)
      .def("release", &lease::release)
      .def("record_stream",
           [](lease& held, std::uint64_t stream) { held.record({reinterpret_cast<void*>(stream)}); });
  nb::class_<tensor_handle>(m, "Tensor", nb::type_slots(tensor_slots))
      .def_prop_ro("name", [](const tensor_handle& t) { return t.facts().name; })
      .def_prop_ro("dtype", [](const tensor_handle& t) { return std::string(name_of(t.facts().type)); })
      .def_prop_ro("itemsize", [](const tensor_handle& t) { return size_of(t.facts().type); })
      .def_prop_ro("nbytes", [](const tensor_handle& t) { return t.facts().bytes; })
      .def_prop_ro("shape", [](const tensor_handle& t) { return t.facts().shape; })
      .def_prop_ro("address",
                   [](const tensor_handle& t) {
                     t.held->begin_view();  // the end of this view is not reported
                     return reinterpret_cast<std::uint64_t>(t.facts().data);
                   })
      .def_prop_ro("cuda_device", &tensor_handle::cuda_device)
      .def("dlpack", &capsule_of, nb::arg("versioned"))
      .def("record_stream", [](const tensor_handle& t,
                               std::uint64_t stream) { t.held->record({reinterpret_cast<void*>(stream)}); })
      .def("read_back", [](const tensor_handle& t) {
        std::vector<std::byte> bytes;
        if (t.record) {
          const auto* begin = static_cast<const std::byte*>(t.facts().data);
          bytes.assign(begin, begin + t.facts().bytes);
        } else {
          const nb::gil_scoped_release others_run;
          bytes = t.held->read_back(t.index);
        }
        return nb::steal<nb::bytes>(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                                                  static_cast<Py_ssize_t>(bytes.size())));
      });
}

// ---- configs ----------------------------------------------------------------------------------------------

void bind_configs(nb::module_& m) {
  nb::class_<config>(m, "Config")
      .def("__copy__", [](const config& c) { return c; })
      .def("to_toml", [](const config& c) { return to_toml(c); })
      .def_prop_ro("name", [](const config& c) { return c.name; });
  m.def("load_config", [](const std::string& file, const std::vector<std::string>& overrides) {
    const nb::gil_scoped_release others_run;
    return load_config(file, overrides);
  });
  m.def("dry_run", [](const config& settings) {
    Session::outline o;
    {
      const nb::gil_scoped_release others_run;
      o = Session::dry_run(settings);
    }
    nb::dict facts;
    facts["samples"] = o.samples;
    facts["batches_per_epoch"] = o.batches_per_epoch;
    facts["expected_samples"] = o.expected_samples;
    facts["slot_bytes"] = o.slot_bytes;
    facts["slots_per_worker"] = o.slots_per_worker;
    facts["arena_bytes"] = o.arena_bytes;
    facts["workers"] = o.workers;
    facts["fingerprint"] = o.fingerprint;
    facts["notices"] = o.notices;
    return facts;
  });
}

}  // namespace

nb::object dlpack_capsule(std::shared_ptr<lease> held, const leased_tensor& tensor, int cuda_device,
                          bool versioned) {
  const char* name = versioned ? "dltensor_versioned" : "dltensor";
  void* made = versioned ? make_managed_tensor_versioned(std::move(held), tensor, cuda_device)
                         : make_managed_tensor(std::move(held), tensor, cuda_device);
  // A consumer renames the capsule and calls the deleter itself.
  const PyCapsule_Destructor drop = versioned
                                        ? +[](PyObject* capsule) {
                                            if (PyCapsule_IsValid(capsule, "dltensor_versioned") != 0)
                                              drop_managed_tensor_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
                                          }
                                        : +[](PyObject* capsule) {
                                            if (PyCapsule_IsValid(capsule, "dltensor") != 0)
                                              drop_managed_tensor(PyCapsule_GetPointer(capsule, "dltensor"));
                                          };
  return nb::steal(PyCapsule_New(made, name, drop));
}
}  // namespace penstock::python

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  nb::register_exception_translator(penstock::python::translate);
  // Objects in a module's globals may still be alive when the interpreter exits; that is not a leak.
  nb::set_leak_warnings(false);
  penstock::python::bind_configs(m);
  penstock::python::bind_sessions(m);
  penstock::python::bind_batches(m);
  penstock::python::bind_pools(m);
}
