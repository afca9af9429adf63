// The interface that program_group uses to keep a rank's communicator: carries out the group's
// orders and reports the communicator's state. Implemented by nccl/program_communicator.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/group/group_messages.hpp"

#include <cstdint>
#include <string>

namespace penstock::group {

/// The keeper makes these calls on its thread or within calls to it, while it holds a lock: an
/// implementation may only send a message.
class communicator_listener {
 public:
  virtual void communicator_changed(const communicator_state& state) = 0;
  virtual void communicator_drawn(std::uint64_t number, const std::string& id) = 0;
  /// Called if this process can never have a communicator again.
  virtual void communicator_failed(const std::string& why) = 0;

 protected:
  ~communicator_listener() = default;
};

/// Call from any thread. No call waits.
class communicator_keeper {
 public:
  virtual ~communicator_keeper() = default;
  /// Null: no more reports follow, not even of events that have already happened.
  virtual void report_to(communicator_listener* listener) = 0;
  /// Creates the NCCL id of the communicator with this number. Answered with communicator_drawn().
  virtual void draw(std::uint64_t number) = 0;
  virtual void make(std::uint64_t number, const std::string& id) = 0;
  virtual void abort(std::uint64_t number) = 0;
  /// The group is over. Aborts the communicator, and makes no other.
  virtual void close() = 0;
  /// Checks whether an NCCL call takes too long. Call at least every 100 ms.
  virtual void find_late_calls(steady_time now) = 0;
};

}  // namespace penstock::group
