// The module's session: wraps penstock::Session with calls that release the GIL, check for signals while they
// wait, and take back buffers whose last view is gone. Used by module.cpp.
//
// Threads: like penstock::Session, but close() may be called from any thread. Functions that may wait are
// called without the GIL.
#pragma once

#include "python/core/lease.hpp"

#include <penstock/session.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace penstock::python {

struct core_options {
  bool digests = false;
  std::optional<std::uint64_t> batches;
  std::vector<std::byte> state;
  bool control_socket = true;
  bool join_group = false;
  std::string config_file{};
  std::function<void(const event&)> on_event;
  std::function<void()> look_after_signals;  ///< may throw; called without the GIL
};

/// Call at the interpreter's exit: waits for memory that is being freed. Memory that views still hold is freed when the process exits.
void leave_the_rest_to_the_exit();

class session_core : public std::enable_shared_from_this<session_core> {
 public:
  static std::shared_ptr<session_core> make(config settings, core_options options);
  /// Calls close().
  ~session_core();
  session_core(const session_core&) = delete;
  session_core& operator=(const session_core&) = delete;

  using epoch = Session::Epoch;
  [[nodiscard]] epoch epoch_of(std::uint64_t number) { return session_->epoch(number); }

  /// The next batch of the stream, or of an epoch; null at the end. Throws error, and whatever
  /// look_after_signals throws.
  std::shared_ptr<lease> next();
  std::shared_ptr<lease> next_of(epoch& of);

  /// Session::stop(). `at_most` also limits the shutdown in a later close().
  void stop(std::optional<std::chrono::milliseconds> at_most, const std::string& by) noexcept;
  /// Ends everything; memory used by views is freed with the last view. `by`: who stops a stream that is not over; empty: the
  /// program.
  void close(const std::string& by = {}, bool fails = false) noexcept;
  [[nodiscard]] bool closed() const noexcept { return closing_; }
  [[nodiscard]] Session& session() noexcept { return *session_; }
  [[nodiscard]] const config& settings() const noexcept { return settings_; }
  /// The number of GPU buffers held by views.
  [[nodiscard]] std::uint32_t lent() const;
  /// After close(): the batches that views still hold, as text; empty if there are none.
  [[nodiscard]] std::string kept_by_views() const;

 private:
  class taking;
  session_core(config settings, core_options options);
  std::shared_ptr<lease> lend(std::optional<Batch> batch);
  void returned(Batch batch, std::vector<stream_handle> streams);
  void release_returned();
  void while_waiting();
  void free_memory() noexcept;

  struct used_batch {
    Batch batch;
    std::vector<stream_handle> streams;
  };

  const config settings_;
  const std::function<void()> look_after_signals_;
  const std::shared_ptr<block_pool> blocks_;
  std::mutex taking_;  // held while a batch is taken, and while memory is freed
  // the thread that holds taking_ to take a batch: a signal handler on that thread may call this object, too
  std::atomic<std::thread::id> taker_{};
  // for while_waiting(): when it was last called, and for how long all buffers have been lent
  std::chrono::steady_clock::time_point looked_{};
  std::optional<std::chrono::nanoseconds> all_lent_for_;

  mutable std::mutex mutex_;                  // guards the next four
  std::vector<std::weak_ptr<lease>> leases_;  // at most one for each buffer
  std::vector<used_batch> returned_;
  std::uint32_t lent_ = 0;
  bool freed_ = false;

  std::atomic<bool> stopped_ = false;
  std::atomic<bool> closing_ = false;
  std::unique_ptr<Session> session_;
};

}  // namespace penstock::python
