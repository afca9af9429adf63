// Supervises the GPU owner's process (placement = "process"): when to start it, what to send it, when to end
// it, and what its death means for the run. Pure: events and the time come in, commands come out of
// advance(). Driven by actors/supervisor/owner_keeper, which translates messages, and reads /proc and the
// flight recorder.
//
//            open            hello               opened            close
//   idle ----------> starting -----> introduced --------> ready -----------> stopping --exited--> stopped
//                     ^   |              |                  |                    |
//                     |   +--------------+------------------+---exited-----------+ (its sink has not finished)
//                     |                             v
//                     +------------------------- backoff            any: no restart helps ----> failed
//
// It combines four pure parts: how the current process is terminated (termination), its clocks
// (hang_detector), the restart rules (restart_policy) and its unacknowledged uploads (owner_orders).
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/supervision/hang_detector.hpp"
#include "runtime/supervision/owner_orders.hpp"
#include "runtime/supervision/restart_policy.hpp"
#include "runtime/supervision/termination.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

#include <string_view>

namespace penstock::supervision {

struct owner_settings {
  restart_settings restart;
  std::uint64_t seed = 0;  ///< for the backoff's jitter
  hang_settings clocks;
  termination_settings ending;
  poison_rule on_poison = poison_rule::fail;
  bool cures_poison = true;  ///< set if a new owner is a new process, and so has a new CUDA context
};

enum class owner_stage : std::uint8_t {
  idle,
  starting,
  introduced,
  ready,
  backoff,
  stopping,
  stopped,
  failed
};
[[nodiscard]] child_state state_of(owner_stage stage) noexcept;

// ---- commands ---------------------------------------------------------------------------------------------

struct start_owner_process {
  std::uint32_t incarnation = 0;
};
/// Send the device to open, the layout of the slots and the last snapshot. Uploads follow in a separate
/// command.
struct introduce_owner {
  std::uint32_t incarnation = 0;
};
struct send_uploads {
  std::vector<upload_order> uploads;
};
struct stop_owner_process {
  bool whole = false;  ///< whether the stream is complete, so that the sink may finish
};
/// Tell the scheduler to order unacknowledged uploads again, under this era.
struct uploads_lost {
  struct poison {
    stream_position position = 0;
    std::string reason;
  };
  /// The batch that the death is blamed on.
  struct blame {
    stream_position position = 0;
    std::string cause;  ///< how the owner ended
  };
  std::uint64_t era = 0;
  std::optional<poison> left_out;  ///< this batch has killed two owners and is skipped
  std::optional<blame> blamed{};
};
struct owner_is_ready {
  bool first = false;  ///< the first start in the session; the device is known from now on
};
/// Uploads have resumed after the death of an incarnation.
struct owner_recovered {
  std::uint32_t incarnation = 0;  ///< incarnation of the process that died
  nanoseconds since_its_end{};
};
struct owner_died {
  owner_death_report report;
  std::optional<std::string> in_hand;  ///< the suspect batch, as text for messages
  bool unasked = true;                 ///< whether to log it as a warning: no operator ended it, and it did not exit to be replaced
};
struct owner_left_out {
  std::string text;  ///< a warning: which batch is skipped, and why
};
struct owner_failed {
  failure reason;
};
struct owner_closed {};
/// A start failed and will be retried.
struct owner_not_started {
  failure reason;
  nanoseconds again_in{};
};

using owner_command = std::variant<start_owner_process, introduce_owner, send_uploads, stop_owner_process,
                                   send_signal, killing_begins, uploads_lost, owner_is_ready, owner_recovered,
                                   owner_died, owner_left_out, owner_not_started, owner_failed, owner_closed>;

/// What the keeper reads about the process when it polls.
struct owner_sign {
  std::uint64_t heartbeats = 0;
  std::uint64_t work_mark = 0;
  std::optional<std::uint32_t> in_hand;  ///< mark of the upload that the sink is working on
  bool traced = false;
  /// The kernel function that the process waits in; during a start, what the start waits for.
  std::string wait_channel;
};

/// The end of the process, known when it is reaped.
struct owner_end {
  process::exit_report report;
  std::optional<std::uint32_t> in_hand;
  std::string last_lines;
  bool oom_killed = false;  ///< whether the kernel counted an OOM kill that explains it
  bool oom_is_counted = true;  ///< oom_watch::counts()
  bool injected = false;       ///< whether the fault injector killed it
};

class owner_supervision {
 public:
  owner_supervision(const owner_settings& settings, steady_time now);

  // Calls from the session and the scheduler.
  void open(steady_time now);
  void order(upload_order upload) { orders_.order(std::move(upload)); }
  /// Lets the process finish (and its sink, if the stream is complete); kills it after `patience`. A second
  /// call can only shorten this time.
  void close(steady_time now, bool whole, nanoseconds patience);
  /// An operator's order. It is never counted and has no backoff.
  void restart(steady_time now);

  // Messages from the process. All except the first are dropped if they come from another incarnation, or
  // from one that violated the protocol.
  void started(std::uint32_t incarnation, pid_t pid);
  void start_failed(std::uint32_t incarnation, steady_time now, failure why);
  /// `refusal`: why the session cannot work with this program; empty if it can.
  void greeted(std::uint32_t incarnation, steady_time now, const std::string& refusal);
  void opened(std::uint32_t incarnation, steady_time now);
  void gave_up(std::uint32_t incarnation, steady_time now, failure why);
  void cannot_be_replaced(std::uint32_t incarnation);
  /// Returns false if the message must be ignored.
  [[nodiscard]] bool copied(std::uint32_t incarnation, steady_time now, std::uint64_t upload);
  [[nodiscard]] bool delivered(std::uint32_t incarnation, steady_time now, std::uint64_t upload);
  void keep_snapshot(std::string state) { orders_.keep_snapshot(std::move(state)); }
  void link_closed(std::uint32_t incarnation, steady_time now, const std::string& reason);
  void exited(std::uint32_t incarnation, steady_time now, const owner_end& end);

  /// Takes the current state of the process, and checks its clocks and the deadline of its start. Call about
  /// every clocks.tick(), at most 250 ms apart.
  void look(steady_time now, const owner_sign& sign);

  [[nodiscard]] std::vector<owner_command> advance(steady_time now);
  [[nodiscard]] steady_time next_deadline() const;

  [[nodiscard]] owner_stage stage() const noexcept { return stage_; }
  [[nodiscard]] bool has_process() const noexcept { return current_.pid.has_value(); }
  [[nodiscard]] std::optional<pid_t> pid() const noexcept { return current_.pid; }
  [[nodiscard]] std::uint32_t incarnation() const noexcept { return incarnation_; }
  [[nodiscard]] std::uint32_t restarts() const noexcept { return restarts_; }
  [[nodiscard]] bool irreplaceable() const noexcept { return irreplaceable_; }
  [[nodiscard]] const owner_orders& orders() const noexcept { return orders_; }
  /// Whether this end means that the stream is complete and the sink has finished.
  [[nodiscard]] bool finishes_with(const process::exit_report& end) const noexcept {
    return stage_ == owner_stage::stopping && whole_ && end.exited_with(0);
  }
  /// Whether the process takes messages: prepare_owner, map_partition.
  [[nodiscard]] bool hears() const noexcept {
    return stage_ == owner_stage::introduced || stage_ == owner_stage::ready;
  }

 private:
  void start(steady_time now);
  void say_stop(steady_time now);
  void fail(failure why);
  void violate(steady_time now, const std::string& reason);
  void end_process(steady_time now);
  void look_at_clock(steady_time now);
  [[nodiscard]] bool being_started() const { return stage_ == owner_stage::starting && !current_.pid; }
  [[nodiscard]] bool heeded(std::uint32_t incarnation) const;
  [[nodiscard]] bool is_over() const {
    return stage_ == owner_stage::stopped || stage_ == owner_stage::failed;
  }
  [[nodiscard]] bool makes_room(const owner_end& end) const;
  [[nodiscard]] bool refused_to_work(const owner_end& end) const;
  [[nodiscard]] suspicion_rule suspicion_after(const process::exit_report& end) const;
  [[nodiscard]] owner_death_report report_of(const owner_end& end, const std::optional<upload_order>& suspect,
                                             steady_time now) const;
  [[nodiscard]] std::optional<failure> why_no_other_helps(const owner_end& end) const;
  [[nodiscard]] std::optional<uploads_lost::poison> decide(const owner_orders::loss& loss);
  void settle_death(steady_time now, const owner_end& end, const owner_orders::loss& loss, pid_t pid);
  void restart_or_fail(steady_time now, const restart_decision& next, failure if_not);

  owner_settings settings_;
  restart_policy policy_;
  hang_detector hangs_;
  termination ending_;
  owner_orders orders_;
  std::vector<owner_command> outbox_;
  owner_stage stage_ = owner_stage::idle;
  std::uint32_t incarnation_ = 0;
  std::uint32_t restarts_ = 0;
  /// The current incarnation; start() resets it.
  struct {
    std::optional<pid_t> pid;
    std::optional<failure> gave_up;  // the reason that the process gave before it exited
    steady_time started_at{};
    std::string wait_channel;  // what the process, or its start, was last seen waiting in
    bool fruitful = false;     // whether it has acknowledged a batch
    bool operated = false;     // an operator ended it
  } current_;
  steady_time start_due_ = never;  // in backoff
  steady_time close_by_ = never;
  late_polls polls_;  // also postpones close_by_
  std::optional<std::pair<std::uint32_t, steady_time>>
      not_recovered_;           // the incarnation that died last, and when
  bool known_ = false;          // the session knows the device
  bool irreplaceable_ = false;  // whether its sink keeps state but gives no snapshots
  bool whole_ = false;          // the stream is complete
  // The stream is complete, but the process died before its sink had finished; the next
  // process must finish the sink.
  bool finishing_ = false;
};

}  // namespace penstock::supervision
