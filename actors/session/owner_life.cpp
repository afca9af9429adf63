#include "actors/session/owner_life.hpp"

#include "actors/host/fresh_thread.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/units.hpp"

#include <boost/asio/post.hpp>
#include <pthread.h>
#include <unistd.h>

#include <system_error>

namespace penstock::session {
namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 50ms;  // writes heartbeats and checks deadlines
constexpr auto last_message_deadline = 1s;
constexpr const char* advice =
    "[gpu] placement = \"embedded\" runs the GPU owner on threads, which cannot be killed and replaced: with "
    "\"process\" the group would have continued";

}  // namespace

owner_life::owner_life(deps deps)
    : deps_(std::move(deps)), leaving_(deps_.patience, look_every) {}

owner_life::~owner_life() = default;

void owner_life::run() noexcept {
  ::pthread_setname_np(::pthread_self(), "penstock-gpu");
  end how{exit_codes::failed};
  try {
    live();
    const std::lock_guard hold(mutex_);
    how.code = code_.value_or(exit_codes::failed);
  } catch (const std::exception& e) {
    how.last_words = failure{errc::system, fmt::format("the GPU owner: {}", e.what()), 0};
  }
  let_go();
  tell_end(how);
  gone_.set_value();
}

void owner_life::live() {
  host::on_a_fresh_thread(
      [this] { system_ = std::make_unique<actors::actor_system>(1, protocol::local_messages); });
  io_ = std::make_unique<process::io_thread>();
  body_ = std::make_unique<gpu_owner::owner_body>(gpu_owner::owner_body::deps{
      system_.get(), this, deps_.arena.get(), deps_.flights.get(), true});
  link_ = protocol::owners_session_link::make(
      io_->context(), std::move(deps_.link),
      {[this](protocol::to_owner&& message) { body_->hear(std::move(message)); },
       [this](const std::string&) { ask_to_leave(); }});
  body_->speak_through(link_);
  link_->send(protocol::hello{protocol::hello::expected_magic, protocol::version, ::getpid()});
  bool late = false;
  {
    const std::lock_guard hold(mutex_);
    there_ = body_.get();
    late = leaves_;
  }
  boost::asio::post(io_->context(), [this] {
    link_->start();
    ticker_ = std::make_unique<process::ticker>(*io_, look_every, [this] { tick(); });
  });
  if (late) ask_to_leave();
  // Runs the body on a fresh thread and joins it before run() reports the end: destructors of the program's
  // thread_local variables run when their thread exits, and they may hang like the rest of the program.
  host::on_a_fresh_thread([this] {
    ::pthread_setname_np(::pthread_self(), "penstock-gpu");
    body_->run();
  });
}

/// Destroys everything that this incarnation has created.
void owner_life::let_go() {
  {
    const std::lock_guard hold(mutex_);
    there_ = nullptr;
  }
  if (link_) {
    const auto sent = std::make_shared<std::promise<void>>();
    link_->when_sent([sent] { sent->set_value(); });
    static_cast<void>(is_ready_within(sent->get_future(), last_message_deadline));
    std::promise<void> quiet;
    boost::asio::post(io_->context(), [&] {
      ticker_.reset();
      link_->close();
      quiet.set_value();
    });
    quiet.get_future().wait();
  }
  body_.reset();
  link_.reset();
  io_.reset();
  if (!system_) return;
  try {
    host::on_a_fresh_thread([this] { system_.reset(); });
  } catch (const std::system_error& e) {
    log::warn("gpu", "no thread could be started to end the GPU owner's actor system ({}): abandoning it",
              e.what());
    static_cast<void>(system_.release());
  }
}

void owner_life::ask_to_leave() {
  const std::lock_guard hold(mutex_);
  leaves_ = true;
  if (there_ != nullptr) there_->ask_to_leave({errc::group_failed, "the GPU owner was asked to exit", 0});
}

void owner_life::be_quiet() {
  const std::lock_guard hold(mutex_);
  told_ = true;
  deps_.ended = {};
}

bool owner_life::wait_until_gone(nanoseconds at_most) {
  return is_ready_within(is_gone_, at_most);
}

void owner_life::introduced(const protocol::open_owner& order, const config&) {
  if (auto page = arena::flight_writer::map(deps_.flights.get(), order.flight_page))
    page_.emplace(std::move(*page));
}

void owner_life::ends(int code, const std::optional<protocol::worker_gives_up>& last_words) {
  const std::lock_guard hold(mutex_);
  if (code_) return;
  code_ = code;
  said_why_ = last_words.has_value();
  leaves_ = true;
  if (!last_words) return;
  link_->send(*last_words);
  if (there_ != nullptr) there_->ask_to_leave({static_cast<errc>(last_words->kind), last_words->reason, 0});
}

void owner_life::tick() {
  if (page_) page_->beat();
  const steady_time now = std::chrono::steady_clock::now();
  body_->check_deadlines(now);
  {
    const std::lock_guard hold(mutex_);
    if (!leaves_) leaving_.restart(now);
  }
  if (!leaving_.is_over(now)) return;
  leave_behind(fmt::format("the device program did not return within {} of a request to stop",
                           duration_for_people(deps_.patience)));
}

/// Gives up on the threads, which keep everything that they use.
void owner_life::leave_behind(const std::string& why) {
  end how{exit_codes::failed, {}, true};
  {
    const std::lock_guard hold(mutex_);
    if (told_) return;
    if (code_ && *code_ != exit_codes::temporary) how.code = *code_;
    if (!said_why_ && how.code != exit_codes::finished)
      how.last_words = failure{errc::group_failed, fmt::format("{}; {}", why, advice), 0};
  }
  log::warn("gpu", "{}: its threads are abandoned", why);
  tell_end(how);
}

void owner_life::tell_end(const end& how) {
  const std::lock_guard hold(mutex_);
  if (!std::exchange(told_, true)) deps_.ended(how);
}

}  // namespace penstock::session
