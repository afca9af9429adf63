// A worker's current work, readable after any death. One page per worker in a separate memfd: the worker
// publishes one atomic word before it touches a sample; the supervisor reads it to detect hangs, and again
// after the process has died. No lock, allocation or system call per sample.
#pragma once

#include "runtime/arena/arena.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <penstock/report.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::arena {

using phase = work_phase;
/// What a worker does before its first sample: "opening the dataset", "describing the dataset" or "setting up the
/// dataset". Empty for other phases.
[[nodiscard]] std::string_view preparation_in_words(phase p) noexcept;

/// The row and lease that a worker works on, and its phase. Fits one 64-bit word: 4 bits phase, 10 slot, 22
/// row, 28 generation.
struct flight_state {
  phase at = phase::idle;
  std::uint32_t slot = 0;        ///< below 2^10
  std::uint32_t row = 0;         ///< index among the lease's samples, below 2^22
  std::uint32_t generation = 0;  ///< <= generation_mask

  bool operator==(const flight_state&) const = default;
};
[[nodiscard]] std::uint64_t pack(const flight_state& state) noexcept;
[[nodiscard]] flight_state unpack(std::uint64_t word) noexcept;

/// The sample that a worker is loading.
struct flight_sample {
  std::uint64_t index = 0;
  std::uint32_t attempt = 1;
  bool operator==(const flight_sample&) const = default;
};

/// A copy of a worker's page at one moment.
struct flight_reading {
  std::uint64_t word = 0;  ///< a change between two reads means progress
  flight_state state;
  std::uint64_t heartbeats = 0;
  std::uint64_t samples_done = 0;
  std::int32_t thread = 0;      ///< the thread that works on samples; 0: unknown
  std::uint64_t rss_bytes = 0;  ///< at the worker's last heartbeat
  std::string sample_name;      ///< name of the sample being loaded, possibly cut; empty when idle
  std::optional<flight_sample> sample{};  ///< the sample with that name; empty when idle, and for jobs
  steady_time since{};          ///< when that sample was started; meaningless when idle
  std::optional<steady_time> named_since{};  ///< when this name was published; later than `since` if the job has
                                             ///< renamed itself; empty when idle or for a worker on another machine
  nanoseconds limit{0};         ///< this sample's or job's own time limit; 0: none. Only while loading.
  nanoseconds waited{0};        ///< total of finished waits for work
  std::optional<steady_time> waits_since{};  ///< the wait in progress
  std::optional<steady_time> reads_since{};  ///< the read from storage in progress, as of the last heartbeat

  /// Includes the wait in progress. A reading taken just as a wait ends may miss that wait; its value is then smaller
  /// than that of an earlier reading.
  [[nodiscard]] nanoseconds waited_until(steady_time now) const noexcept;
};

/// The page itself. It lives in shared memory, so it consists of lock-free atomics and bytes only.
struct flight_page;

/// The session's side, with the pages of all workers.
class flight_recorders {
 public:
  static result<flight_recorders> create(std::uint32_t workers);

  [[nodiscard]] int fd() const noexcept { return file_.get(); }
  [[nodiscard]] flight_reading read(std::uint32_t worker) const;
  /// Call before a new incarnation is started, so that no record of the old one is attributed to it.
  void clear(std::uint32_t worker);
  /// Fills a page with a view received from a worker on another machine. Only one thread may write to a page.
  void mirror(std::uint32_t worker, const flight_reading& seen);

 private:
  flight_recorders(unique_fd file, mapping pages) : file_(std::move(file)), pages_(std::move(pages)) {}
  [[nodiscard]] flight_page& page(std::uint32_t worker) const;

  unique_fd file_;
  mapping pages_;
};

/// The worker's side, with its own page. Call publish() and
/// touch() on the loading thread, and beat() on any one thread.
class flight_writer {
 public:
  static result<flight_writer> map(int fd, std::uint32_t worker);

  /// Call before touching a sample. The name is for messages; at most 500 bytes are kept. `limit`: the sample's own
  /// time limit, if it has one. `since`: the current time, if the caller has it already. `named_since`: set if the same
  /// job gets another name now.
  void publish(const flight_state& state, std::string_view sample_name, nanoseconds limit = nanoseconds(0),
               steady_time since = std::chrono::steady_clock::now(), std::optional<steady_time> named_since = {}) noexcept;
  /// Publishes a sample. `now`: the current time, if the caller has it already.
  void publish(const flight_state& state, std::string_view sample_name, const flight_sample& sample,
               steady_time now = std::chrono::steady_clock::now()) noexcept;
  /// The same sample enters another phase.
  void publish(phase at) noexcept;
  /// Call between leases, when the worker is idle.
  void rest() noexcept;
  /// Records that the calling thread works on samples.
  void this_thread_works(std::int32_t thread) noexcept;
  void sample_done() noexcept;
  /// Call when the loading thread starts or ends a wait for work. Only a GPU owner records this, to show how long its
  /// device was idle.
  void wait_begins(steady_time now) noexcept;
  void wait_ends(steady_time now) noexcept;
  void beat(std::uint64_t rss_bytes = 0, std::optional<steady_time> reads_since = {}) noexcept;

 private:
  explicit flight_writer(mapping page) : page_(std::move(page)) {}
  [[nodiscard]] flight_page& page() const noexcept;

  mapping page_;
};

}  // namespace penstock::arena
