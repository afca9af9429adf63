// The lines that the session's processes wrote to stdout and stderr, for `penstock logs`. Also limits the
// rate at which they go to the session's own log. Bounded, even in a flood: sources x 2 processes (the
// running one and the last one before it that wrote anything) x kept_bytes. Thread-safe, never blocks.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::process {

struct log_line {
  std::uint64_t number = 0;  ///< number among the lines of this source, from 1
  std::string source;        ///< "worker/3", "gpu"
  std::uint32_t incarnation = 0;
  std::int64_t unix_ms = 0;   ///< when it was read
  std::string text;           ///< the line as written, without its line end
  std::uint64_t dropped = 0;  ///< how many lines just before this one are no longer kept; only for followers
  std::uint64_t order = 0;    ///< its number among all lines of the session
};

struct log_query {
  std::string source;               ///< empty: all sources
  bool previous = false;            ///< the lines of the last earlier process that wrote any, not the running process's
  std::optional<std::size_t> tail;  ///< only this many of the last lines
  /// To continue after an earlier answer: the `seen` of that answer. Empty: from the beginning.
  std::optional<std::map<std::string, std::uint64_t>> after;
};

struct log_answer {
  std::vector<log_line> lines;                ///< in the order in which they were read
  std::map<std::string, std::uint64_t> seen;  ///< the number of the last line of each source
};

class log_store {
 public:
  /// The bytes kept per process, including the log_line structs. Enough
  /// for about a screen of the longest lines, or hundreds of usual ones.
  static constexpr std::size_t kept_bytes = 64 * 1024;
  /// How many lines per second of one source go to the session's own log, after an initial burst.
  static constexpr double passed_per_second = 100;
  static constexpr double passed_burst = 500;

  /// Whether a line goes to the session's own log. `dropped`: how many lines were left out since the
  /// last line that went there.
  struct passage {
    bool pass = false;
    std::uint64_t dropped = 0;
  };

  /// A process starts in this place, so its predecessor's lines become `previous`, if it wrote any.
  void begin(const std::string& source, std::uint32_t incarnation);
  void wrote(const std::string& source, std::uint32_t incarnation, std::string_view text, std::int64_t unix_ms);
  /// Whether the next line of this source goes to the session's own log. Counts each call as one line.
  passage pass(const std::string& source, steady_time now);
  /// The process is gone, so its lines, if any, become `previous`. Returns how many lines at the end of its output did
  /// not go to the session's log.
  std::uint64_t ended(const std::string& source);

  [[nodiscard]] log_answer read(const log_query& query) const;
  [[nodiscard]] bool knows(const std::string& source) const;

 private:
  struct pages {
    std::deque<log_line> lines;
    std::size_t bytes = 0;
  };
  struct place {
    pages current;
    pages previous;
    bool running = false;
    double allowance = passed_burst;
    steady_time allowance_at{};
    std::uint64_t dropped = 0;
    std::uint64_t written = 0;
  };

  static void close(place& p);

  mutable std::mutex mutex_;
  std::map<std::string, place> places_;
  std::uint64_t written_ = 0;
};

}  // namespace penstock::process
