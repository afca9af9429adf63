// A job_runner in the test's process, with a session_side that reads its results.
#pragma once

#include "actors/job_worker/job_runner.hpp"
#include "actors/protocol/parcels.hpp"
#include "tests/actors/job_worker/session_side.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

/// A function that returns its argument.
inline void echo(JobCall& call) {
  call.give(call.argument());
}

class one_worker : public session_side {
 public:
  using functions_by_name = std::map<std::string, job_function>;

  explicit one_worker(const functions_by_name& given, std::uint64_t slot_bytes = 1 << 20,
                      std::uint64_t elsewhere_max = 16 << 20)
      : session_side(slot_bytes),
        functions(as_list(given)),
        runner({functions,
                slots_seen,
                flight,
                settings,
                {3, 1},
                ends.second.get(),
                elsewhere_max,
                [this](const protocol::jobs_done& rows) { reports.push_back(rows); },
                [this] { return stop; }}) {
    parcels = std::move(ends.first);
  }

  protocol::run_jobs lease(const std::vector<job>& jobs, std::uint32_t slot = 0) {
    std::vector<std::string> names;
    for (const job_worker::named_function& f : functions) names.push_back(f.name);
    return session_side::lease(names, jobs, slot);
  }
  /// Runs the lease and reads all of its rows.
  std::vector<read_row> run(const protocol::run_jobs& order) {
    ended = runner.run(order);
    return read_all(order);
  }
  std::vector<read_row> run(const std::vector<job>& jobs) { return run(lease(jobs)); }
  read_row run_one(const std::string& function) { return run({{function}}).at(0); }

  const std::vector<job_worker::named_function> functions;
  arena::slots_view slots_seen = arena::slots_view::map(memory.fd(), shape, 0).value();
  std::vector<job_worker::private_in_children> own =
      job_worker::private_slots(slots_seen, memory.fd(), shape, 0);
  arena::flight_recorders flights = arena::flight_recorders::create(1).value();
  arena::flight_writer flight = arena::flight_writer::map(flights.fd(), 0).value();
  job_worker::process_settings settings;
  std::pair<unique_fd, unique_fd> ends = protocol::make_parcel_pair().value();
  std::vector<protocol::jobs_done> reports;
  bool stop = false;
  job_worker::job_runner runner;
  result<job_worker::job_runner::outcome> ended;  ///< the outcome of the last run()

 private:
  static std::vector<job_worker::named_function> as_list(const functions_by_name& given) {
    std::vector<job_worker::named_function> list;
    for (const auto& [name, run] : given) list.push_back({name, run});
    return list;
  }
};

}  // namespace penstock::testing
