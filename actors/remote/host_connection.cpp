#include "actors/remote/host_connection.hpp"

#include "actors/protocol/tensors.hpp"
#include "actors/remote/agreement.hpp"
#include "actors/remote/host_connect.hpp"
#include "actors/remote/host_probe.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/units.hpp"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds connect_deadline = 5s;
constexpr nanoseconds answer_deadline = 30s;  // a session may be busy
constexpr std::size_t call_bytes_max = 4096;
constexpr std::uint64_t code_bytes_max = 256U << 20U;  // datasets are sent as files
constexpr auto turn_max = 50ms;       // how often hosted_worker sends its flight page
constexpr auto idle_turn_max = 250ms;

/// Whether trying again would fail in the same way. errc::protocol: the program is not a worker program.
bool is_for_good(errc why) {
  return why == errc::config || why == errc::dataset || why == errc::worker_program || why == errc::protocol;
}

}  // namespace

host_connection::host_connection(const host_facts& facts, std::uint32_t number, connection_listener listener,
                                 std::variant<accepted_call, session_to_join> to)
    : facts_(facts),
      number_(number),
      listener_(std::move(listener)),
      to_(std::move(to)) {
  const all_signals_blocked quiet;
  thread_ = std::thread([this] { run(); });
}

host_connection::~host_connection() {
  leave(true);
  thread_.join();
}

/// While this object exists, leave() and cut() can close the stream. A connection that must leave before it has a place
/// ends at once.
class host_connection::reachable_while {
 public:
  reachable_while(host_connection& c, host_stream& stream) : c_(c) {
    const std::lock_guard hold(c_.mutex_);
    c_.stream_ = &stream;
    if (c_.departure_.ordered() || c_.cut_) stream.close_soon();
  }
  ~reachable_while() {
    const std::lock_guard hold(c_.mutex_);
    c_.stream_ = nullptr;
    c_.placed_ = false;
  }
  reachable_while(const reachable_while&) = delete;
  reachable_while& operator=(const reachable_while&) = delete;

 private:
  host_connection& c_;
};

void host_connection::leave(bool at_once) {
  const std::lock_guard hold(mutex_);
  departure_.order(at_once);
  if (stream_ != nullptr && !placed_) stream_->close_soon();
  wake_->raise();
}

void host_connection::cut() {
  cut_ = true;
  const std::lock_guard hold(mutex_);
  if (stream_ != nullptr) stream_->close_soon();
}

void host_connection::run() {
  ::pthread_setname_np(::pthread_self(), "penstock-remote");
  end(std::visit([this](auto& to) { return attend(to); }, to_));
}

void host_connection::end(const result<void>& done) {
  using how = connection_end::how;
  worker_.reset();
  over_ = true;
  worker_is_ = worker_state::none;
  connection_end end{how::left, admitted() ? session() : joins(), outcome_.had_place, {}};
  const bool leaves = departure_.ordered();  // the session also sends session_over to a host that leaves
  if (outcome_.session_over && !leaves) {
    end.ending = how::session_over;  // even if the connection failed after that
  } else if (!done && !leaves) {
    end.why = done.error();
    // If the session made the connection, a config failure is permanent only once the session has given a
    // place: it then means that no worker can work here.
    const bool unfit = end.why.code == errc::config && (joins() != 0 || outcome_.had_place);
    end.ending = outcome_.busy_here ? how::busy : unfit ? how::unfit : how::lost;
  }
  if (admitted()) listener_.released(session_, departure_.ordered());
  listener_.ended(end);
}

// ---- joining ------------------------------------------------------------------------------------------------

result<void> host_connection::attend(const session_to_join& where) {
  const std::string address = text_of(where.address);
  auto socket = connect_to(where.address, connect_deadline, wake_->fd());
  if (!socket) return refuse(errc::io, "cannot reach the session at {}: {}", address, socket.error().message);
  host_stream to(std::move(*socket), facts_.tls);
  const reachable_while here(*this, to);
  auto ok = to.secure(connect_deadline);
  if (ok) ok = admit(to, where.number, address);
  if (ok) ok = join(to);
  if (!ok) {
    const bool for_good = ok.error().code == errc::config || ok.error().code == errc::dataset;
    return refuse(for_good ? errc::config : errc::io, "joining the session at {}: {}", address, ok.error().message);
  }
  auto end = work(to);
  if (end || end.error().code == errc::config) return end;
  return refuse(errc::io, "the connection to the session at {} is lost: {}", address, end.error().message);
}

result<void> host_connection::attend(accepted_call& call) {
  host_stream to(std::move(call.socket), facts_.tls);
  const reachable_while here(*this, to);
  bool probe = false;
  auto ok = let_in(to, probe);
  if (probe) return {};
  if (ok) ok = join(to);
  if (!ok) {
    ok.error().message = fmt::format("a session called from {}: {}", call.from, ok.error().message);
    return ok;
  }
  auto end = work(to);
  if (end || end.error().code == errc::config) return end;
  return refuse(errc::io, "the connection to the session at {} is lost: {}", call.from, end.error().message);
}

/// Finds out whether a session has connected, and whether it may have a worker (rule H8).
result<void> host_connection::let_in(host_stream& to, bool& probe) {
  if (auto ok = to.secure(connect_deadline); !ok) return ok;
  to.limit(call_bytes_max);
  auto first = to.wait_for<to_host>(connect_deadline);
  if (!first) return tl::unexpected(std::move(first.error()));
  const auto* call = std::get_if<session_calls>(&*first);
  probe = call != nullptr && call->magic == session_calls::magic_of_probe;
  if (probe) return answer_probe_of_session(to, facts_.version, facts_.name, facts_.workers);
  if (call == nullptr || call->magic != session_calls::expected_magic) return refuse(errc::protocol, "it is not a session");
  if (call->process == 0) return refuse(errc::protocol, "its number is 0");
  if (auto ok = admit(to, call->process, call->session); !ok) return ok;
  to.limit(protocol::frame_bytes_max);
  return {};
}

/// Asks whether a worker is free for the session (rule H14).
result<void> host_connection::admit(host_stream& to, session_number session, const std::string& name) {
  const std::string busy = listener_.admit(session, name);
  outcome_.busy_here = !busy.empty();
  if (!outcome_.busy_here) {
    session_ = session;
    return {};
  }
  to.put(from_host(host_busy{busy}));
  static_cast<void>(to.flush(connect_deadline));
  return refuse(errc::io, "{}", busy);
}

/// Runs until the session has given this connection a place (rule H2).
result<void> host_connection::join(host_stream& to) {
  to.put(from_host(host_hello{.penstock = facts_.version,
                              .name = facts_.name,
                              .pid = ::getpid(),
                              .process = facts_.process,
                              .workers = offered_ = listener_.offered(session_),
                              .cores = facts_.cores,
                              .workers_of_all = facts_.workers}));
  if (auto ok = to.flush(connect_deadline); !ok) return ok;
  auto answer = to.wait_for<to_host>(answer_deadline);
  if (!answer) return tl::unexpected(std::move(answer.error()));
  if (const auto* no = std::get_if<refused>(&*answer)) return refuse(no->for_good ? errc::config : errc::io, "it refuses: {}", no->why);
  const auto* session = std::get_if<welcome>(&*answer);
  if (session == nullptr) return refuse(errc::io, "it does not say what to load");
  digests_ = session->digests;
  const std::uint64_t code_allowed = to.encrypted() && !session->program.empty() ? code_bytes_max : 0;
  if (session->code_bytes > code_allowed)
    return refuse(errc::config, "it wants to send {} bytes of code, but at most {} are accepted here", session->code_bytes, code_allowed);
  session_offer offer{session->config, session->program, std::string(session->code_bytes, '\0'), session->marks_bytes, session->nonce,
                      to.encrypted()};
  if (auto ok = to.read_raw(std::as_writable_bytes(std::span(offer.code)), answer_deadline); !ok) return ok;
  auto ready = listener_.prepare(offer);
  if (!ready && !is_for_good(ready.error().code)) return refuse(errc::io, "{}", ready.error().message);
  if (!ready) {
    to.put(from_host(cannot_join{fmt::format("{}: {}", facts_.name, ready.error().message)}));
    static_cast<void>(to.flush(connect_deadline));
    return tl::unexpected(failure{errc::config, ready.error().message, 0});
  }
  dataset_ = std::move(*ready);
  if (dataset_->program) {
    to.put(from_host(program_found{as_wire(facts_.program_facts)}));
  } else {
    const dataset_description& d = dataset_->dataset->description;
    to.put(from_host(dataset_found{{d.type, d.samples, protocol::as_wire(d.tensors), d.fingerprint}, dataset_->facts}));
  }
  if (auto ok = to.flush(connect_deadline); !ok) return ok;
  auto place = to.wait_for<to_host>(answer_deadline);
  if (!place) return tl::unexpected(std::move(place.error()));
  if (const auto* no = std::get_if<refused>(&*place)) return refuse(no->for_good ? errc::config : errc::io, "it refuses: {}", no->why);
  if (std::holds_alternative<hosts::session_over>(*place)) {
    outcome_.session_over = true;
    return refuse(errc::stopped, "the session is over");
  }
  if (!std::holds_alternative<place_given>(*place)) return refuse(errc::io, "it did not assign a place");
  {
    const std::lock_guard hold(mutex_);
    if (departure_.ordered()) return refuse(errc::stopped, "this host leaves");
    placed_ = outcome_.had_place = true;
  }
  listener_.joined(session_, session->session, dataset_->wait);
  return {};
}

// ---- working ------------------------------------------------------------------------------------------------

result<void> host_connection::work(host_stream& to) {
  cpu_.start();
  const nanoseconds lost_after = dataset_->lost_after;
  to.while_busy([this, &to] {
    if (has_drained()) to.close_soon();
  });
  to.while_receiving(lost_after / signs_a_silence, [&to] { to.put(from_host(pong{})); });
  patient_deadline silence(lost_after, std::min<nanoseconds>(idle_turn_max, lost_after / signs_a_silence));
  silence.restart(now());
  steady_time heard{};
  while (true) {
    auto next = turn(to);
    if (!next) return tl::unexpected(std::move(next.error()));
    if (*next == way::over) return {};
    const steady_time last = to.last_heard();
    if (std::exchange(heard, last) != last)
      silence.restart(now());
    else if (silence.is_over(now()))
      return refuse(errc::io, "it was silent for {}", duration_for_people(lost_after));
  }
}

/// Waits for the next event and handles it.
result<host_connection::way> host_connection::turn(host_stream& to) {
  std::array<pollfd, 3> look{pollfd{to.socket(), POLLIN, 0}, {wake_->fd(), POLLIN, 0}, {-1, POLLIN, 0}};
  if (worker_) {
    look[2].fd = worker_->link();  // -1 is ignored
    if (worker_->has_unsent()) look[2].events |= POLLOUT;
  }
  const auto at_most = std::min<nanoseconds>(worker_ && worker_->is_busy() ? turn_max : idle_turn_max, dataset_->lost_after / signs_a_silence);
  ::poll(look.data(), look.size(), to.has_message() ? 0 : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(at_most).count()));
  if (look[1].revents != 0) wake_->clear();
  if (look[0].revents != 0 || to.has_message()) {
    if (auto ok = hear_session(to); !ok) return tl::unexpected(std::move(ok.error()));
  }
  if (worker_) {
    if (auto ok = worker_->work(to); !ok) return tl::unexpected(std::move(ok.error()));
    if (worker_->over()) cpu_.ended(*std::exchange(worker_, nullptr));
  }
  worker_is_ = !worker_ ? worker_state::none : worker_->is_idle() ? worker_state::idle : worker_state::busy;
  // Report the new number before leaving: otherwise the session would call again. A dismissed session is offered no workers, and
  // learns that when it calls.
  const std::uint32_t now_offered = listener_.offered(session_);
  if (now_offered > 0 && std::exchange(offered_, now_offered) != now_offered) to.put(from_host(host_offers{now_offered}));
  if (departure_.is_news()) to.put(from_host(host_leaves{}));
  if (auto ok = to.flush(dataset_->lost_after); !ok) return tl::unexpected(std::move(ok.error()));
  if (outcome_.session_over || departure_.at_once()) return way::over;
  // The session answers with session_over once the worker has ended.
  return has_drained() ? way::over : way::again;
}

bool host_connection::has_drained() {
  return departure_.has_drained(dataset_->drain, idle_turn_max, now());
}

}  // namespace penstock::hosts
