// Pools of jobs in the module penstock._core, wrapped by the Python class Pool.
#include "python/core/blocks.hpp"
#include "python/core/copied_in_children.hpp"
#include "python/core/lease.hpp"
#include "python/core/module.hpp"
#include "python/core/parts.hpp"

#include <penstock/pool.hpp>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <tuple>

namespace penstock::python {
namespace {

using namespace std::chrono_literals;

// The interval between checks for signals.
constexpr auto slice = 50ms;

std::optional<std::chrono::nanoseconds> as_nanoseconds(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::clamp(*seconds, 0.0, 1e8) * 1e9));
}

/// The parts of a job's argument in one piece.
Argument joined(const std::vector<nb::object>& parts) {
  const part_views views(parts);
  const nb::gil_scoped_release others_run;
  const std::size_t bytes = views.size();
  const auto whole = block_cache::of_process().take(bytes);
  views.write({whole.get(), bytes});
  return Argument::borrowed({whole.get(), bytes}, whole);
}

/// A result that Python reads in place.
class kept {
 public:
  explicit kept(Result result) : result_(std::move(result)), bytes_(result_.bytes()), in_children_(bytes_) {}
  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(bytes_.data());
  }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

 private:
  Result result_;
  std::span<const std::byte> bytes_;
  copied_in_children in_children_;
};

/// A result in a buffer of the pool's device, for penstock._gpu_half.
class device_result {
 public:
  explicit device_result(Result result) : result_(std::make_shared<Result>(std::move(result))) {
    const tensor_view view = result_->tensor();
    whole_.name = view.name;
    whole_.type = view.type;
    whole_.shape = {static_cast<std::int64_t>(view.bytes())};
    whole_.strides = {1};
    whole_.data = view.data;
    whole_.bytes = view.bytes();
    if (!view.on_host) cuda_device_ = view.bytes() > 0 ? device_of(view.data) : 0;
  }
  [[nodiscard]] std::uint64_t bytes() const { return whole_.bytes; }
  [[nodiscard]] int cuda_device() const { return cuda_device_; }
  [[nodiscard]] nb::object read_back() const {
    std::vector<std::byte> copy;
    {
      const nb::gil_scoped_release others_run;
      copy = result_->read_back();
    }
    return nb::steal<nb::object>(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(copy.data()),
                                                               static_cast<Py_ssize_t>(copy.size())));
  }
  /// Valid until release(). The capsule does not keep the pool's buffer alive.
  [[nodiscard]] nb::object dlpack() const { return dlpack_capsule(nullptr, whole_, cuda_device_, false); }
  void release(std::uint64_t stream) const { result_->release({reinterpret_cast<void*>(stream)}); }

 private:
  std::shared_ptr<Result> result_;
  leased_tensor whole_;
  int cuda_device_ = -1;
};

/// How a job ended: ("ok", result), ("on_device", device_result) or (status, type, text, traceback, causes,
/// attempts). Results of fewer than `copied_below` bytes are copied, so that they do not occupy slots when
/// the caller keeps them; larger ones are read in place.
nb::tuple outcome_of(Job& job, std::size_t copied_below) {
  if (const auto why = job.why()) {
    return nb::make_tuple(name_of(why->status), nb::bytes(why->type.data(), why->type.size()),
                          nb::bytes(why->text.data(), why->text.size()),
                          nb::bytes(why->traceback.data(), why->traceback.size()), nb::cast(why->causes),
                          why->attempts);
  }
  Result result = job.get();
  if (result.on_device()) return nb::make_tuple("on_device", device_result(std::move(result)));
  const auto bytes = result.bytes();
  if (bytes.size() >= copied_below) return nb::make_tuple("ok", new kept(std::move(result)));
  memory_block copy{block_cache::of_process().take(bytes.size()), bytes.size()};
  if (!bytes.empty()) std::memcpy(copy.memory.get(), bytes.data(), bytes.size());
  return nb::make_tuple("ok", std::move(copy));
}

/// Calls `wait` for at most `seconds`, in slices: Python runs signal handlers only between calls. Returns true as soon as
/// `wait` does.
template <class Wait>
bool in_slices(double seconds, Wait wait) {
  const auto until = std::chrono::steady_clock::now() + *as_nanoseconds(seconds);
  while (true) {
    {
      const nb::gil_scoped_release others_run;
      const auto left = until - std::chrono::steady_clock::now();
      if (wait(std::clamp<std::chrono::nanoseconds>(left, 0ns, slice))) return true;
      if (left <= slice) return false;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

bool wait_for(const Job& job, double seconds) {
  return in_slices(seconds, [&job](std::chrono::nanoseconds time) { return job.wait_for(time); });
}

constexpr std::size_t everything = std::numeric_limits<std::size_t>::max();

// A pool must not be destroyed on its own callback thread, where its last reference may be dropped.
thread_local bool on_callback_thread = false;

/// The Python callable for an ended job, called on the pool's callback thread. Released with the GIL,
/// wherever the last copy of the std::function is destroyed.
class callback {
 public:
  explicit callback(nb::object called) : called_(std::make_shared<held>(std::move(called))) {}
  void operator()(Job job) const {
    if (Py_IsInitialized() == 0) return;
    on_callback_thread = true;  // the thread runs nothing else
    const nb::gil_scoped_acquire gil;
    const nb::object called = std::exchange(called_->object, {});
    if (!called.is_valid()) return;
    try {
      called(outcome_of(job, everything), job.number());
    } catch (nb::python_error& raised) {
      raised.discard_as_unraisable(called);
    }
  }

 private:
  struct held {
    explicit held(nb::object o) : object(std::move(o)) {}
    ~held() {
      if (!object.is_valid()) return;
      const nb::gil_scoped_acquire gil;
      object.reset();
    }
    held(const held&) = delete;
    held& operator=(const held&) = delete;
    nb::object object;
  };
  std::shared_ptr<held> called_;
};

class pool_handle {
 public:
  pool_handle(const config& settings, bool control_socket, hosted_program hosted, bool of_batches) {
    pool_options options;
    options.of_batches = of_batches;
    options.hosted = std::move(hosted);
    options.control_socket = control_socket;
    options.around_callbacks = [](const std::function<void()>& callbacks) {
      if (Py_IsInitialized() == 0) return callbacks();
      const nb::gil_scoped_acquire gil;
      callbacks();
    };
    const nb::gil_scoped_release others_run;
    pool_ = std::make_unique<Pool>(settings, std::move(options));
  }
  ~pool_handle() {
    const nb::gil_scoped_release others_run;
    if (on_callback_thread) {
      std::thread([pool = std::move(pool_)]() mutable { pool.reset(); }).detach();
    } else {
      pool_.reset();
    }
  }
  pool_handle(const pool_handle&) = delete;
  pool_handle& operator=(const pool_handle&) = delete;

  Job submit(const std::vector<nb::object>& parts, std::optional<double> timeout,
             std::optional<bool> idempotent, std::optional<bool> fresh, nb::object when_done,
             std::optional<std::uint32_t> worker, bool on_device, bool again,
             std::optional<std::uint64_t> former, bool lost_before, std::uint32_t attempts_before, std::uint32_t inputs) {
    const Argument argument = joined(parts);
    job_options options{as_nanoseconds(timeout), idempotent, fresh, worker};
    options.on_device = on_device;
    options.again = again;
    options.former = former;
    options.lost_before = lost_before;
    options.attempts_before = attempts_before;
    options.inputs = inputs;
    std::function<void(Job)> then;
    if (!when_done.is_none()) then = callback(std::move(when_done));
    while (true) {
      {
        const nb::gil_scoped_release others_run;
        try {
          Job job = pool_->submit("call", argument, options, slice);
          if (then) job.then(std::move(then));
          return job;
        } catch (const error& full) {
          if (full.code() != errc::timed_out) throw;
        }
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }
  bool finish(double seconds) {
    return in_slices(seconds, [this](std::chrono::nanoseconds time) { return pool_->finish(time); });
  }
  void close() {
    const nb::gil_scoped_release others_run;
    pool_->close();
  }
  void stop(std::optional<double> seconds, const std::string& by, bool fails) {
    std::optional<std::chrono::milliseconds> at_most;
    if (const auto time = as_nanoseconds(seconds))
      at_most = std::chrono::duration_cast<std::chrono::milliseconds>(*time);
    const nb::gil_scoped_release others_run;
    fails ? pool_->fail(by, at_most) : pool_->stop(at_most, by);
  }
  [[nodiscard]] Pool& pool() { return *pool_; }

 private:
  std::unique_ptr<Pool> pool_;
};

}  // namespace

void bind_pools(nb::module_& m) {
  bind_memory_block(m);
  nb::class_<device_result>(m, "DeviceResult")
      .def_prop_ro("nbytes", &device_result::bytes)
      .def_prop_ro("cuda_device", &device_result::cuda_device)
      .def("read_back", &device_result::read_back)
      .def("dlpack", &device_result::dlpack)
      .def("release", &device_result::release, nb::arg("stream"), nb::call_guard<nb::gil_scoped_release>());
  nb::class_<kept>(m, "Kept").def_prop_ro("address", &kept::address).def_prop_ro("nbytes", &kept::size);
  nb::class_<Job>(m, "Job")
      .def_prop_ro("number", &Job::number)
      .def("wait", &wait_for, nb::arg("seconds"))
      .def("done", &Job::done)
      .def("outcome", &outcome_of, nb::arg("copied_below"))
      .def("cancel_if_waiting", &Job::cancel_if_waiting, nb::call_guard<nb::gil_scoped_release>())
      .def("attempts", &Job::attempts, nb::call_guard<nb::gil_scoped_release>())
      .def("kill", &Job::kill, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<pool_handle>(m, "Pool")
      .def(
          "__init__",
          [](pool_handle* made, const config& settings, bool control_socket, std::string program_of_hosts,
             std::map<std::string, std::string> facts, const nb::bytes& code, int marks, bool of_batches) {
            new (made) pool_handle(settings, control_socket,
                                   {std::move(program_of_hosts), std::move(facts), {code.c_str(), code.size()}, marks}, of_batches);
          },
          nb::arg("settings"), nb::arg("control_socket"), nb::arg("program_of_hosts") = "",
          nb::arg("facts") = std::map<std::string, std::string>(), nb::arg("code") = nb::bytes("", 0), nb::arg("marks") = -1,
          nb::arg("of_batches") = false)
      .def(
          "publish", [](pool_handle& p, std::uint64_t number, int file) { p.pool().publish(number, file); },
          nb::arg("number"), nb::arg("file"))
      .def(
          "withdraw", [](pool_handle& p, std::uint64_t number) { p.pool().withdraw(number); }, nb::arg("number"))
      .def("submit", &pool_handle::submit, nb::arg("parts"), nb::arg("timeout").none(),
           nb::arg("idempotent").none(), nb::arg("fresh").none(), nb::arg("when_done").none(),
           nb::arg("worker").none() = nb::none(), nb::arg("on_device") = false, nb::arg("again") = false, nb::arg("former").none() = nb::none(), nb::arg("lost_before") = false, nb::arg("attempts_before") = 0,
           nb::arg("inputs") = 1)
      .def("finish", &pool_handle::finish)
      .def("stop", &pool_handle::stop, nb::arg("seconds").none(), nb::arg("by") = "", nb::arg("fails") = false)
      .def(
          "await_batch",
          [](pool_handle& p, std::uint64_t job, std::uint32_t step, std::uint64_t mark, std::string sample, bool in_order) {
            const auto known = step <= static_cast<std::uint32_t>(batch_step::collation) ? static_cast<batch_step>(step) : batch_step::unknown;
            p.pool().await_batch(job, {known, mark, std::move(sample), in_order});
          },
          nb::arg("job"), nb::arg("step") = 0, nb::arg("mark") = 0, nb::arg("sample") = "", nb::arg("in_order") = true)
      .def("batch_came", [](pool_handle& p) { p.pool().batch_came(); })
      .def(
          "pass_is_at", [](pool_handle& p, std::uint64_t epoch, std::uint64_t done, std::uint64_t expected) { p.pool().pass_is_at(epoch, done, expected); },
          nb::arg("epoch"), nb::arg("done"), nb::arg("expected"))
      .def(
          "batch_taken",
          [](pool_handle& p, std::uint64_t epoch, std::uint64_t samples, std::uint64_t left_out) { p.pool().batch_taken(epoch, samples, left_out); },
          nb::arg("epoch"), nb::arg("samples"), nb::arg("left_out") = 0)
      .def(
          "dataset_has", [](pool_handle& p, std::uint64_t samples) { p.pool().dataset_has(samples); }, nb::arg("samples"))
      .def(
          "batch_lost",
          [](pool_handle& p, std::uint64_t epoch, std::optional<std::uint64_t> sequence, std::optional<std::uint64_t> blamed, std::uint64_t samples,
             std::uint64_t quarantined, std::vector<std::uint64_t> numbers, std::string text) {
            p.pool().batch_lost({epoch, sequence, blamed, samples, quarantined, std::move(numbers), std::move(text)});
          },
          nb::arg("epoch"), nb::arg("sequence").none(), nb::arg("blamed").none(), nb::arg("samples"), nb::arg("quarantined"), nb::arg("numbers"),
          nb::arg("text"))
      .def(
          "batch_was_slow",
          [](pool_handle& p, std::uint64_t job, std::uint32_t worker, double busy, double slow,
             const std::vector<std::tuple<std::optional<std::uint64_t>, std::string, double>>& slowest) {
            slow_batch batch{job, worker, *as_nanoseconds(busy), *as_nanoseconds(slow), {}};
            for (const auto& [index, name, seconds] : slowest) batch.slowest.push_back({index, name, *as_nanoseconds(seconds)});
            p.pool().batch_was_slow(batch);
          },
          nb::arg("job"), nb::arg("worker"), nb::arg("busy"), nb::arg("slow"), nb::arg("slowest"))
      .def(
          "sample_failed",
          [](pool_handle& p, std::optional<std::uint64_t> index, std::string name, std::uint64_t epoch, const std::string& error, std::string text,
             const std::string& traceback) { p.pool().sample_failed({index, std::move(name), epoch}, error, std::move(text), traceback); },
          nb::arg("index").none(), nb::arg("name"), nb::arg("epoch"), nb::arg("error"), nb::arg("text"), nb::arg("traceback"))
      .def(
          "sample_quarantined",
          [](pool_handle& p, std::optional<std::uint64_t> index, std::string name, std::uint64_t epoch, std::vector<std::string> causes, bool known) {
            p.pool().sample_quarantined({index, std::move(name), epoch}, std::move(causes), known);
          },
          nb::arg("index").none(), nb::arg("name"), nb::arg("epoch"), nb::arg("causes"), nb::arg("known"))
      .def(
          "input_raised",
          [](pool_handle& p, std::uint64_t job, std::uint64_t index, const std::string& error, const std::string& traceback) {
            p.pool().input_raised(job, index, error, traceback);
          },
          nb::arg("job"), nb::arg("index"), nb::arg("error"), nb::arg("traceback"))
      .def(
          "warn", [](pool_handle& p, const std::string& text) { p.pool().warn(text); }, nb::arg("text"))
      .def("close", &pool_handle::close)
      .def(
          "scale", [](pool_handle& p, std::uint32_t workers) { p.pool().scale(workers); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "status", [](pool_handle& p) { return to_json(p.pool().status()); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "report", [](pool_handle& p) { return to_json(p.pool().report()); },
          nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace penstock::python
