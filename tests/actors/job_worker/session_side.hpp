// The session's side of one worker of a pool: the arena with its partition, the parcel socket, and tables
// written and read as in a session. Used by the tests of the job_runner and of job_main.
#pragma once

#include "actors/protocol/messages.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/job_error.hpp"
#include "runtime/arena/job_slot.hpp"
#include "runtime/base/fd.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::testing {

/// One job of a lease, its function by name.
struct job {
  std::string function;
  std::string argument{};
  bool argument_elsewhere = false;  ///< an empty argument is not sent
  nanoseconds limit{0};
};

/// The contents of a row.
struct read_row {
  arena::row_state state = arena::row_state::waiting;
  std::string result{};               ///< the result of a finished row
  arena::job_exception_text error{};  ///< the error of a row that failed or was too large
  bool elsewhere = false;
  nanoseconds busy{0};
};

class session_side {
 public:
  static constexpr std::uint32_t slots = 2;

  explicit session_side(std::uint64_t slot_bytes);

  /// Writes a table and sends large arguments; numbers jobs from 1 across all leases. A function that is not
  /// in `functions` gets an invalid index.
  protocol::run_jobs lease(const std::vector<std::string>& functions, const std::vector<job>& jobs,
                           std::uint32_t slot);
  read_row read(const protocol::run_jobs& order, std::uint32_t row) const;
  std::vector<read_row> read_all(const protocol::run_jobs& order) const;
  [[nodiscard]] arena::job_slot table(std::uint32_t slot = 0) const;

  arena::geometry shape;
  arena::arena memory;
  mapping seen;
  unique_fd parcels;  ///< set by the code that starts the worker

 private:
  std::uint32_t generation_ = 0;
  std::uint64_t jobs_ = 0;
};

}  // namespace penstock::testing
