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
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock {

struct session_options {
  bool digests = false;                  ///< hash every batch as it is delivered
  std::optional<std::uint64_t> batches;  ///< deliver so many batches in all, then end as "stopped"
  std::span<const std::byte> state;      ///< go on where Session::state() of an earlier run ended
  bool control_socket = true;            ///< let `penstock status` and friends attach
  event_callback on_event;               ///< hears of deaths, bad samples, epochs, ...: see event.hpp
};

/// Thread rules: one thread takes batches; stop(), status(), report() and state() may be called from any
/// thread, also meanwhile. Several sessions in one process work. The library installs no signal handler and
/// reaps no children but its own.
class PENSTOCK_API Session {
 public:
  /// Checks the config and starts nothing (unless [loader] start = "eager"). Throws error: errc::config, or
  /// errc::state_mismatch for a state that cannot be read.
  explicit Session(config settings, session_options options = {});
  /// Ends whatever runs, within half a second; nothing survives it.
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// The next batch of the stream, over all [sampler] epochs; nothing at its end or after stop(). The first
  /// call starts the workers. Throws error: what went wrong, and from then on the same error.
  std::optional<Batch> next();

  /// The batches of one epoch, from its first. Taking another epoch than the one that follows drops what was
  /// prepared.
  class Epoch;
  Epoch epoch(std::uint64_t number);

  /// Ends the stream: next() returns nothing, workers finish their sample and go; who is not gone when the
  /// patience is over is killed. From any thread; calling it again with less patience shortens the end. Does
  /// not wait.
  void stop(std::chrono::milliseconds patience = std::chrono::seconds(10)) noexcept;
  /// Waits until everything has ended that stop() sent home, and gives back all memory. From the thread that
  /// takes batches; the destructor does it too.
  void close() noexcept;
  /// No new work is handed out until resume().
  void pause();
  void resume();

  [[nodiscard]] session_status status() const;
  [[nodiscard]] run_report report() const;
  /// Where the stream stands after the last batch that was handed out: at most 1 KiB and 8 bytes a batch of
  /// the open epoch (with digests), to be given to session_options::state.
  [[nodiscard]] std::vector<std::byte> state() const;

  /// What this config would do: facts about dataset and plan, without starting a process.
  struct outline {
    std::uint64_t samples = 0;
    std::uint64_t batches_per_epoch = 0;
    std::uint64_t expected_samples = 0;
    std::uint64_t slot_bytes = 0;
    std::uint64_t arena_bytes = 0;
    std::uint32_t workers = 0;
    std::string fingerprint;
    std::vector<std::string> notices;
  };
  [[nodiscard]] static outline dry_run(const config& settings);

 private:
  friend class Epoch;
  class body;
  std::unique_ptr<body> body_;
};

/// A range over one epoch: `for (Batch& batch : session.epoch(0))`. One iteration at a time.
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
  bool begun_ = false;
};

class Session::Epoch::iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  explicit iterator(Epoch& range) : range_(&range), current_(range.next()) {}
  Batch& operator*() noexcept { return *current_; }
  iterator& operator++() {
    current_.reset();  // the buffer first, then the next batch
    current_ = range_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const iterator& it, std::default_sentinel_t) noexcept { return !it.current_; }

 private:
  Epoch* range_;
  std::optional<Batch> current_;
};

inline Session::Epoch::iterator Session::Epoch::begin() {
  return iterator(*this);
}

}  // namespace penstock
