// The module penstock._group: penstock::Group for penstock.Group and the loaders, which have the
// documentation. A separate module, because a rank of a group needs neither a session nor CUDA.
#include "python/core/errors.hpp"

#include <penstock/group.hpp>
#include <penstock/nccl.hpp>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::python {
namespace {

template <class Unit>
Unit as_time(double seconds, const char* what) {
  if (!(seconds >= 0))
    throw error({errc::usage, std::string(what) + " must be a number of seconds, 0 or more", 0});
  constexpr double longest = 1e8;
  return std::chrono::duration_cast<Unit>(std::chrono::duration<double>(std::min(seconds, longest)));
}

using text_pairs = std::vector<std::pair<std::string, std::string>>;

Group joined(const std::string& name, bool waits_for_lost, double join_timeout, double lost_after,
             double rejoin_timeout, const std::string& secret_file, bool insecure, std::uint64_t collectives,
             text_pairs agree, bool communicator, double abort_timeout) {
  group_options options;
  options.name = name;
  options.settings.on_lost_rank = waits_for_lost ? lost_rank_rule::wait : lost_rank_rule::fail;
  options.settings.join_timeout = as_time<std::chrono::nanoseconds>(join_timeout, "join_timeout");
  options.settings.lost_after = as_time<std::chrono::nanoseconds>(lost_after, "lost_after");
  options.settings.rejoin_timeout = as_time<std::chrono::nanoseconds>(rejoin_timeout, "rejoin_timeout");
  options.settings.secret_file = secret_file;
  options.settings.insecure = insecure;
  options.settings.communicator = communicator ? communicator_kind::nccl : communicator_kind::none;
  options.settings.abort_timeout = as_time<std::chrono::nanoseconds>(abort_timeout, "abort_timeout");
  options.collectives = collectives;
  options.agree = std::move(agree);
  options.while_waiting = look_after_signals;
  const nb::gil_scoped_release others_run;
  return Group(std::move(options));
}

std::chrono::milliseconds deadline(double seconds) {
  return as_time<std::chrono::milliseconds>(seconds, "timeout");
}

std::vector<nb::bytes> all_gather(Group& group, const nb::bytes& own, double timeout) {
  const auto until = deadline(timeout);
  std::vector<std::vector<std::byte>> all;
  {
    const std::span given(reinterpret_cast<const std::byte*>(own.c_str()), own.size());
    const nb::gil_scoped_release others_run;
    all = group.all_gather(given, until);
  }
  std::vector<nb::bytes> made;
  made.reserve(all.size());
  for (const auto& one : all) made.emplace_back(one.data(), one.size());
  return made;
}

/// A communicator_use that Python ends by calling end(): garbage collection could be too late.
class use_of_communicator {
 public:
  explicit use_of_communicator(Communicator& of) : use_(std::make_unique<communicator_use>(of)) {}

  void end() { use_.reset(); }
  [[nodiscard]] std::uintptr_t handle() const { return reinterpret_cast<std::uintptr_t>(open().handle()); }
  [[nodiscard]] std::uint64_t number() const { return open().number(); }
  [[nodiscard]] std::uintptr_t function(const std::string& name) const {
    return reinterpret_cast<std::uintptr_t>(open().function<void()>(name.c_str()));
  }
  void check(int status, const std::string& what) const { open().check(status, what.c_str()); }

 private:
  [[nodiscard]] const communicator_use& open() const {
    if (!use_) throw error({errc::usage, "the communicator is used outside of its `with` block", 0});
    return *use_;
  }
  std::unique_ptr<communicator_use> use_;
};

constexpr auto looked_after_signals_every = std::chrono::milliseconds(50);

Communicator& communicator_of(const Group& group) {
  Communicator* const its = group.communicator();
  if (its == nullptr) throw error({errc::usage, "this group was made without a communicator", 0});
  return *its;
}

std::unique_ptr<use_of_communicator> use(const Group& group) {
  Communicator& its = communicator_of(group);
  const nb::gil_scoped_release others_run;
  return std::make_unique<use_of_communicator>(its);
}

}  // namespace
}  // namespace penstock::python

NB_MODULE(_group, m) {
  namespace nb = nanobind;
  using namespace penstock::python;
  using penstock::Group;
  nb::register_exception_translator(translate);
  nb::set_leak_warnings(false);
  nb::class_<use_of_communicator>(m, "Use")
      .def_prop_ro("handle", &use_of_communicator::handle)
      .def_prop_ro("number", &use_of_communicator::number)
      .def("function", &use_of_communicator::function, nb::arg("name"))
      .def("check", &use_of_communicator::check, nb::arg("status"), nb::arg("what"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("end", &use_of_communicator::end, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<Group>(m, "Group")
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("world_size", &Group::world_size)
      .def_prop_ro("local_rank", &Group::local_rank)
      .def_prop_ro("collectives", &Group::collectives)
      .def_prop_ro("all_gather_max", &Group::all_gather_max)
      .def(
          "barrier",
          [](Group& group, double timeout) {
            const auto until = deadline(timeout);
            const nb::gil_scoped_release others_run;
            group.barrier(until);
          },
          nb::arg("timeout"))
      .def("all_gather", &all_gather, nb::arg("own"), nb::arg("timeout"))
      .def("use", &use, nb::keep_alive<0, 1>())
      .def(
          "is_lost",
          [](const Group& group, std::uint64_t number) { return communicator_of(group).is_lost(number); },
          nb::arg("number"))
      .def("check", &Group::check)
      .def("fail", &Group::fail, nb::arg("why"))
      .def(
          "close",
          [](Group& group) {
            while (!group.close_within(looked_after_signals_every)) look_after_signals();
          },
          nb::call_guard<nb::gil_scoped_release>());
  m.def("join", &joined, nb::arg("name"), nb::arg("waits_for_lost"), nb::arg("join_timeout"),
        nb::arg("lost_after"), nb::arg("rejoin_timeout"), nb::arg("secret_file"), nb::arg("insecure"),
        nb::arg("collectives"), nb::arg("agree"), nb::arg("communicator"), nb::arg("abort_timeout"));
}
