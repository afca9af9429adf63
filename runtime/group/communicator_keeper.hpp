// Who keeps the communicator of a rank, as program_group sees him: it passes on the group's orders and takes back how far
// they are. Implemented by nccl/program_communicator.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/group/group_messages.hpp"

#include <cstdint>
#include <string>

namespace penstock::group {

/// Called on the keeper's thread or within its calls, with a lock of its own held: may send a message, and no more.
class communicator_listener {
 public:
  virtual void communicator_changed(const communicator_state& state) = 0;
  virtual void communicator_drawn(std::uint64_t number, const std::string& id) = 0;
  /// This process will never have one again.
  virtual void communicator_failed(const std::string& why) = 0;

 protected:
  ~communicator_listener() = default;
};

/// Any thread; nothing here waits.
class communicator_keeper {
 public:
  virtual ~communicator_keeper() = default;
  /// Null: nobody listens any more, also not to what is on its way.
  virtual void report_to(communicator_listener* listener) = 0;
  /// Answered with communicator_drawn().
  virtual void draw(std::uint64_t number) = 0;
  virtual void make(std::uint64_t number, const std::string& id) = 0;
  virtual void abort(std::uint64_t number) = 0;
  /// The group is over: aborts what there is, and makes no other one.
  virtual void close() = 0;
  /// Whether a call of NCCL takes too long. At least every 100 ms.
  virtual void find_late_calls(steady_time now) = 0;
};

}  // namespace penstock::group
