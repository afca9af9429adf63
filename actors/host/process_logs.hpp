// The output of the session's processes: kept in the log_store for `penstock logs`, and copied to the
// session's own log at a limited rate, without the stacks of dying processes. Used by the session for its workers and the GPU owner's process;
// thread-safe.
#pragma once

#include "actors/protocol/local/listeners.hpp"
#include "runtime/process/log_store.hpp"
#include "runtime/process/stack_filter.hpp"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::host {

class process_logs final : public supervisor::output_listener {
 public:
  void started(const std::string& source, std::uint32_t incarnation) override {
    book_.begin(source, incarnation);
  }
  void wrote(const std::string& source, std::uint32_t incarnation, std::string_view line) override;
  void ended(const std::string& source) override;

  [[nodiscard]] const process::log_store& book() const noexcept { return book_; }

 private:
  void tell(const std::string& source, const std::vector<std::string>& lines);

  process::log_store book_;
  std::mutex mutex_;
  std::map<std::string, process::stack_filter> filters_;  // by source
};

}  // namespace penstock::host
