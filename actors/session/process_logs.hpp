// What the session's processes write: kept in the log book for `penstock logs`, and passed on to the
// session's own log as far as a person can follow it. Used by the session for its workers; thread-safe.
#pragma once

#include "runtime/base/ids.hpp"
#include "runtime/process/log_book.hpp"

namespace penstock::session {

class process_logs {
 public:
  void started(worker_ref who) { begin(name_of(who), who.incarnation); }
  void wrote(worker_ref who, std::string_view line) { wrote(name_of(who), who.incarnation, line); }
  void ended(worker_ref who) { ended(name_of(who)); }

  /// The same for a process that is no worker ("gpu").
  void begin(const std::string& source, std::uint32_t incarnation) { book_.begin(source, incarnation); }
  void wrote(const std::string& source, std::uint32_t incarnation, std::string_view line);
  void ended(const std::string& source);

  [[nodiscard]] const process::log_book& book() const noexcept { return book_; }
  static std::string name_of(worker_ref who);

 private:
  process::log_book book_;
};

}  // namespace penstock::session
