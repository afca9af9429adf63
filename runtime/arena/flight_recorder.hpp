// What a worker was doing, written so that it can be read after any death. One page a worker in a memfd of
// its own: the worker publishes one atomic word before it touches a sample; the supervisor reads it when it
// looks for hangs and when the process is gone. No lock, no allocation, no system call on the way of a
// sample.
#pragma once

#include "runtime/arena/arena.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::arena {

enum class phase : std::uint8_t {
  idle,       ///< waiting for a lease; a death now is charged to nobody
  setup,      ///< Dataset::describe or setup
  loading,    ///< Dataset::load of the row's sample, or the function of the row's job
  checking,   ///< after the sample or job: whether it brought CUDA into the process, what it left behind
  collating,  ///< Dataset::collate; the row is the batch's last
};
[[nodiscard]] std::string_view name_of(phase p) noexcept;

/// Which row of which lease, and how far. Fits one 64-bit word: 4 bits phase, 10 slot, 22 row, 28 generation.
struct flight_state {
  phase at = phase::idle;
  std::uint32_t slot = 0;        ///< < 2^10
  std::uint32_t row = 0;         ///< < 2^22, of the lease's samples
  std::uint32_t generation = 0;  ///< <= generation_mask

  bool operator==(const flight_state&) const = default;
};
[[nodiscard]] std::uint64_t pack(const flight_state& state) noexcept;
[[nodiscard]] flight_state unpack(std::uint64_t word) noexcept;

/// A copy of a worker's page at one moment.
struct flight_reading {
  std::uint64_t word = 0;  ///< compare two of these to see progress
  flight_state state;
  std::uint64_t heartbeats = 0;
  std::uint64_t samples_done = 0;
  std::int32_t thread = 0;      ///< the one that works on samples; 0: not said
  std::uint64_t rss_bytes = 0;  ///< as the worker last saw it, at most a heartbeat ago
  std::string sample_name;      ///< of the sample being loaded, possibly cut; empty when idle
  steady_time since{};          ///< when that sample was begun; meaningless when idle
  nanoseconds limit{0};  ///< what this sample or job may take; 0: nothing of its own. Only while loading.
};

/// The page itself. Lives in shared memory: only lock-free atomics and bytes.
struct flight_page;

/// The session's end: all pages.
class flight_recorders {
 public:
  static result<flight_recorders> create(std::uint32_t workers);

  [[nodiscard]] int fd() const noexcept { return file_.get(); }
  [[nodiscard]] flight_reading read(std::uint32_t worker) const;
  /// Before a new incarnation is started: nothing of the old one may be mistaken for it.
  void clear(std::uint32_t worker);

 private:
  flight_recorders(unique_fd file, mapping pages) : file_(std::move(file)), pages_(std::move(pages)) {}
  [[nodiscard]] flight_page& page(std::uint32_t worker) const;

  unique_fd file_;
  mapping pages_;
};

/// The worker's end: its own page. publish() and touch() from the loading thread, beat() from any one thread.
class flight_writer {
 public:
  static result<flight_writer> map(int fd, std::uint32_t worker);

  /// Before a sample is touched. The name is for people: at most 500 bytes of it are kept. `limit`: what it may take,
  /// if that is a rule of its own. `since`: now, for whoever knows it already.
  void publish(const flight_state& state, std::string_view sample_name, nanoseconds limit = nanoseconds(0),
               steady_time since = std::chrono::steady_clock::now()) noexcept;
  /// The same sample, another phase.
  void publish(phase at) noexcept;
  /// Between leases.
  void rest() noexcept;
  /// The calling thread is the one that works.
  void this_thread_works(std::int32_t thread) noexcept;
  void sample_done() noexcept;
  void beat(std::uint64_t rss_bytes = 0) noexcept;

 private:
  explicit flight_writer(mapping page) : page_(std::move(page)) {}
  [[nodiscard]] flight_page& page() const noexcept;

  mapping page_;
};

}  // namespace penstock::arena
