// The links of a group as its two actors need them: interfaces, so that tests can substitute their own, and
// the implementations on the session's io thread. A mailbox keeps only the newest message of each sender, so
// a flooding peer fills no queue.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "runtime/group/coordinator_driver.hpp"
#include "runtime/net/links.hpp"
#include "runtime/process/io_thread.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock::group {

/// The newest message of each sender that has not been taken yet. Thread-safe.
template <class Sender, class Message>
class newest {
 public:
  /// True if the mailbox was empty: notify the receiver, once.
  [[nodiscard]] bool put(Sender from, Message what) {
    const std::lock_guard hold(mutex_);
    const bool was_empty = messages_.empty();
    messages_.insert_or_assign(from, std::move(what));
    return was_empty;
  }
  [[nodiscard]] std::map<Sender, Message> take() {
    const std::lock_guard hold(mutex_);
    return std::exchange(messages_, {});
  }

 private:
  std::mutex mutex_;
  std::map<Sender, Message> messages_;  // at most one per open link
};
using newest_order = newest<int, group_order>;  // there is one sender
using newest_reports = newest<link_id, member_report>;

/// What the launcher of the ranks has reported to the coordinator. Thread-safe.
class told_ends {
 public:
  /// Records that the launcher will report how processes end.
  void expect() { expected_ = true; }
  [[nodiscard]] bool expected() const { return expected_; }
  void put(told_end end) {
    const std::lock_guard hold(mutex_);
    ends_.push_back(std::move(end));
  }
  [[nodiscard]] std::vector<told_end> take() {
    const std::lock_guard hold(mutex_);
    return std::exchange(ends_, {});
  }

 private:
  std::atomic<bool> expected_ = false;
  std::mutex mutex_;
  std::vector<told_end> ends_;  // at most one for each process that the launcher starts
};

/// No call blocks; any thread may call.
class member_wire {
 public:
  virtual ~member_wire() = default;
  virtual void send(member_report report) = 0;
  /// Closes the link and forgets the actor.
  virtual void stop() = 0;
};
class coordinator_wire {
 public:
  virtual ~coordinator_wire() = default;
  virtual void send(link_id to, group_order order) = 0;
  virtual void stop() = 0;
};

/// Starts connecting. The actor receives orders_arrived, link_made, link_lost, coordinator_ended,
/// coordinator_held and links_refused.
std::shared_ptr<member_wire> open_member_wire(process::io_thread& io, link_settings settings,
                                              std::shared_ptr<newest_order> orders, member_actor actor);
/// Starts listening. The actor receives reports_arrived, member_closed, member_process_ended, member_held,
/// address_taken, address_refused, unknown_peer_came and links_refused.
std::shared_ptr<coordinator_wire> open_coordinator_wire(process::io_thread& io, link_settings settings,
                                                        std::shared_ptr<newest_reports> reports,
                                                        coordinator_actor actor);

}  // namespace penstock::group
