// The latest events of a session, numbered, for the callback of an embedding program, `penstock events`, chaos and
// traces. Actors write it; the session owns it.
#pragma once

#include <penstock/event.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::telemetry {

/// At the highest rate of restarts (50 a second, with three events each: died, restarted, ready), this many events cover
/// the last 27 s. Memory: events_kept x (sizeof(event) + its text); a death adds its report, with at most 64 KiB of
/// output, and a lost batch the numbers of its samples, at most 8 KiB.
inline constexpr std::size_t events_kept = 4096;

struct event_reading {
  std::vector<event> events;  ///< oldest first
  std::uint64_t lost = 0;     ///< events after the given number that are no longer kept
  std::uint64_t last = 0;     ///< number of the latest event: where the next reading continues
};

/// Thread-safe. Writing takes a lock briefly and never waits for a reader.
class event_journal {
 public:
  explicit event_journal(std::size_t capacity = events_kept);

  /// Assigns the event's number.
  void note(event what);

  /// Up to `limit` events after number `number`, oldest first. 0: from the beginning.
  [[nodiscard]] event_reading events_after(std::uint64_t number, std::size_t limit = events_kept) const;
  /// Like events_after(), but waits until there is an event, or until give_up() is called.
  [[nodiscard]] event_reading wait_for_events_after(std::uint64_t number, std::size_t limit) const;
  /// The same, but waits until that time at most.
  [[nodiscard]] event_reading wait_for_events_after(std::uint64_t number, std::size_t limit,
                                                    std::chrono::steady_clock::time_point until) const;
  /// Makes all waiting calls, current and future, return at once with what is available.
  void give_up();

 private:
  [[nodiscard]] event_reading read(std::uint64_t number, std::size_t limit) const;

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  mutable std::condition_variable news_;
  std::deque<event> kept_;
  std::uint64_t last_ = 0;
  bool given_up_ = false;
};

/// A thread that passes a journal's events to a callback, starting with the first one. The journal serves as its queue:
/// a slow callback misses the oldest events, which are counted in `dropped`, and blocks no other thread.
class event_caller {
 public:
  event_caller(std::shared_ptr<event_journal> journal, event_callback callback);
  ~event_caller();
  event_caller(const event_caller&) = delete;
  event_caller& operator=(const event_caller&) = delete;

  /// Delivers the events recorded so far, for at most `patience`, and waits for a callback in progress. After
  /// that, the callback is not called again. If stop() is called from within the callback, it does not wait:
  /// that callback is the last one.
  void stop(std::chrono::milliseconds patience) noexcept;

 private:
  struct work;
  std::shared_ptr<work> work_;
  std::thread thread_;
};

}  // namespace penstock::telemetry
