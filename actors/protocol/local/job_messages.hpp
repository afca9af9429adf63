// Messages to the job scheduler, in addition to those to every lease_giver, and messages to the host of a
// pool's workers.
#pragma once

#include "actors/protocol/burst_queue.hpp"
#include "actors/protocol/link.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"
#include "runtime/schedule/job_book.hpp"

#include <penstock/pool.hpp>

#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::jobs {

class job_record;
using submission_queue = protocol::burst_queue<std::shared_ptr<job_record>>;
struct jobs_submitted {
  std::shared_ptr<submission_queue> queue;
};

struct job_report {
  worker_ref who;
  protocol::jobs_done report;
};
using job_report_queue = protocol::burst_queue<job_report>;
struct jobs_reported {
  std::shared_ptr<job_report_queue> queue;
};

/// Results that have left their slots: each entry names the lease of one result.
using release_queue = protocol::burst_queue<lease_ref>;
struct results_released {
  std::shared_ptr<release_queue> queue;
};

struct end_job {
  schedule::job_id job = 0;
  bool only_waiting = false;
  bool at_once = false;  ///< send SIGKILL without a previous SIGABRT
  /// Set to whether the job will never start; may be null.
  std::shared_ptr<std::promise<bool>> prevented;
};

/// The first worker has described its functions.
struct functions_known {
  std::vector<std::string> names;
};

/// The session's view of a place's slots; from now on its workers may get leases.
struct partition_mapped {
  std::uint32_t partition = 0;
  std::shared_ptr<mapping> memory;
};

struct pause_jobs {
  bool paused = false;
};

/// Cancels all jobs that have not ended, for this reason. No leases afterwards.
struct cancel_all {
  failure why;
};

/// The outcome of a job's result on the device.
struct device_answer {
  enum class kind : std::uint8_t { ok, device, too_large };

  std::uint64_t upload = 0;
  kind how = kind::ok;
  std::string text{};                     ///< why the job has no result
  std::vector<std::byte> bytes{};         ///< the result of its device program
  std::optional<std::uint32_t> buffer{};  ///< holds the result and now belongs to the caller
};
using device_answer_queue = protocol::burst_queue<device_answer>;
struct device_answered {
  std::shared_ptr<device_answer_queue> queue;
};

/// The GPU owner's process is gone and another one follows: order everything unanswered again, under this
/// era.
struct device_lost {
  struct blame {
    schedule::job_id job = 0;
    std::string cause;     ///< how the owner ended
    bool poisons = false;  ///< the job has killed two owners
  };
  std::uint64_t era = 0;
  std::optional<blame> blamed;
};

/// The device has failed for good.
struct device_failed {
  failure why;
};

/// Ask the book once the mailbox is empty.
struct decide_jobs {
  enum class reason : std::uint8_t {
    news,
    second,  ///< one second has passed while jobs wait or run
    look     ///< the book's next_look()
  };
  reason why = reason::news;
};

struct stop_jobs {};

}  // namespace penstock::jobs
