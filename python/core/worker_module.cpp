// The module penstock._worker: runs a job worker, for penstock.worker. Links only libpenstock_worker, so that
// workers contain no CUDA code.
#include "python/core/blocks.hpp"
#include "python/core/parts.hpp"

#include <penstock/error.hpp>
#include <penstock/job.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

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

/// The file of a data loader's marks, which its program reads after a worker's death (_loading.Marks): for each job its number, and the
/// place in its batch.
class job_marks {
 public:
  static void write_to(const nb::object& memory) {
    Py_buffer view{};  // never released: the marks are written until the process ends
    if (PyObject_GetBuffer(memory.ptr(), &view, PyBUF_WRITABLE) != 0) throw nb::python_error();
    numbers_ = {static_cast<std::uint64_t*>(view.buf), static_cast<std::size_t>(view.len) / sizeof(std::uint64_t)};
  }
  static void write(std::uint64_t job, std::uint64_t place) {
    if (numbers_.size() < 2) return;
    const std::size_t at = 2 * (job % (numbers_.size() / 2));
    std::atomic_ref(numbers_[at]).store(job, std::memory_order_relaxed);
    std::atomic_ref(numbers_[at + 1]).store(place, std::memory_order_relaxed);
  }

 private:
  static inline std::span<std::uint64_t> numbers_;
};

constexpr std::uint64_t no_index = ~std::uint64_t{0};

char* appended(char* to, std::string_view text) {
  return std::ranges::copy(text, to).out;
}

/// A call as Python sees it; valid only while it lasts.
class call_in_python {
 public:
  explicit call_in_python(JobCall& call) : call_(&call) {}
  void over() noexcept { call_ = nullptr; }

  /// A copy of the argument: the job may keep it, although its slot is reused.
  [[nodiscard]] memory_block argument() const {
    const auto bytes = here().argument();
    memory_block copy{block_cache::of_process().take(bytes.size()), bytes.size()};
    if (!bytes.empty()) std::memcpy(copy.memory.get(), bytes.data(), bytes.size());
    return copy;
  }
  [[nodiscard]] std::uint64_t job() const { return here().job(); }
  [[nodiscard]] std::uint32_t attempt() const { return here().attempt(); }
  [[nodiscard]] std::uint32_t worker() const { return here().worker(); }
  void describe(const std::string& work) const { here().describe(work); }
  /// Records the place in the batch of the sample that the call is loading, or what else the call is doing
  /// (_loading.Marks).
  void mark(std::uint64_t place) const { job_marks::write(here().job(), place); }
  /// Records that the call is loading "sample 37". Called for every sample, so the text is made here: making
  /// it in Python would take longer.
  void sample(std::uint64_t place, std::uint64_t index) const {
    mark(place);
    std::array<char, 40> text{};
    here().sample(index, {text.data(), std::to_chars(appended(text.data(), "sample "), text.end(), index).ptr});
  }
  /// Records that the call is loading "sample 37 of shard 1".
  void sample_of_shard(std::uint64_t place, std::uint64_t index, std::uint64_t shard) const {
    mark(place);
    std::array<char, 80> text{};
    char* const end = std::to_chars(appended(text.data(), "sample "), text.end(), index).ptr;
    here().sample(no_index, {text.data(), std::to_chars(appended(end, " of shard "), text.end(), shard).ptr});
  }
  /// Records that the call is loading a sample whose index is not a number.
  void sample_named(std::uint64_t place, const std::string& name) const {
    mark(place);
    here().sample(no_index, name);
  }
  /// (seconds of the call, seconds lost to slow samples, [(index, name, seconds)]); None if no sample was slow.
  [[nodiscard]] nb::object slow_samples() const {
    const auto seconds = [](std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); };
    const JobCall::slow_load all = here().slow_samples();
    if (all.slow.count() == 0) return nb::none();
    nb::list slowest;
    for (const auto& s : all.slowest) slowest.append(nb::make_tuple(s.index == no_index ? nb::none() : nb::cast(s.index), s.name, seconds(s.took)));
    return nb::make_tuple(seconds(all.busy), seconds(all.slow), slowest);
  }
  /// Writes the result directly where the caller will read it. The parts may be in the memory from reserve(),
  /// which becomes invalid.
  void give(const std::vector<nb::object>& parts) {
    part_views views(parts);
    JobCall& call = here();
    views.copy_out_of(std::exchange(reserved_, {}));
    const nb::gil_scoped_release others_run;
    try {
      views.write(call.result(views.size()));
    } catch (...) {
      too_large_ = std::current_exception();
      throw;
    }
  }
  /// Reserves memory for a result of at most `bytes` bytes where the caller will read it. Returns its address, valid until the next
  /// reserve() or give().
  std::uintptr_t reserve(std::uint64_t bytes) {
    reserved_ = {};
    reserved_ = here().result(bytes);
    return reinterpret_cast<std::uintptr_t>(reserved_.data());
  }
  /// Gives the result that was written to the reserved memory; `bytes` is its size.
  void finish(std::uint64_t bytes) { here().shorten_result(bytes); }
  [[nodiscard]] const std::exception_ptr& too_large() const noexcept { return too_large_; }

 private:
  [[nodiscard]] JobCall& here() const {
    if (call_ == nullptr) throw error({errc::usage, "this call is over", 0});
    return *call_;
  }
  JobCall* call_;
  std::span<const std::byte> reserved_;
  std::exception_ptr too_large_;
};

/// Calls run(call). If it returns a value, that is the job's error: (type, text, traceback).
void run_job(const nb::object& run, JobCall& call) {
  const nb::gil_scoped_acquire gil;
  const nb::object seen = nb::cast(new call_in_python(call), nb::rv_policy::take_ownership);
  auto& in_python = nb::cast<call_in_python&>(seen);
  std::string type;
  std::string text;
  std::string traceback;
  try {
    const nb::object why = run(seen);
    in_python.over();
    if (!in_python.too_large() && why.is_none()) return;
    if (!why.is_none()) {
      const nb::tuple said = nb::borrow<nb::tuple>(why);
      type = bytes_of(said[0]);
      text = bytes_of(said[1]);
      traceback = bytes_of(said[2]);
    }
  } catch (nb::python_error& raised) {
    in_python.over();
    type = text_of(raised.type().attr("__name__"));
    text = text_of(raised.value());
  }
  if (in_python.too_large()) std::rethrow_exception(in_python.too_large());
  throw job_exception(std::move(type), std::move(text), std::move(traceback));
}

/// When the process crashes, writes the frames of Python before its usual handler writes the native ones, which do not say what Python
/// was running. faulthandler calls _Py_DumpTraceback in its handlers, too: it allocates nothing and takes no lock. Without this function
/// only native frames are written.
class python_frames {
 public:
  /// Call on the thread that runs jobs, after the usual handlers have been installed.
  static void write_when_dying() {
    if (thread_ == std::this_thread::get_id()) return;
    thread_ = std::this_thread::get_id();
    dump_ = reinterpret_cast<dump_function*>(::dlsym(RTLD_DEFAULT, "_Py_DumpTraceback"));
    if (dump_ == nullptr) return;
    for (const int number : numbers) {
      struct sigaction action {};
      if (::sigaction(number, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) == 0 || action.sa_sigaction == on_death) continue;
      before_.at(static_cast<std::size_t>(number)) = action;
      action.sa_sigaction = on_death;
      ::sigaction(number, &action, nullptr);
    }
  }

 private:
  using dump_function = void(int, PyThreadState*);
  static constexpr std::array numbers{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

  static void on_death(int number, siginfo_t* info, void* context) {
    const int saved = errno;
    // If another thread got the signal, its handler passes it on to this one.
    if (std::this_thread::get_id() == thread_ && written_ == 0) {
      written_ = 1;
      if (PyThreadState* const state = PyGILState_GetThisThreadState()) dump_(STDERR_FILENO, state);
    }
    errno = saved;
    before_.at(static_cast<std::size_t>(number)).sa_sigaction(number, info, context);
  }

  static inline std::thread::id thread_;
  static inline dump_function* dump_ = nullptr;
  static inline volatile std::sig_atomic_t written_ = 0;
  static inline std::array<struct sigaction, NSIG> before_{};
};

int job_loop(const nb::object& run) {
  const nb::gil_scoped_release others_run;
  return job_main({{"call", [&run](JobCall& call) {
                     python_frames::write_when_dying();
                     run_job(run, call);
                   }}});
}

/// Returns in the workers that it forks, with the number of each. `unsafe()` is called before each fork.
std::uint32_t fork_worker_on_order(int socket, const nb::object& unsafe) {
  return fork_on_order(socket, {[&unsafe] { return nb::cast<std::string>(unsafe()); }, [] { PyOS_BeforeFork(); },
                                [] { PyOS_AfterFork_Parent(); }, [] { PyOS_AfterFork_Child(); }});
}

/// The state of a Mersenne Twister of which no number has been drawn, as CPython's random.Random keeps it: the index of the next
/// word, then the words. They are SplitMix64's numbers from the seed (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators, 2014), each the lower half of 64 bits and then the upper one.
struct twister_state {
  static constexpr std::size_t words = 624;
  std::uint32_t place = words;
  std::array<std::uint32_t, words> word{};
};

void fill_twister(std::uintptr_t address, std::uint64_t seed) {
  auto& state = *reinterpret_cast<twister_state*>(address);
  state.place = twister_state::words;
  for (std::size_t i = 0; i < twister_state::words; i += 2) {
    seed += 0x9E3779B97F4A7C15U;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    z ^= z >> 31U;
    state.word[i] = static_cast<std::uint32_t>(z);
    state.word[i + 1] = static_cast<std::uint32_t>(z >> 32U);
  }
}

}  // namespace
}  // namespace penstock::python

NB_MODULE(_worker, m) {
  namespace nb = nanobind;
  nb::set_leak_warnings(false);
  using penstock::python::call_in_python;
  penstock::python::bind_memory_block(m);
  nb::class_<call_in_python>(m, "Call")
      .def_prop_ro("argument", &call_in_python::argument)
      .def_prop_ro("job", &call_in_python::job)
      .def_prop_ro("attempt", &call_in_python::attempt)
      .def_prop_ro("worker", &call_in_python::worker)
      .def("describe", &call_in_python::describe, nb::arg("work"))
      // Without names of arguments, these calls take half as long.
      .def("mark", &call_in_python::mark)
      .def("sample", &call_in_python::sample)
      .def("sample_of_shard", &call_in_python::sample_of_shard)
      .def("sample_named", &call_in_python::sample_named)
      .def("slow_samples", &call_in_python::slow_samples)
      .def("reserve", &call_in_python::reserve, nb::arg("bytes"))
      .def("finish", &call_in_python::finish, nb::arg("bytes"))
      .def("give", &call_in_python::give, nb::arg("parts"));
  m.def("fill_twister", &penstock::python::fill_twister, nb::arg("address"), nb::arg("seed"));
  m.def("fork_on_order", &penstock::python::fork_worker_on_order, nb::arg("socket"), nb::arg("unsafe"));
  m.def("write_marks_to", &penstock::python::job_marks::write_to, nb::arg("memory"));
  m.def("session_file", &penstock::session_file, nb::arg("number"));
  m.def("job_loop", &penstock::python::job_loop, nb::arg("run"));
}
