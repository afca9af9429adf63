// What a session has delivered, as its scheduler accounts for it: reports and states.
#include "actors/caf/caf.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/units.hpp"

#include <future>

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr auto accounts_deadline = 2s;

}  // namespace

/// Call with mutex_ held, so that the scheduler cannot be ended before it gets the request.
std::shared_future<scheduler::stream_accounts> Session::body::ask_for_accounts(const engine& e, bool epochs) {
  auto promise = std::make_shared<std::promise<scheduler::stream_accounts>>();
  auto answer = promise->get_future().share();
  actors::tell(e.scheduler, scheduler::tell_accounts{std::move(promise), epochs});
  return answer;
}

/// The scheduler's accounts; empty before the scheduler exists. Refuses (errc::timed_out) when the scheduler does not answer.
result<scheduler::stream_accounts> Session::body::accounts(bool epochs) {
  std::shared_future<scheduler::stream_accounts> answer;
  {
    const std::lock_guard hold(mutex_);
    if (final_accounts_.valid()) {
      answer = final_accounts_;
    } else if (engine_) {
      answer = ask_for_accounts(*engine_, epochs);
    } else {
      return scheduler::stream_accounts{};
    }
  }
  if (!is_ready_within(answer, accounts_deadline)) {
    return refuse(errc::timed_out,
                  "asking for the stream's position: the scheduler did not answer within {} (is the machine "
                  "overloaded, or a log sink blocked?); try again",
                  duration_for_people(accounts_deadline));
  }
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return refuse(errc::stopped, "asking for the stream's position: the scheduler ended without an answer");
  }
}

/// The state before the first delivery: the resumed state, or the beginning. Its fingerprint is empty until a
/// worker has described the dataset.
schedule::stream_state Session::body::state_before_the_stream() const {
  if (resumed_) return *resumed_;
  schedule::stream_state beginning;
  const std::lock_guard hold(mutex_);
  const bool described = engine_ && engine_->dataset;
  beginning.identity =
      described ? session::identity_of(settings_, &engine_->dataset->description, engine_->dataset->order)
                : session::identity_of(settings_, nullptr, {});
  return beginning;
}

run_report Session::body::report() {
  auto told = accounts(true);
  std::unique_lock hold(mutex_);
  if (told) epochs_told_ = std::move(told->epochs);
  const auto epochs = epochs_told_;  // the latest known, if the scheduler does not answer
  hold.unlock();
  return board_.report(epochs, now());
}

std::vector<std::byte> Session::body::state() {
  const scheduler::stream_accounts told = value_or_throw(accounts(false));
  return schedule::serialise(told.state ? *told.state : state_before_the_stream());
}

}  // namespace penstock
