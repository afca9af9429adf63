#include "runtime/group/program_group.hpp"

#include "runtime/base/log.hpp"
#include "runtime/group/collective_book.hpp"
#include "runtime/group/collective_member.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include <future>
#include <map>
#include <utility>
#include <variant>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;

// The last report has left by then.
constexpr auto linger = 100ms;
// For an answer to the last report of a rank that the others do not wait for.
constexpr auto patience_with_answer = 2s;

steady_time now() {
  return std::chrono::steady_clock::now();
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// Rank 0's part: the book of the group, that of the collective operations, and the links of all ranks.
class coordinating {
 public:
  coordinating(const group_settings& settings, std::string name)
      : name_(std::move(name)),
        book_(settings, now()),
        collectives_(settings.world_size),
        seats_(settings.world_size) {}

  result<void> listen(boost::asio::io_context& io, const link_settings& links,
                      const std::function<void()>& step) {
    coordinator_listener::callbacks calls;
    calls.report = [this, step](link_id link, const member_report& report) {
      hear(link, report);
      step();
    };
    calls.attachment = [this, step](link_id link, const std::string& bytes) {
      hear_collectives(link, bytes);
      step();
    };
    calls.closed = [this](link_id link, const std::string&) { forget_unless_last(link); };
    calls.process_ended = [this, step](link_id link) {
      lose_process(link);
      step();
    };
    calls.listening = [this](const std::string& where) {
      log::info("group", "the group '{}' meets at {}", name_, where);
    };
    calls.not_listening = [this](const std::string& why) {
      log::warn("group", "the ranks of '{}' cannot meet yet: {}", name_, why);
    };
    calls.stranger = [this](const stranger_news& news) {
      log::warn("group", "the group '{}' has refused {} ({}): {}", name_, news.peer, name_of(news.kind),
                news.text);
    };
    auto made = coordinator_listener::make(io, links, std::move(calls));
    if (!made) return tl::unexpected(std::move(made.error()));
    listener_ = std::move(*made);
    return {};
  }

  void step() {
    for (group_command& one : book_.advance(now())) {
      if (auto* const order = std::get_if<send_order>(&one)) follow(std::move(*order));
      if (const auto* const event = std::get_if<group_event>(&one)) tell(*event);
    }
    answer();
  }

  /// The programs are out of step for ever.
  [[nodiscard]] std::optional<std::string> wrong() const {
    const auto& found = collectives_.wrong();
    if (!found) return std::nullopt;
    return fmt::format("rank {}: {}", found->rank, found->what);
  }
  /// Without a single report there is no group.
  [[nodiscard]] bool may_leave() const { return book_.may_leave() || peers_.empty(); }

 private:
  void tell(const group_event& event) const {
    using what = group_event::kind;
    const bool of_a_rank = event.what == what::joined || event.what == what::back ||
                           event.what == what::replaced || event.what == what::lost;
    if (of_a_rank) log::info("group", "{}: {}", name_, event.text);
  }

  struct peer {
    std::uint32_t rank = 0;
    link_id link = 0;
    bool leaves = false;
    std::optional<collective_report> said{};
    std::optional<group_order> told{};  // last
    shared_collective_result answered{};
  };

  void hear(link_id link, const member_report& report) {
    peer& p = peers_[report.card.process];
    p.rank = report.card.rank;
    p.link = link;
    p.leaves = p.leaves || report.stream_over;
    processes_[link] = report.card.process;
    book_.heard(report, now());
  }

  void hear_collectives(link_id link, const std::string& bytes) {
    const auto process = processes_.find(link);
    if (process == processes_.end()) return;
    auto said = decode_collective_report(bytes, static_cast<std::uint32_t>(seats_.size()));
    if (!said) return log::warn("group", "{}: {}", name_, said.error().message);
    peer& p = peers_[process->second];
    p.said = std::move(*said);
    if (p.rank < seats_.size() && seats_[p.rank] == process->second)
      collectives_.heard(p.rank, *p.said, p.leaves);
  }

  /// The group's book says which process has a rank: only its words count.
  void follow(send_order order) {
    const auto found = peers_.find(order.process);
    if (found == peers_.end()) return;
    peer& p = found->second;
    if (order.order.standing == rank_standing::member && seats_.at(p.rank) != order.process) {
      seats_[p.rank] = order.process;
      collectives_.replaced(p.rank);
      if (p.said) collectives_.heard(p.rank, *p.said, p.leaves);
    }
    p.told = std::move(order.order);
    send(order.process, p);
  }

  void send(std::uint64_t process, peer& p) {
    collective_answer answer;
    if (p.rank < seats_.size() && seats_[p.rank] == process)
      answer = {collectives_.answer_for(p.rank), collectives_.awaited_by(p.rank)};
    p.answered = answer.result;
    listener_->send(p.link, *p.told, encode(answer));
  }

  /// Results leave at once, with the order that their rank had last.
  void answer() {
    for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
      const auto found = peers_.find(seats_[rank]);
      if (found == peers_.end() || !found->second.told) continue;
      const auto result = collectives_.answer_for(rank);
      if (result && result != found->second.answered) send(found->first, found->second);
    }
  }

  /// What says of a process that it has ended is the end of its last link.
  void forget_unless_last(link_id link) {
    const auto process = processes_.find(link);
    if (process != processes_.end() && peers_.at(process->second).link != link) processes_.erase(process);
  }
  void lose_process(link_id link) {
    const auto process = processes_.find(link);
    if (process == processes_.end()) return;
    book_.gone(process->second, "its process has ended", now());
    processes_.erase(process);
  }

  const std::string name_;
  group_book book_;
  collective_book collectives_;
  std::vector<std::uint64_t> seats_;            // by rank: the process that has it, by the book's word
  std::map<std::uint64_t, peer> peers_;         // by process
  std::map<link_id, std::uint64_t> processes_;  // of links that are open
  std::unique_ptr<coordinator_listener> listener_;
};

}  // namespace

class program_group::body : public std::enable_shared_from_this<body> {
 public:
  body(boost::asio::io_context& io, program_group_setup setup, std::shared_ptr<shared_news> shared)
      : io_(io),
        setup_(std::move(setup)),
        shared_(std::move(shared)),
        member_(setup_.member, 0, now()),
        collectives_(setup_.collectives_done) {
    setup_.links.attachment_bytes_max = collective_attachment_max(setup_.links.world_size);
    known_.collectives_done = setup_.collectives_done;
  }

  void begin() {
    member_.described({});  // there is no stream: all have the same one
    timer_.emplace(io_);
    if (setup_.member.card.rank == 0) {
      coordinator_.emplace(setup_.group, setup_.name);
      if (auto ok = coordinator_->listen(io_, setup_.links, [this] { step(); }); !ok)
        return refused(ok.error());
    }
    member_link::callbacks calls;
    calls.order = [this](const group_order& order) { hear(order); };
    calls.attachment = [this](const std::string& bytes) { hear_collectives(bytes); };
    calls.connected = [this] { linked_ = true; };
    calls.disconnected = [this](const std::string& why) {
      linked_ = false;
      trouble_ = why;
      member_.report_again();
      step();
    };
    calls.coordinator_ended = [this] {
      member_.coordinator_gone("its process has ended");
      step();
    };
    auto made = member_link::make(io_, setup_.links, std::move(calls));
    if (!made) return refused(made.error());
    link_ = std::move(*made);
    step();
    tick();
  }

  void enter(collective_kind what, std::string value) {
    collectives_.enter(what, std::move(value));
    known_.not_entered.clear();
    member_.report_again();
    step();
  }
  void fail(std::string why) {
    member_.fail(std::move(why));
    step();
  }
  void leave() {
    if (leaving_since_) return;
    leaving_since_ = now();
    member_.stream_ended();
    step();
  }
  /// Before the I/O thread ends.
  void stop() {
    stopped_ = true;
    timer_.reset();
    link_.reset();
    coordinator_.reset();
  }

 private:
  void tick() {
    timer_->expires_after(std::min<nanoseconds>(setup_.member.beat() / 2, linger));
    timer_->async_wait([self = shared_from_this()](const boost::system::error_code& status) {
      if (status || self->stopped_) return;
      self->step();
      self->tick();
    });
  }

  void hear(const group_order& order) {
    linked_ = true;
    member_.heard(order, now());
    heard_ = order.heard;
    known_.lost = order.lost;
    step();
  }
  void hear_collectives(const std::string& bytes) {
    auto answer = decode_collective_answer(bytes, setup_.links.world_size);
    if (!answer) return log::warn("group", "{}: {}", setup_.name, answer.error().message);
    known_.not_entered = std::move(answer->not_entered);
    collectives_.heard(std::move(answer->result));
    step();
  }
  void refused(const failure& why) {
    known_.refused = why;
    known_.may_go = true;
    publish();
  }

  void step() {
    if (stopped_ || !link_) return;
    for (member_command& one : member_.advance(now())) {
      if (auto* const report = std::get_if<send_report>(&one)) {
        last_report_ = report->report.number;
        if (report->report.stream_over && !last_word_) last_word_ = last_report_;
        if (auto ok = link_->send(report->report, encode(collectives_.report())); !ok) refused(ok.error());
      }
      if (const auto* const order = std::get_if<abort_communicator>(&one))
        member_.communicator_aborted(order->number);
      if (const auto* const end = std::get_if<end_rank>(&one)) {
        known_.end = *end;
        ended_at_ = now();
      }
    }
    if (coordinator_) {
      coordinator_->step();
      if (auto wrong = coordinator_->wrong(); wrong && !std::exchange(disagreed_, true))
        fail(std::move(*wrong));
    }
    known_.joined = known_.joined || member_.right().has_value();
    known_.waits_for = waits_for();
    known_.collectives_done = collectives_.done();
    known_.result = collectives_.result();
    known_.may_go = known_.refused || may_go(now());
    publish();
  }

  [[nodiscard]] std::string waits_for() const {
    if (!linked_) {
      return fmt::format("rank 0 at {}{}", text_of(setup_.links.address),
                         trouble_.empty() ? "" : ": " + trouble_);
    }
    return known_.lost.empty() ? "an answer of rank 0" : ranks_text(known_.lost) + " to arrive";
  }

  [[nodiscard]] bool may_go(steady_time at) const {
    if (!leaving_since_) return false;
    if (coordinator_ && !coordinator_->may_leave()) return false;
    if (known_.end) return at - ended_at_ >= linger;
    // Under "wait" a new process of rank 0 would look for it.
    if (setup_.member.waits_for_lost || !last_word_) return false;
    return heard_ >= *last_word_ || at - *leaving_since_ >= patience_with_answer;
  }

  void publish() {
    const std::lock_guard hold(shared_->mutex);
    shared_->news = known_;
    shared_->changed.notify_all();
  }

  boost::asio::io_context& io_;
  program_group_setup setup_;
  const std::shared_ptr<shared_news> shared_;
  member_book member_;
  collective_member collectives_;
  std::optional<coordinating> coordinator_;
  std::unique_ptr<member_link> link_;
  std::optional<boost::asio::steady_timer> timer_;
  program_group_news known_;
  std::string trouble_;  // why there is no link
  bool linked_ = false;
  bool disagreed_ = false;
  bool stopped_ = false;
  std::uint64_t heard_ = 0;  // number of the last report that was answered
  std::uint64_t last_report_ = 0;
  std::optional<std::uint64_t> last_word_;  // number of the first report that says that it leaves
  std::optional<steady_time> leaving_since_;
  steady_time ended_at_{};
};

program_group::program_group() = default;

result<std::unique_ptr<program_group>> program_group::begin(program_group_setup setup) {
  if (auto ok = prepare_links(setup.links); !ok) return tl::unexpected(std::move(ok.error()));
  std::unique_ptr<program_group> made(new program_group());
  made->body_ = std::make_shared<body>(made->io_.context(), std::move(setup), made->shared_);
  made->post([](body& its) { its.begin(); });
  return made;
}

program_group::~program_group() {
  std::promise<void> stopped;
  post([&stopped](body& its) {
    its.stop();
    stopped.set_value();
  });
  stopped.get_future().wait();
  body_.reset();
}

void program_group::post(std::function<void(body&)> what) {
  boost::asio::post(io_.context(), [its = body_, what = std::move(what)] { what(*its); });
}

void program_group::enter(collective_kind what, std::string value) {
  post([what, value = std::move(value)](body& its) { its.enter(what, value); });
}
void program_group::fail(std::string why) {
  post([why = std::move(why)](body& its) { its.fail(why); });
}
void program_group::leave() {
  post([](body& its) { its.leave(); });
}

program_group_news program_group::news() const {
  const std::lock_guard hold(shared_->mutex);
  return shared_->news;
}

bool program_group::wait(steady_time until,
                         const std::function<bool(const program_group_news&)>& enough) const {
  std::unique_lock hold(shared_->mutex);
  return shared_->changed.wait_until(hold, until, [&] { return enough(shared_->news); });
}

}  // namespace penstock::group
