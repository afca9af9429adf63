#include "runtime/group/program_group.hpp"

#include "runtime/base/log.hpp"
#include "runtime/group/collective_member.hpp"
#include "runtime/group/program_coordinator.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include <future>
#include <utility>
#include <variant>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;

// The last report has left by then.
constexpr auto linger = 100ms;
// For an answer to the last report of a rank that the others do not wait for.
constexpr auto patience_with_answer = 2s;
// That could not be made, one after the other: the next one will not do better.
constexpr std::uint32_t fruitless_communicators_max = 5;

steady_time now() {
  return std::chrono::steady_clock::now();
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

class program_group::body final : public std::enable_shared_from_this<body>, private communicator_listener {
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
    if (setup_.communicator) setup_.communicator->report_to(this);
    if (setup_.member.card.rank == 0) {
      coordinator_.emplace(setup_.group, setup_.name, setup_.communicator.get());
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
    if (setup_.communicator) setup_.communicator->report_to(nullptr);
    timer_.reset();
    link_.reset();
    coordinator_.reset();
  }

 private:
  void tick() {
    timer_->expires_after(std::min<nanoseconds>(setup_.member.beat() / 2, linger));
    timer_->async_wait([self = shared_from_this()](const boost::system::error_code& status) {
      if (status || self->stopped_) return;
      if (self->setup_.communicator) self->setup_.communicator->find_late_calls(now());
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

  // The communicator: called on its own thread, and on that of the links.

  void communicator_changed(const communicator_state& state) override {
    boost::asio::post(io_, [self = shared_from_this(), state] { self->follow_communicator(state); });
  }
  void communicator_drawn(std::uint64_t number, const std::string& id) override {
    boost::asio::post(io_, [self = shared_from_this(), number, id] {
      if (self->coordinator_) self->coordinator_->drawn(number, id);
    });
  }
  void communicator_failed(const std::string& why) override {
    boost::asio::post(io_, [self = shared_from_this(), why] { self->fail(why); });
  }

  void follow_communicator(const communicator_state& state) {
    using progress = communicator_state::how;
    if (state.at == progress::made) {
      made_ = state.number;
      fruitless_ = 0;
      member_.communicator_made(state.number);
    }
    if (state.at == progress::aborted) member_.communicator_aborted(state.number);
    if (state.at == progress::broken) {
      log::warn("group", "{}: communicator {}: {}", setup_.name, communicator_ordinal(state.number),
                state.cause);
      member_.communicator_broken(state.number, state.cause);
      if (state.number != made_ && ++fruitless_ == fruitless_communicators_max)
        member_.fail(fmt::format("no communicator could be made, {} times: {}", fruitless_, state.cause));
    }
    step();
  }
  /// Others that still wait for a part of this rank have waited long enough.
  void give_up_communicator() {
    if (!leaving_since_ || made_ == 0 || now() - *leaving_since_ < setup_.member.lost_after) return;
    member_.communicator_broken(std::exchange(made_, 0), "this rank has left the group");
  }
  /// When what ends a program's use is published: the use says why it ends.
  void carry_out(const std::vector<member_command>& orders) {
    for (const member_command& one : orders) {
      if (const auto* const make = std::get_if<make_communicator>(&one))
        setup_.communicator->make(make->number, make->id);
      if (const auto* const abort = std::get_if<abort_communicator>(&one))
        setup_.communicator->abort(abort->number);
    }
    if (known_.end) setup_.communicator->close();
  }

  void refused(const failure& why) {
    known_.refused = why;
    known_.may_go = true;
    publish();
  }

  void step() {
    if (stopped_ || !link_) return;
    give_up_communicator();
    std::vector<member_command> commands = member_.advance(now());
    for (member_command& one : commands) {
      if (auto* const report = std::get_if<send_report>(&one)) {
        last_report_ = report->report.number;
        if (report->report.stream_over && !last_word_) last_word_ = last_report_;
        if (auto ok = link_->send(report->report, encode(collectives_.report())); !ok) refused(ok.error());
      }
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
    known_.joined = known_.joined || member_.is_in();
    known_.waits_for = waits_for();
    known_.collectives_done = collectives_.done();
    known_.result = collectives_.result();
    known_.may_go = known_.refused || may_go(now());
    publish();
    if (setup_.communicator) carry_out(commands);
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
    // Under "wait" a new process of rank 0 would look for it. Work of others may still need this rank's communicator.
    if (setup_.member.waits_for_lost || setup_.communicator || !last_word_) return false;
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
  std::optional<program_coordinator> coordinator_;
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
  std::uint64_t made_ = 0;       // the last communicator that this rank had
  std::uint32_t fruitless_ = 0;  // that could not be made since
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
