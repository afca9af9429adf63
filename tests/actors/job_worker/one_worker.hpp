// The surroundings of a job_runner in this very process: an arena with one partition, a page of the flight recorder, and
// the session's ends of everything, so that a test reads what the session would read.
#pragma once

#include "actors/job_worker/job_runner.hpp"
#include "runtime/arena/job_error.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::testing {

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What the session knows of a row that is over.
struct read_row {
  arena::row_state state = arena::row_state::waiting;
  std::string result{};               ///< of one that is finished
  arena::job_exception_text error{};  ///< of one that is not
  bool elsewhere = false;
  nanoseconds busy{0};
};

class one_worker {
 public:
  static constexpr std::uint32_t slots = 2;

  explicit one_worker(const std::map<std::string, job_function>& functions,
                      std::uint64_t slot_bytes = 1 << 20, std::uint64_t elsewhere_max = 16 << 20);

  /// A job of a lease, its function by name.
  struct job {
    std::string function;
    std::string argument{};
    bool argument_elsewhere = false;
    nanoseconds limit{0};
  };
  /// Writes the table and sends large arguments, as the session does; jobs are numbered from 1 on over all leases.
  protocol::run_jobs lease(const std::vector<job>& jobs, std::uint32_t slot = 0);
  /// Runs it, and reads all of its rows.
  std::vector<read_row> run(const protocol::run_jobs& order);
  std::vector<read_row> run(const std::vector<job>& jobs) { return run(lease(jobs)); }
  read_row run_one(std::string function, std::string argument = {}) {
    return run({{function, argument}}).at(0);
  }
  read_row read(const protocol::run_jobs& order, std::uint32_t row);
  [[nodiscard]] arena::job_slot table(std::uint32_t slot = 0) const;

  std::vector<job_worker::named_function> functions;
  arena::geometry shape;
  arena::arena memory;
  mapping seen_by_session;
  arena::slots_view slots_seen;
  std::vector<job_worker::private_in_children> own;
  arena::flight_recorders flights;
  arena::flight_writer flight;
  job_worker::process_settings settings;
  unique_fd parcels_of_session;
  unique_fd parcels_of_worker;
  std::vector<protocol::jobs_done> reports;
  bool stop = false;
  job_worker::job_runner runner;
  result<job_worker::job_runner::outcome> ended;  ///< of the last run()

 private:
  std::uint32_t generation_ = 0;
  std::uint64_t jobs_ = 0;
};

}  // namespace penstock::testing
