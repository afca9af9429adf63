#include "actors/remote/remote_connection.hpp"

#include "runtime/base/signals.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds ping_at_least_every = 1s;  // a host divides its workers according to the pings

/// How long the worker took to load a batch, from the batch's report.
nanoseconds time_to_load(std::string_view report) {
  nanoseconds time{0};
  protocol::frame_reader<protocol::from_worker> reader;
  static_cast<void>(reader.feed({report.data(), report.size()}, [&](protocol::from_worker&& message) {
    if (const auto* batch = std::get_if<protocol::batch_loaded>(&message)) time = nanoseconds(batch->busy_ns);
  }));
  return time;
}

}  // namespace

remote_connection::remote_connection(unique_fd socket, connected_by who, std::string address,
                         std::shared_ptr<const connection_deps> deps, std::function<void(connection_news)> tell)
    : who_(who),
      address_(std::move(address)),
      deps_(std::move(deps)),
      tell_(std::move(tell)),
      stream_(std::move(socket), who == connected_by::host ? deps_->tls : deps_->tls_of_calls),
      mirror_(deps_->flights.get()) {
  stream_.while_busy([this] { stand_in(); });
  stream_.while_receiving(ping_every(), [this] { show_life(); });
  const all_signals_blocked quiet;
  thread_ = std::thread([this] { run(); });
}

remote_connection::~remote_connection() {
  close_soon();
  thread_.join();
}

void remote_connection::order(connection_order what) {
  if (orders_.add(std::move(what))) wake_.raise();
}

void remote_connection::run() {
  ::pthread_setname_np(::pthread_self(), "penstock-remote");
  auto ok = admit();
  while (ok) ok = work();
  end_.why = ok.error().message;
  tell_(std::move(end_));
}

// ---- working ------------------------------------------------------------------------------------------------

/// Waits for the next event and handles it.
result<void> remote_connection::work() {
  const int argument = jobs_ ? jobs_->waits_on() : -1;  // -1 is ignored
  std::array<pollfd, 4> look{
      pollfd{stream_.socket(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}, {link_.get(), POLLIN, 0}, {argument, POLLIN, 0}};
  nanoseconds tick = std::min<nanoseconds>(deps_->lost_after / signs_a_silence, link_ ? 250ms : ping_at_least_every);
  if (stream_.has_message()) tick = nanoseconds(0);
  ::poll(look.data(), look.size(), static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(tick).count()));
  if (look[1].revents != 0) {
    if (auto ok = take_orders(); !ok) return ok;
  }
  if (look[0].revents != 0 || stream_.has_message()) {
    if (auto ok = hear_host(); !ok) return ok;
  }
  if (look[2].revents != 0 && link_) {
    if (auto ok = hear_session(); !ok) return ok;
  }
  if (jobs_ && link_) {
    if (auto ok = jobs_->advance(stream_); !ok) return ok;
  }
  meter_.holds(!link_ ? 0 : jobs_ ? jobs_->held() : landing_.waiting());
  look_at_clock();
  return stream_.flush(deps_->lost_after);
}

struct remote_connection::order_visitor {
  remote_connection& s;

  result<void> operator()(const give_place& order) const {
    s.place_ = order.place;
    return s.say(place_given{order.place});
  }
  result<void> operator()(const turn_away& order) const { return s.refuse_host(order.why, false); }
  result<void> operator()(const start_worker&) const {
    s.starting_ = true;
    return s.say(start_place{});
  }
  result<void> operator()(const signal_worker& order) const { return s.say(signal_place{order.number}); }
  result<void> operator()(const ask_to_leave&) const { return s.say(please_leave{}); }
  result<void> operator()(const say_goodbye&) const {
    s.stream_.put(to_host(session_over{}));
    static_cast<void>(s.stream_.flush(1s));
    return refuse(errc::stopped, "the session is over");
  }
};

result<void> remote_connection::take_orders() {
  wake_.clear();
  for (const connection_order& one : orders_.take()) {
    if (auto ok = std::visit(order_visitor{*this}, one); !ok) return ok;
  }
  return {};
}

nanoseconds remote_connection::ping_every() const {
  return std::min<nanoseconds>(deps_->lost_after / signs_a_silence, ping_at_least_every);
}

ping remote_connection::next_ping() const {
  return {pings_.number, deps_->waited ? deps_->waited().count() : 0, wanted_};
}

/// Sends a ping whose round trip is not measured: the answer has to wait until the current transfer has
/// ended.
void remote_connection::show_life() {
  if (place_) stream_.put(to_host(next_ping()));
}

void remote_connection::stand_in() {
  if (link_) mirror_.stand_in(*place_);
}

void remote_connection::look_at_clock() {
  stand_in();
  if (!place_ || now() - pings_.sent < ping_every()) return;
  pings_.sent = now();
  if (!pings_.measured_from) {
    ++pings_.number;
    pings_.measured_from = pings_.sent;
  }
  stream_.put(to_host(next_ping()));
}

// ---- from the session ---------------------------------------------------------------------------------------

result<void> remote_connection::hear_session() {
  // Small, so that the stacks of idle connections stay small.
  std::array<char, 1024> some;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
  const ssize_t got = ::recv(link_.get(), some.data(), some.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (got <= 0) {
    // The session has given up on this worker, and kills it as well.
    ::shutdown(link_.get(), SHUT_RDWR);
    link_.reset();
    return {};
  }
  result<void> noted;
  auto ok = from_session_.feed({some.data(), static_cast<std::size_t>(got)}, [&](protocol::to_worker&& message) {
    if (noted) noted = note(message);
    if (auto* const order = std::get_if<protocol::open_dataset>(&message)) order->config.clear();  // the host has its own config
    if (jobs_ && noted) {
      const auto wanted = jobs_->hears(message, deps_->arena);
      if (!wanted) noted = tl::unexpected(wanted.error());
      if (!wanted || !*wanted) return;
    }
    std::vector<char> frame;
    static_cast<void>(protocol::append_frame(frame, message));
    stream_.put(to_host(to_place{{frame.begin(), frame.end()}}));
  });
  return ok ? noted : ok;
}

/// Notes what this connection needs to know from a message to the worker.
result<void> remote_connection::note(const protocol::to_worker& message) {
  if (deps_->program) return {};
  if (const auto* slots = std::get_if<protocol::assign_slots>(&message))
    return landing_.assign(*slots, deps_->dataset.tensors, deps_->arena);
  if (const auto* lease = std::get_if<protocol::load_batch>(&message)) landing_.leased(*lease);
  return {};
}

// ---- from the host ------------------------------------------------------------------------------------------

struct remote_connection::from_host_visitor {
  remote_connection& s;

  result<void> operator()(const place_started& news) const {
    if (!std::exchange(s.starting_, false)) return refuse(errc::protocol, "it started a worker that the session did not order");
    auto ends = protocol::make_link_pair();
    if (!ends) return tl::unexpected(std::move(ends.error()));
    unique_fd parcels;
    if (s.deps_->program) {
      const auto pass_on = [connection = &s](std::string_view frame) { static_cast<void>(connection->pass_on(frame)); };
      auto made = lent_jobs::make(s.deps_->program, s.deps_->lost_after, pass_on, parcels);
      if (!made) return tl::unexpected(std::move(made.error()));
      s.jobs_ = std::move(*made);
    }
    s.link_ = std::move(ends->second);
    s.from_session_ = {};
    s.landing_.forget_leases();
    s.mirror_.restart();
    s.tell_(worker_runs{news.pid, std::make_shared<unique_fd>(std::move(ends->first)),
                        std::make_shared<unique_fd>(std::move(parcels))});
    return {};
  }
  result<void> operator()(const place_not_started& news) const {
    s.starting_ = false;
    s.tell_(worker_refused{{errc::system, news.why, 0}});
    return {};
  }
  result<void> operator()(const from_place& news) const { return s.pass_on(news.frame); }
  result<void> operator()(const batch_follows& news) const { return s.land(news); }
  result<void> operator()(const flight_seen& news) const {
    if (!s.link_) return {};
    s.meter_.seen(news);
    s.mirror_.show(*s.place_, news, s.jobs_.get());
    return {};
  }
  result<void> operator()(output_line& news) const {
    s.tell_(worker_wrote{std::move(news.line)});
    return {};
  }
  result<void> operator()(place_ended& news) const {
    process::exit_report report;
    report.pid = news.pid;
    report.ending = static_cast<process::exit_report::how>(std::min<std::uint8_t>(news.how, 2));
    report.code = news.code;
    s.tell_(worker_over{report, std::move(news.last_output)});
    s.link_.reset();
    s.landing_.unmap();
    s.jobs_.reset();
    return {};
  }
  result<void> operator()(const job_over& news) const { return s.land_job(news); }
  result<void> operator()(const file_answer& news) const {
    return s.jobs_ ? s.jobs_->answered(s.stream_, news) : result<void>();
  }
  result<void> operator()(const host_offers& news) const {
    s.tell_(host_known{{}, news.workers});
    return {};
  }
  result<void> operator()(const host_leaves&) const {
    s.tell_(host_goes{});
    return {};
  }
  result<void> operator()(const pong& news) const {
    if (news.number != s.pings_.number || !s.pings_.measured_from) return {};
    s.tell_(ping_answered{now() - *std::exchange(s.pings_.measured_from, std::nullopt), nanoseconds(std::max<std::int64_t>(news.cpu_ns, 0))});
    return {};
  }
  result<void> operator()(const cannot_join& news) const {
    s.end_.refused = true;  // its workers cannot work: calling again soon would not help
    return refuse(errc::io, "{}", news.why);
  }
  template <class Other>
  result<void> operator()(const Other&) const {
    return refuse(errc::protocol, "it introduced itself twice");
  }
};

result<void> remote_connection::hear_host() {
  if (auto ok = stream_.read(); !ok) return ok;
  while (true) {
    auto message = stream_.next<from_host>();
    if (!message) return tl::unexpected(std::move(message.error()));
    if (!*message) return {};
    if (!place_) return refuse(errc::protocol, "it sent a message before it had a place");
    if (auto ok = std::visit(from_host_visitor{*this}, **message); !ok) return ok;
  }
}

/// Sends to the session's end of the worker's link. Does not block for long, because the session always
/// reads.
result<void> remote_connection::pass_on(std::string_view frame) {
  while (link_ && !frame.empty()) {
    const ssize_t sent = ::send(link_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return {};  // the session has closed the link, and ends the worker
    frame.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

/// Receives a batch straight into the slot that its lease reserved (rule H3). Returns what is wrong with the
/// batch, if anything.
result<remote_connection::arrival> remote_connection::receive(const batch_follows& batch) {
  if (!landing_.holds(batch.bytes))
    return refuse(errc::protocol, "it announced a batch of {} bytes, but a slot has {}", batch.bytes, landing_.slot_bytes());
  if (batch.packed && !packer_) return refuse(errc::protocol, "it compresses batches, although the session does not");
  const nanoseconds silence_max = deps_->lost_after;
  const bool digest = deps_->digests;
  bool late = false;
  if (std::string wrong = landing_.misfit(batch, late); !wrong.empty()) {
    auto ok = batch.packed ? skip_packed(stream_, batch.bytes, silence_max, digest)
                           : stream_.skip_raw(batch.bytes, silence_max, digest);
    if (!ok) return tl::unexpected(std::move(ok.error()));
    return arrival{std::move(wrong), late ? bad_transfer::late : bad_transfer::wrong_size};
  }
  const std::span<std::byte> room = landing_.room(batch);
  auto damage = batch.packed ? receive_packed(stream_, *packer_, room, silence_max, digest)
                             : stream_.read_checked(room, silence_max, digest);
  if (!damage) return tl::unexpected(std::move(damage.error()));
  if (damage->empty()) return arrival{};
  return arrival{fmt::format("the bytes of slot {} are damaged: {}", batch.slot, *damage)};
}

result<void> remote_connection::land(const batch_follows& batch) {
  meter_.receiving(time_to_load(batch.report));
  auto got = receive(batch);
  meter_.received();
  if (!got) return tl::unexpected(std::move(got.error()));
  if (!got->wrong.empty()) {
    if (got->kind != bad_transfer::late) stream_.put(to_host(send_again{batch.slot, batch.generation}));
    tell_(batch_spoilt{std::move(got->wrong), got->kind});
    return {};
  }
  landing_.landed(batch.slot);
  tell_(batch_received{batch.rows, batch.bytes});
  return pass_on(batch.report);
}

result<void> remote_connection::land_job(const job_over& job) {
  if (!jobs_) return refuse(errc::protocol, "it reported the end of a job that it does not have");
  meter_.receiving(nanoseconds(0));  // 0: the worker has one job at a time and loads nothing during the transfer
  auto wrong = jobs_->land(stream_, job, deps_->digests);
  meter_.received();
  if (!wrong) return tl::unexpected(std::move(wrong.error()));
  if (wrong->empty())
    tell_(batch_received{1, job.bytes});
  else
    tell_(batch_spoilt{std::move(*wrong)});
  return {};
}

}  // namespace penstock::hosts
