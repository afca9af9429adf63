// The coordinator of a group in rank 0's process, between its links and its adapter. It has the group's book, and
// knows which link leads to which process and when the coordinator may leave. Pure: events and the time come in,
// commands come out of advance(). It has two adapters: the coordinator actor of a session
// (actors/group/coordinator) and program_coordinator.
#pragma once

#include "runtime/group/group_book.hpp"
#include "runtime/group/link_news.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::group {

struct send_over_link {
  link_id link = 0;
  std::uint64_t process = 0;
  group_order order;
};

/// News for the log, and for listeners.
struct coordinator_news {
  enum class kind : std::uint8_t {
    rank_arrived,
    rank_lost,
    meets,        ///< ranks can connect
    cannot_meet,  ///< the address cannot be taken yet
    refused,      ///< a peer that is not a member
  };
  kind what = kind::rank_arrived;
  std::string text{};
  /// Whether people should see this news.
  [[nodiscard]] bool warns() const noexcept { return what == kind::cannot_meet || what == kind::refused; }
};

/// How a process of a rank ended, as reported by its launcher.
struct told_end {
  std::uint32_t rank = 0;
  std::int32_t pid = 0;
  std::string how{};  ///< "SIGSEGV"
};

using coordinator_command = std::variant<send_over_link, draw_communicator_id, coordinator_news>;

/// Not thread-safe.
class coordinator_driver {
 public:
  /// `group`: its name, for messages.
  coordinator_driver(const group_settings& settings, std::string group, steady_time now);

  /// The commands to carry out now, in order. Call after every event, and at least every
  /// group_settings::look_every().
  [[nodiscard]] std::vector<coordinator_command> advance(steady_time now);

  // ---- from the listener

  void reported(link_id link, const member_report& report, steady_time now);
  void closed(link_id link);
  /// Follows closed(): the process at the other end, on this host, has ended.
  void process_ended(link_id link, steady_time now);
  /// A debugger has stopped the process at the other end.
  void held(link_id link, steady_time now);
  void listening(const std::string& where);
  void not_listening(const std::string& why);
  /// `who`: text_of(unknown_peer_news).
  void unknown_peer(const std::string& who);

  // ---- from the session or program

  /// From now on, the launcher reports how processes end. News of a lost process waits for this report
  /// for up to `told_within`.
  void expects_ends() noexcept { expects_ends_ = true; }
  /// May come before or after the loss is known.
  void ended(told_end end);
  void communicator_drawn(std::uint64_t number, std::string id);
  /// The session or program closes. The coordinator still sends what the others must know.
  void leave(steady_time now);

  [[nodiscard]] const group_view& view() const noexcept { return book_.view(); }
  /// The process that reported over this link. Empty if the link is closed, or if nothing has arrived yet.
  [[nodiscard]] std::optional<std::uint64_t> process_at(link_id link) const;
  /// After leave(): whether no rank can receive anything more from the coordinator.
  [[nodiscard]] bool may_go() const noexcept { return may_go_; }

  static constexpr nanoseconds told_within{1'000'000'000};

 private:
  /// Waiting news: a lost process waits for the launcher's report, and later news waits for earlier news.
  struct waiting_news {
    coordinator_news news;
    std::uint32_t rank = 0;
    std::int32_t pid = 0;  ///< pid of the lost process; 0: none
    steady_time until{};
  };

  void note(coordinator_news::kind what, std::string text);
  void note_loss(group_event&& event, steady_time now);
  void note_waiting(steady_time now);
  [[nodiscard]] bool find_out_whether_it_may_go() const;

  group_settings settings_;
  std::string group_;
  group_book book_;
  std::map<std::uint64_t, link_id> links_;      // by process: the link over which its last report came
  std::map<link_id, std::uint64_t> processes_;  // links that are open, or whose process is watched
  bool address_taken_by_others_ = false;
  bool may_go_ = false;
  std::optional<steady_time> leaving_since_;  // a time on the book's clock
  bool expects_ends_ = false;
  std::deque<waiting_news> waiting_;  // oldest first
  std::vector<told_end> told_;  // the last few ends of processes whose loss is not known yet
  std::vector<coordinator_command> outbox_;
};

}  // namespace penstock::group
