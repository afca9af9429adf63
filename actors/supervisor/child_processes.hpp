// Starts and signals the child processes of one kind for their actor. Everything happens on the session's io thread,
// in order, except spawning, which may wait for a file system and has its own thread. Any thread may call. The io
// thread passes on the processes' events and messages; worker_processes and owner_process define who gets them, and
// in which form.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/supervisor/child_starter.hpp"
#include "actors/supervisor/linked_child.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"

#include <boost/asio/post.hpp>

#include <csignal>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace penstock::supervisor {

/// In: the messages that a child sends; Out: those sent to it. Listeners receive the events, among them `output`.
template <class Ref, class In, class Out, class Listeners>
class child_processes : public child_starter<Ref>,
                        public std::enable_shared_from_this<child_processes<Ref, In, Out, Listeners>> {
 public:
  /// Call before the first start.
  void report_to(Listeners listeners) { listeners_ = std::move(listeners); }

  void start(Ref who) final {
    boost::asio::post(io_.context(), [self = this->shared_from_this(), who] { self->start_now(who); });
  }

  void signal(Ref who, int number) final {
    boost::asio::post(io_.context(), [self = this->shared_from_this(), who, number] {
      const auto it = self->children_.find(who);
      if (it == self->children_.end()) return;
      if (it->second.process) return it->second.process->signal(number);
      self->signal_start(who, it->second, number);
    });
  }

  [[nodiscard]] std::string current_start() const override { return io_.spawner().current(); }

  /// Kills and reaps all processes, reports nothing more and drops the listeners. Blocks; do not call on the io
  /// thread.
  void shut_down() {
    std::promise<void> done;
    boost::asio::post(io_.context(), [&] {
      shut_down_ = true;
      // Signal all children first: reaping waits for one after another.
      for (auto& [who, one] : children_)
        if (one.process) one.process->signal(SIGKILL);
      for (auto& [who, one] : children_)
        if (one.link) one.link->close();
      children_.clear();
      release();
      listeners_ = {};
      done.set_value();
    });
    done.get_future().wait();
  }

 protected:
  using child_link = protocol::link<In, Out>;

  struct child {
    std::vector<int> signals{};  // signals to send once the child runs
    std::shared_ptr<process::start_control> control{};
    std::unique_ptr<process::child_process> process{};  // null: the child is starting, or runs on another machine
    std::shared_ptr<child_link> link{};                 // null: the child is starting
  };

  /// `unasked_max`: see link::callbacks.
  child_processes(process::io_thread& io, std::uint64_t unasked_max) : io_(io), unasked_max_(unasked_max) {}

  void started(Ref who, result<linked_child> made) {
    if (shut_down_) return;  // dropping `made` ends the child
    if (!made) {
      children_.erase(who);
      return tell_refused(who, std::move(made.error()));
    }
    typename child_link::callbacks calls;
    calls.received = [this, who](In&& message) { tell_message(who, std::move(message)); };
    calls.closed = [this, who](const std::string& reason) { tell_closed(who, reason); };
    calls.unasked_max = unasked_max_;
    child& one = children_[who];
    one.process = std::move(made->process);
    one.link = child_link::make(io_.context(), std::move(made->link), std::move(calls));
    listeners_.output->started(source_of(who), incarnation_of(who));
    tell_started(who, *made, one.link);
    one.link->start();
    for (const int number : one.signals) one.process->signal(number);
  }

  virtual void launch(Ref who, process::child_callbacks calls) {
    auto control = start_linked_child(
        io_, request_for(who), std::move(calls),
        [self = this->shared_from_this(), who](result<linked_child> made) { self->started(who, std::move(made)); });
    // The start may already have failed.
    if (const auto it = children_.find(who); it != children_.end()) it->second.control = std::move(control);
  }

  /// Signals a child that is not running yet, or not on this machine.
  virtual void signal_start(Ref /*who*/, child& one, int number) {
    one.signals.push_back(number);  // started() sends them
    if (number == SIGKILL && one.control) one.control->give_up();
  }

  /// Called by shut_down() on the io thread.
  virtual void release() {}

  virtual linked_child_request request_for(Ref who) = 0;
  /// `made`: without its process and its link.
  virtual void tell_started(Ref who, linked_child& made, const std::shared_ptr<child_link>& link) = 0;
  virtual void tell_refused(Ref who, failure why) = 0;
  virtual void tell_message(Ref who, In&& message) = 0;
  virtual void tell_closed(Ref who, const std::string& reason) = 0;
  virtual void tell_ended(Ref who, const process::exit_report& report, const process::output_tail& tail) = 0;

  process::io_thread& io_;
  Listeners listeners_;
  std::map<Ref, child> children_;  // on the io thread only

 private:
  // The name of a child's output, and its incarnation.
  static std::string source_of(worker_ref who) { return fmt::format("worker/{}", who.worker); }
  static std::string source_of(std::uint32_t /*owner*/) { return "gpu"; }
  static std::uint32_t incarnation_of(worker_ref who) { return who.incarnation; }
  static std::uint32_t incarnation_of(std::uint32_t owner) { return owner; }

  void start_now(Ref who) {
    if (shut_down_) return;
    children_[who] = {};
    process::child_callbacks calls;
    calls.output = [this, who](std::string_view line) {
      listeners_.output->wrote(source_of(who), incarnation_of(who), line);
    };
    calls.exited = [this, who](const process::exit_report& report, const process::output_tail& tail) {
      on_end(who, report, tail);
    };
    launch(who, std::move(calls));
  }

  void on_end(Ref who, const process::exit_report& report, const process::output_tail& tail) {
    const auto it = children_.find(who);
    if (it == children_.end() || !it->second.link) return;
    // Messages that the child sent before it died still count. Do not wait for end of file: a grandchild may hold the
    // socket open.
    it->second.link->drain();
    it->second.link->close();
    listeners_.output->ended(source_of(who));
    tell_ended(who, report, tail);
    children_.erase(who);
  }

  const std::uint64_t unasked_max_;
  bool shut_down_ = false;  // on the io thread only
};

}  // namespace penstock::supervisor
