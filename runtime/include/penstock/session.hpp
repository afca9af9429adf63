// A session: loader workers, scheduler, supervisor and GPU owner behind one object. Construct it, take
// batches, destroy it.
#pragma once

#include <penstock/batch.hpp>
#include <penstock/config.hpp>
#include <penstock/error.hpp>
#include <penstock/event.hpp>
#include <penstock/report.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class Session;
namespace session {
struct launcher_access;
}

struct session_options {
  bool digests = false;                    ///< hash every batch as it is delivered
  std::optional<std::uint64_t> batches{};  ///< deliver this many batches in total, then end as "stopped"
  std::span<const std::byte> state{};      ///< continue after Session::state() of an earlier run
  /// Opens the socket through which `penstock status` and other verbs reach the session. With [log] record,
  /// the session also leaves a final record, which these verbs read after the session's end.
  bool control_socket = true;
  session_scope ends = session_scope::session;  ///< what `penstock stop --wait` waits for
  event_callback on_event{};                    ///< receives deaths, bad samples, epochs, ...: see event.hpp
  std::string config_file{};                    ///< where the settings come from, for `penstock status`
  /// Files that the program writes, for `penstock status` and `penstock stop --wait`: {"report", "/data/report.json"}.
  std::map<std::string, std::string> files{};
  /// For run_for(): null, npy, journal:PATH (appends one JSON line per batch: samples and digest),
  /// plugin:PATH (a device program: device_program.hpp).
  std::string sink = "null";
  std::string sink_out{};  ///< folder of the npy sink; empty for any other
  /// Joins the group of ranks that a launcher started (torchrun, penstock launch, srun, mpirun, ...). Each rank
  /// has one session, and all have the same name. The launcher then sets rank and world size. All ranks must
  /// agree on the settings that define their stream; the loss of one rank ends all; stop() stops all at the
  /// same step (docs/groups.md). Leave it false for sessions that only some ranks have, such as one for
  /// validation on rank 0. Throws error (errc::config) if no launcher started this process, and for a rank or
  /// world size in the settings that differs from the launcher's; next() and run_for() throw errc::group_failed
  /// with the first cause. Files, folders and ports are made distinct for each rank: journal:PATH-rank1,
  /// DIR/rank1, [metrics] listen + 1.
  bool join_group = false;
  /// With join_group: the failure that keeps this process from starting. The session then joins only to report
  /// it; next() and run_for() throw it. The other ranks end with this cause instead of waiting for a rank that
  /// never arrives.
  std::optional<failure> cannot_begin{};
  /// Called about every 50 ms, on the thread that waits in next() or for an epoch's batch. An exception from it
  /// leaves that call without losing a batch: the next call continues. For language runtimes that must check
  /// for signals, such as Python.
  std::function<void()> while_waiting{};
};

/// Threads: one thread at a time takes batches, closes and destroys (a second one in next() gets
/// errc::usage). Everything else - stop, pause, resume, scale, restart, drain, status, report, state - may be
/// called from any thread at any time. A process may have several sessions; they are independent. The library
/// installs no signal handler, reaps only its own children, and blocks all signals in its threads.
///
/// A fork copies no threads: in the child, the copies of a Session and of its batches throw errc::usage, and
/// destroying them (as exit() does) has no effect. The child keeps the session's descriptors and memory
/// alive, but not its workers, until it ends or executes another program.
///
/// Every member of a moved-from Session throws error (errc::usage), except stop, close and the destructor,
/// which do nothing.
class PENSTOCK_API Session {
 public:
  /// Checks the config by the same rules as for config files and starts nothing (unless [loader] start =
  /// "eager"). A rank of nullopt ("auto") is taken from the launcher's environment. Throws error:
  /// errc::config with one line per mistake, starting with its key ("loader.workers: ..."), or
  /// errc::state_mismatch for a state that cannot be read.
  explicit Session(config settings, session_options options = {});
  /// Ends everything within half a second, plus the time that an on_event call in progress still takes.
  /// Batches still held become unusable: their members throw errc::usage.
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Delivers the stream to session_options::sink instead of through next(). Returns true at the end of the
  /// stream, and false if `at_most` passes first: then call it again. milliseconds::max(): no limit. With [gpu]
  /// placement = "process", this is the only way to use batches: they stay in the owner's process, whose death
  /// costs only time. Throws error like next(), and errc::sink.
  bool run_for(std::chrono::milliseconds at_most);
  /// The next batch of the stream, across all [sampler] epochs. Empty at the end of the stream and after
  /// stop(), on every later call too. The first call starts the workers. Throws error with what went wrong;
  /// later calls throw the same error. errc::state_mismatch, naming the difference, for the state of another
  /// stream (dataset, seed, batch size, rank, size or dtype of images, ...); errc::usage after close(), and
  /// while another thread is in next().
  std::optional<Batch> next();

  /// The batches of one epoch, starting with its first; `number` may exceed [sampler] epochs. Taking an epoch
  /// out of order discards prepared batches. Only the latest Epoch can be continued: taking a batch from an
  /// earlier one, or from any Epoch after a call to Session::next(), throws errc::usage. Do not move the
  /// Session while an Epoch is in use.
  class Epoch;
  Epoch epoch(std::uint64_t number);

  /// Ends the stream: next() returns nothing, workers finish their sample and exit, uploads and sinks drain.
  /// Anything still running when its share of the time has passed is killed; the whole shutdown takes at most
  /// [supervisor] shutdown, or `at_most` if that is less. From any thread; a second call with less time
  /// shortens a shutdown in progress. Does not wait. `by`: who asked for it, in events and in the session's
  /// record ("SIGTERM"); empty: the program.
  void stop(std::optional<std::chrono::milliseconds> at_most = std::nullopt, std::string_view by = {}) noexcept;
  /// Like stop(), for a program that has failed: the outcome is `failed`, with this reason, unless the whole stream has been
  /// delivered.
  void fail(std::string_view why, std::optional<std::chrono::milliseconds> at_most = std::nullopt) noexcept;
  /// Waits until the workers are gone. Batches that are still held stay valid until close(). Another session
  /// may use the GPU from now on ([gpu] share): the memory of held batches does not count as use.
  void retire() noexcept;
  /// Waits until the shutdown that stop() began is complete, and frees all memory, including that of batches
  /// still held: their members throw errc::usage from then on. Call it from the thread that takes batches;
  /// the destructor does it too.
  void close() noexcept;
  /// Workers start no new work until resume().
  void pause();
  void resume();

  /// Changes the number of workers; surplus ones finish what they hold. Before the first batch is requested,
  /// it sets how many are started. Does not wait. Throws error: errc::usage outside 1 .. [loader.limits] max,
  /// errc::out_of_memory when their slots do not fit (while the session starts, next()
  /// throws that error instead).
  void scale(std::uint32_t workers);
  /// Tunes the number of workers from now on, as [loader] workers = "auto" does. A call to scale() or
  /// drain() ends the tuning.
  void scale_automatically();
  /// restart: the worker finishes what it holds and is replaced. drain: it finishes, and its place stays
  /// empty until scale() or restart(). Neither waits. Throws error (errc::usage) when there is no such
  /// worker.
  void restart(std::uint32_t worker);
  void drain(std::uint32_t worker);
  /// Lets a quarantined sample be loaded again from the current position on; release_quarantined() also removes
  /// it from the [quarantine] file. Both return false if the sample is not quarantined.
  bool retry_quarantined(std::uint64_t sample);
  bool release_quarantined(std::uint64_t sample);

  [[nodiscard]] session_status status() const;
  /// If the session does not answer within 2 s, the epochs are those of the last report.
  [[nodiscard]] run_report report() const;
  /// The stream's position after the last batch that was handed out, for session_options::state; at most 1
  /// KiB. Before the first batch: the resumed state, or the beginning. After close(): the final position.
  /// Throws error: errc::timed_out when the session does not answer within 2 s (the machine is thrashing, or
  /// a log sink blocks); call it again then.
  [[nodiscard]] std::vector<std::byte> state() const;

  /// What this config would do: facts about dataset and plan, without starting a process.
  struct outline {
    std::uint64_t samples = 0;
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint64_t batches_per_epoch = 0;
    std::uint64_t expected_samples = 0;  ///< samples in an epoch of this rank
    /// How many of these are repeats, which give every rank the same number of samples.
    std::uint64_t padded_samples = 0;
    std::uint64_t slot_bytes = 0;
    std::uint32_t slots_per_worker = 0;
    std::uint64_t arena_bytes = 0;
    std::uint32_t workers = 0;
    std::string fingerprint;
    std::vector<std::string> notices;
  };
  [[nodiscard]] static outline dry_run(const config& settings);

 private:
  friend class Epoch;
  friend struct session::launcher_access;  // used by `penstock launch`
  class body;
  [[nodiscard]] body& held() const;
  std::unique_ptr<body> body_;
};

/// One state for all ranks, made from their sessions' states after the same number of batches. Pass it as
/// session_options::state: a session of any rank, world size and batch size can continue from it. At most 1
/// KiB. Throws error: errc::state_mismatch, naming what differs, if the states are not those of all ranks of
/// one stream at one step.
[[nodiscard]] PENSTOCK_API std::vector<std::byte> group_state(
    std::span<const std::vector<std::byte>> of_ranks);

/// A range over one epoch: `for (Batch& batch : session.epoch(0))`. Borrows the
/// session. Allows a single pass: a second begin() throws error (errc::usage).
class PENSTOCK_API Session::Epoch {
 public:
  class iterator;
  std::optional<Batch> next();
  [[nodiscard]] iterator begin();
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend class Session;
  Epoch(Session& owner, std::uint64_t number) : owner_(&owner), number_(number) {}
  Session* owner_;
  std::uint64_t number_;
  std::uint64_t iteration_ = 0;  // 0: none taken yet
  bool begun_ = false;
};

class PENSTOCK_API Session::Epoch::iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  explicit iterator(Epoch& range) : range_(&range), current_(range.next()) {}
  /// Throws error (errc::usage) at the end of the range.
  Batch& operator*() {
    if (!current_) past_the_end();
    return *current_;
  }
  iterator& operator++() {
    if (!current_) past_the_end();
    current_.reset();  // release the buffer before taking the next batch
    current_ = range_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const iterator& it, std::default_sentinel_t) noexcept { return !it.current_; }

 private:
  [[noreturn]] static void past_the_end();
  Epoch* range_;
  std::optional<Batch> current_;
};

}  // namespace penstock
