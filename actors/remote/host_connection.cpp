#include "actors/remote/host_connection.hpp"

#include "actors/protocol/tensors.hpp"
#include "actors/remote/agreement.hpp"
#include "actors/remote/host_connect.hpp"
#include "actors/remote/host_probe.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/units.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds connect_deadline = 5s;
constexpr nanoseconds answer_deadline = 30s;  // a session may be busy
constexpr std::size_t call_bytes_max = 4096;
constexpr std::uint64_t code_bytes_max = 256U << 20U;  // datasets travel as files
constexpr auto again_after = 300ms;
constexpr auto turn_max = 50ms;       // hosted_worker shows its flight page that often
constexpr auto idle_turn_max = 250ms;

/// Whether trying again would fail in the same way. errc::protocol: the program is not a worker program.
bool is_for_good(errc why) {
  return why == errc::config || why == errc::dataset || why == errc::worker_program || why == errc::protocol;
}

}  // namespace

host_connection::host_connection(const host_facts& facts, std::uint32_t number, connection_listener listener, std::optional<accepted_call> call)
    : facts_(facts),
      number_(number),
      listener_(std::move(listener)),
      wake_(std::make_shared<const unique_fd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      call_(std::move(call)) {
  const all_signals_blocked quiet;
  thread_ = std::thread([this] { run(); });
}

host_connection::~host_connection() {
  leave(true);
  thread_.join();
}

/// Lets leave() and cut() reach the stream. A connection that leaves before it has a place ends at once.
class host_connection::reachable_while {
 public:
  reachable_while(host_connection& c, host_stream& stream) : c_(c) {
    const std::lock_guard hold(c_.mutex_);
    c_.stream_ = &stream;
    if (c_.leaves_ || c_.cut_) stream.close_soon();
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
  if (at_once) at_once_ = true;
  const std::lock_guard hold(mutex_);
  leaves_ = true;
  if (stream_ != nullptr && !placed_) stream_->close_soon();
  wake();
}

void host_connection::cut() {
  cut_ = true;
  const std::lock_guard hold(mutex_);
  if (stream_ != nullptr) stream_->close_soon();
}

void host_connection::wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_->get(), &one, sizeof one));
}

/// Forgets earlier calls of wake().
void host_connection::clear_wake() const {
  std::uint64_t times = 0;
  static_cast<void>(!::read(wake_->get(), &times, sizeof times));
}

void host_connection::sleep(nanoseconds at_most) const {
  pollfd look{wake_->get(), POLLIN, 0};
  ::poll(&look, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(at_most).count()));
}

void host_connection::run() {
  ::pthread_setname_np(::pthread_self(), "penstock-remote");
  call_ ? answer() : keep_joining();
}

void host_connection::end(std::optional<failure> failed) {
  worker_.reset();
  over_ = true;
  busy_ = false;
  if (admitted()) listener_.released(session_, leaves_);
  listener_.ended(std::move(failed), session_);
}

void host_connection::keep_joining() {
  while (!leaves_) {
    const auto next = attend();
    worker_.reset();
    if (next && *next == way::over) break;
    if (next || leaves_) continue;
    const failure& why = next.error();
    if (why.code == errc::config || why.code == errc::dataset) return end(why);
    if (lost_since_ && dataset_ && now() - *lost_since_ > dataset_->wait)
      return end(failure{errc::io,
                         fmt::format("the session at {} has not come back for {}: {}", text_of(facts_.address),
                                     duration_for_people(dataset_->wait), why.message),
                         0});
    listener_.trouble(why.message, false);
    sleep(again_after);
  }
  end(std::nullopt);
}

/// Serves one session, which has called. Its failure is the host's only if no worker can work here.
void host_connection::answer() {
  const auto done = attend_call();
  if (done || leaves_) return end(std::nullopt);
  const bool unfit = admitted() && working_ && done.error().code == errc::config;
  if (unfit) return end(done.error());
  listener_.trouble(done.error().message, !admitted());
  end(std::nullopt);
}

// ---- joining ------------------------------------------------------------------------------------------------

result<host_connection::way> host_connection::attend() {
  clear_wake();
  if (leaves_) return way::over;
  auto socket = connect_to(facts_.address, connect_deadline, wake_->get());
  if (!socket) {
    return refuse(socket.error().code, "connecting to the session at {}: {}", text_of(facts_.address), socket.error().message);
  }
  host_stream to(std::move(*socket), facts_.tls);
  const reachable_while here(*this, to);
  auto ok = to.secure(connect_deadline);
  if (ok) ok = join(to);
  if (!ok) {
    if (leaves_) return way::over;
    if (ok.error().code != errc::config && ok.error().code != errc::dataset) ok.error().code = errc::io;
    ok.error().message = fmt::format("joining the session at {}: {}", text_of(facts_.address), ok.error().message);
    return tl::unexpected(std::move(ok.error()));
  }
  auto end = work(to);
  if (end || end.error().code == errc::config) return end;
  lost_since_ = now();
  return refuse(errc::io, "the connection to the session at {} is lost: {}", text_of(facts_.address), end.error().message);
}

result<host_connection::way> host_connection::attend_call() {
  host_stream to(std::move(call_->socket), facts_.tls);
  const reachable_while here(*this, to);
  bool probe = false;
  auto ok = let_in(to, probe);
  if (probe) return way::over;
  if (ok) ok = join(to);
  if (!ok) {
    ok.error().message = fmt::format("a session called from {}: {}", call_->from, ok.error().message);
    return tl::unexpected(std::move(ok.error()));
  }
  working_ = true;
  auto end = work(to);
  if (end || end.error().code == errc::config) return end;
  return refuse(errc::io, "the connection to the session at {} is lost: {}", call_->from, end.error().message);
}

/// Finds out whether a session has called, and whether it may have a worker (rule H8).
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
  if (const std::string busy = listener_.admit(*call); !busy.empty()) {
    to.put(from_host(host_busy{busy}));
    static_cast<void>(to.flush(connect_deadline));
    return refuse(errc::io, "{}", busy);
  }
  session_ = call->process;
  to.limit(protocol::frame_bytes_max);
  return {};
}

/// Agrees with the session, until it gives this connection a place (rule H2).
result<void> host_connection::join(host_stream& to) {
  to.put(from_host(host_hello{.penstock = facts_.version,
                              .name = facts_.name,
                              .pid = ::getpid(),
                              .process = facts_.process,
                              .workers = offered_ = admitted() ? listener_.offered(session_) : facts_.workers,
                              .cores = facts_.cores}));
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
  if (!std::holds_alternative<place_given>(*place)) return refuse(errc::io, "it gives no place");
  {
    const std::lock_guard hold(mutex_);
    if (leaves_) return refuse(errc::stopped, "this host leaves");
    placed_ = true;
  }
  listener_.joined(session->session, session_);
  lost_since_.reset();
  return {};
}

// ---- working ------------------------------------------------------------------------------------------------

result<host_connection::way> host_connection::work(host_stream& to) {
  leaving_told_ = session_over_ = false;
  leaving_.reset();
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
    auto end = turn(to);
    if (!end || *end == way::over) return end;
    const steady_time last = to.last_heard();
    if (std::exchange(heard, last) != last)
      silence.restart(now());
    else if (silence.is_over(now()))
      return refuse(errc::io, "nothing was heard for {}", duration_for_people(lost_after));
  }
}

/// Waits for whatever comes first.
result<host_connection::way> host_connection::turn(host_stream& to) {
  std::array<pollfd, 3> look{pollfd{to.socket(), POLLIN, 0}, {wake_->get(), POLLIN, 0}, {-1, POLLIN, 0}};
  if (worker_) {
    look[2].fd = worker_->link();  // -1 is ignored
    if (worker_->has_unsent()) look[2].events |= POLLOUT;
  }
  const auto at_most = std::min<nanoseconds>(worker_ && worker_->is_busy() ? turn_max : idle_turn_max, dataset_->lost_after / signs_a_silence);
  ::poll(look.data(), look.size(), to.has_message() ? 0 : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(at_most).count()));
  if (look[1].revents != 0) clear_wake();
  if (look[0].revents != 0 || to.has_message()) {
    if (auto ok = hear_session(to); !ok) return tl::unexpected(std::move(ok.error()));
  }
  if (worker_) {
    if (auto ok = worker_->work(to); !ok) return tl::unexpected(std::move(ok.error()));
    if (worker_->over()) cpu_.ended(*std::exchange(worker_, nullptr));
  }
  busy_ = worker_ && !worker_->is_idle();
  if (admitted()) {  // before it leaves: otherwise the session would call again
    const std::uint32_t now_offered = listener_.offered(session_);
    if (std::exchange(offered_, now_offered) != now_offered) to.put(from_host(host_offers{now_offered}));
  }
  if (leaves_ && !std::exchange(leaving_told_, true)) to.put(from_host(host_leaves{}));
  if (auto ok = to.flush(dataset_->lost_after); !ok) return tl::unexpected(std::move(ok.error()));
  if (session_over_ || at_once_) return way::over;
  // The session answers with its goodbye once the worker has ended.
  return has_drained() ? way::over : way::again;
}

/// Whether the host is leaving and `drain` is over. Called at least every `idle_turn_max`, so that only time in which this thread did
/// not run does not count.
bool host_connection::has_drained() {
  if (!leaves_) return false;
  if (!leaving_) {
    leaving_.emplace(dataset_->drain, idle_turn_max);
    leaving_->restart(now());
  }
  return leaving_->is_over(now());
}

}  // namespace penstock::hosts
