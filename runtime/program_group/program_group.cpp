#include "runtime/program_group/program_group.hpp"

#include "runtime/base/log.hpp"
#include "runtime/group/collective_member.hpp"
#include "runtime/group/rank_driver.hpp"
#include "runtime/program_group/program_coordinator.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include <future>
#include <utility>
#include <variant>

namespace penstock::group {
namespace {

// After this many communicators in a row that could not be made, the next would fail too.
constexpr std::uint32_t fruitless_communicators_max = 5;

steady_time now() {
  return std::chrono::steady_clock::now();
}

rank_setup rank_setup_of(const program_group_setup& setup) {
  return {setup.member, text_of(setup.links.address), fruitless_communicators_max};
}

}  // namespace

class program_group::body final : public std::enable_shared_from_this<body>, private communicator_listener {
 public:
  body(boost::asio::io_context& io, program_group_setup setup, std::shared_ptr<shared_news> shared)
      : io_(io),
        setup_(std::move(setup)),
        shared_(std::move(shared)),
        rank_(rank_setup_of(setup_), 0, now()),
        collectives_(setup_.collectives_done) {
    setup_.links.attachment_bytes_max = collective_attachment_max(setup_.links.world_size);
    known_.collectives_done = setup_.collectives_done;
  }

  void begin() {
    // There is no stream to describe, so all ranks report the same empty description.
    rank_.book().described({});
    timer_.emplace(io_);
    if (setup_.communicator) setup_.communicator->report_to(this);
    if (setup_.member.card.rank == 0) {
      coordinator_.emplace(setup_.group, setup_.name, setup_.communicator.get());
      if (auto ok = coordinator_->listen(
              io_, setup_.links, [this] { step(); },
              [this](const std::string& why) { rank_.cannot_listen(why); },
              [this](const std::string& who) { rank_.peer_refused(who); });
          !ok)
        return refused(ok.error());
    }
    member_link::callbacks calls;
    calls.order = [this](const group_order& order) {
      rank_.heard(order, now());
      step();
    };
    calls.attachment = [this](const std::string& bytes) { hear_collectives(bytes); };
    calls.connected = [this] { rank_.link_made(); };
    calls.disconnected = [this](const link_trouble& trouble) {
      rank_.link_lost(trouble);
      step();
    };
    calls.coordinator_ended = [this] {
      rank_.book().coordinator_gone("its process has ended");
      step();
    };
    calls.coordinator_held = [this] { rank_.book().coordinator_held(now()); };
    auto made = member_link::make(io_, setup_.links, std::move(calls));
    if (!made) return refused(made.error());
    link_ = std::move(*made);
    step();
    tick();
  }

  void enter(collective_kind what, std::string value) {
    collectives_.enter(what, std::move(value));
    known_.not_entered.clear();
    rank_.book().report_again();
    step();
  }
  void fail(std::string why) {
    rank_.book().fail(std::move(why));
    step();
  }
  void leave() {
    rank_.book().stream_ended();
    rank_.leave(now());
    if (coordinator_) coordinator_->leave();
    step();
  }
  /// Call before the I/O thread ends.
  void stop() {
    stopped_ = true;
    if (setup_.communicator) setup_.communicator->report_to(nullptr);
    timer_.reset();
    link_.reset();
    coordinator_.reset();
  }

 private:
  void tick() {
    timer_->expires_after(std::min<nanoseconds>(setup_.member.look_every(), rank_driver::linger));
    timer_->async_wait([self = shared_from_this()](const boost::system::error_code& status) {
      if (status || self->stopped_) return;
      if (self->setup_.communicator) self->setup_.communicator->find_late_calls(now());
      self->step();
      self->tick();
    });
  }

  void hear_collectives(const std::string& bytes) {
    auto answer = decode_collective_answer(bytes, setup_.links.world_size);
    if (!answer) return log::warn("group", "{}: {}", setup_.name, answer.error().message);
    known_.not_entered = std::move(answer->not_entered);
    collectives_.heard(std::move(answer->result));
    step();
  }

  // The communicator's reports. They arrive on the communicator's thread or on the I/O thread.

  void communicator_changed(const communicator_state& state) override {
    boost::asio::post(io_, [self = shared_from_this(), state] {
      if (state.at == communicator_state::how::broken) {
        log::warn("group", "{}: communicator {}: {}", self->setup_.name, communicator_ordinal(state.number),
                  state.cause);
      }
      self->rank_.communicator_changed(state);
      self->step();
    });
  }
  void communicator_drawn(std::uint64_t number, const std::string& id) override {
    boost::asio::post(io_, [self = shared_from_this(), number, id] {
      if (self->coordinator_) self->coordinator_->drawn(number, id);
    });
  }
  void communicator_failed(const std::string& why) override {
    boost::asio::post(io_, [self = shared_from_this(), why] { self->fail(why); });
  }

  /// If the group fails, call this only after the cause is published: a use of the communicator that
  /// ends because of it reports the published cause.
  void carry_out(const std::vector<member_command>& orders) {
    for (const member_command& one : orders) {
      if (const auto* const make = std::get_if<make_communicator>(&one))
        setup_.communicator->make(make->number, make->id);
      if (const auto* const abort = std::get_if<abort_communicator>(&one))
        setup_.communicator->abort(abort->number);
    }
    if (rank_.end()) setup_.communicator->close();
  }

  void refused(const failure& why) {
    rank_.refuse(why);
    known_.refused = why;
    known_.may_go = true;
    publish();
  }

  void step() {
    if (stopped_ || !link_) return;
    const std::vector<member_command> commands = rank_.advance(now());
    for (const member_command& one : commands) {
      const auto* const report = std::get_if<send_report>(&one);
      if (report == nullptr) continue;
      if (auto ok = link_->send(report->report, encode(collectives_.report())); !ok) refused(ok.error());
    }
    if (coordinator_) {
      coordinator_->step();
      if (auto wrong = coordinator_->wrong(); wrong && !std::exchange(disagreed_, true))
        fail(std::move(*wrong));
    }
    known_.end = rank_.end();
    known_.lost = rank_.lost();
    known_.joined = known_.joined || rank_.book().is_in();
    known_.waits_for = rank_.waits_for(false);
    known_.collectives_done = collectives_.done();
    known_.result = collectives_.result();
    known_.may_go = known_.refused || (rank_.may_go() && (!coordinator_ || coordinator_->may_go()));
    publish();
    if (setup_.communicator) carry_out(commands);
  }

  void publish() {
    const std::lock_guard hold(shared_->mutex);
    shared_->news = known_;
    shared_->changed.notify_all();
  }

  boost::asio::io_context& io_;
  program_group_setup setup_;
  const std::shared_ptr<shared_news> shared_;
  rank_driver rank_;
  collective_member collectives_;
  std::optional<program_coordinator> coordinator_;
  std::unique_ptr<member_link> link_;
  std::optional<boost::asio::steady_timer> timer_;
  program_group_news known_;
  bool disagreed_ = false;
  bool stopped_ = false;
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
