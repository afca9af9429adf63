#include "actors/remote/host_probe.hpp"

#include "actors/remote/agreement.hpp"
#include "actors/remote/host_connect.hpp"
#include "actors/remote/host_security.hpp"
#include "runtime/net/sockets.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds connect_within = 5s;
constexpr nanoseconds answer_within = 10s;  // a session may be busy
constexpr nanoseconds asked_for_at_most = 60s;
constexpr nanoseconds silence_max = 5s;
constexpr std::size_t round_trips = 16;
constexpr std::size_t part_max = 256U << 10U;
constexpr std::uint64_t first_transfer = 1U << 20U;
constexpr std::uint64_t last_transfer = 16U << 20U;  // all transfers together stay below probe_bytes_max
constexpr nanoseconds measured_for = 500ms;          // a transfer that takes longer is a good measurement

std::int64_t unix_now() {
  return nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Answers questions, for at most `patience`. `Said`: what the peer sends; `Told`: what is sent to it.
template <class Said, class Told, class Other>
result<void> answer(host_stream& peer, nanoseconds patience, const Other& other) {
  std::uint64_t bytes = 0;
  std::vector<std::byte> part;  // a piece of the bytes that measure the bandwidth, sent again and again
  const steady_time end = now() + patience;
  for (std::uint64_t questions = 0; questions < probe_questions_max; ++questions) {
    auto message = peer.wait_for<Said>(std::max(end - now(), nanoseconds(0)));
    if (!message) return tl::unexpected(std::move(message.error()));
    probe_told reply;
    if (const auto* question = std::get_if<probe_asked>(&*message)) {
      // Check each number first, because their sum could overflow.
      if (std::max(question->bytes, question->wanted) > probe_bytes_max || (bytes += question->bytes + question->wanted) > probe_bytes_max)
        return refuse(errc::protocol, "it asks for more than {} bytes", probe_bytes_max);
      if (auto ok = peer.skip_raw(question->bytes, silence_max); !ok) return ok;
      reply.number = question->number;
      reply.bytes = question->wanted;
    } else if (auto ok = other(*message, reply.difference); !ok) {
      return ok;
    }
    reply.unix_ns = unix_now();
    std::uint64_t left = reply.bytes;
    part.resize(std::max(part.size(), std::min<std::size_t>(left, part_max)));
    peer.put(Told(std::move(reply)));
    do {
      const std::uint64_t some = std::min<std::uint64_t>(left, part.size());
      if (auto ok = peer.flush(silence_max, std::span(part).first(some)); !ok) return ok;
      left -= some;
    } while (left > 0);
  }
  return refuse(errc::protocol, "it asks more than {} questions", probe_questions_max);
}

}  // namespace

result<void> answer_probe_of_host(host_stream& peer, nanoseconds patience, const std::function<std::string(const from_host&)>& difference) {
  return answer<from_host, to_host>(peer, patience, [&](const from_host& found, std::string& to) -> result<void> {
    if (!std::holds_alternative<dataset_found>(found) && !std::holds_alternative<program_found>(found))
      return refuse(errc::protocol, "it announced that it would only ask questions");
    to = difference(found);
    return {};
  });
}

result<void> answer_probe_of_session(host_stream& peer, const std::string& version, const std::string& name, std::uint32_t workers) {
  peer.put(from_host(host_hello{.penstock = version, .name = name, .pid = ::getpid(), .process = 0, .workers = workers}));
  if (auto ok = peer.flush(connect_within); !ok) return ok;
  return answer<to_host, from_host>(peer, asked_for_at_most, [](const to_host&, std::string&) -> result<void> {
    return refuse(errc::protocol, "it announced that it would only ask questions");
  });
}

// ---- asking ---------------------------------------------------------------------------------------------------

host_probe::host_probe(const probe_settings& settings) {
  if (settings.secret_file.empty() && !settings.insecure) {
    answers_.no_secret = "no secret was given";
    return;
  }
  const std::string of_session = try_as_host(settings);
  if (answers_.who == probe_answers::peer::none && answers_.no_connection.empty() && answers_.other_version.empty()) {
    // A host that listens does not understand a joining host's first message: try again as a session.
    const std::string of_host = try_as_session(settings);
    if (answers_.who == probe_answers::peer::none && answers_.other_version.empty())
      answers_.no_secret = of_session == of_host ? of_session : fmt::format("as a session: {}; as a host: {}", of_session, of_host);
  }
  if (answers_.who == probe_answers::peer::none) return;
  if (auto ok = measure(); !ok) answers_.not_measured = ok.error().message;
}

/// Connects and proves that it knows the secret. Returns false if that fails; answers_ or the caller's text says why.
bool host_probe::reach(const probe_settings& settings, const std::shared_ptr<const group::tls_context>& tls) {
  auto socket = connect_to(settings.address, connect_within);
  if (!socket) {
    answers_.no_connection = socket.error().message;
    return false;
  }
  answers_.reached = group::peer_name(socket->get());
  answers_.encrypted = tls != nullptr;
  peer_ = std::make_unique<host_stream>(std::move(*socket), tls);
  return true;
}

/// Returns why the peer cannot be a session. If empty, answers_ has the session's answers.
std::string host_probe::try_as_host(const probe_settings& settings) {
  const hosts_secret secret{settings.secret_file, settings.insecure, "give --secret-file"};
  auto tls = tls_of_hosts(connection_side::host, connected_by::host, settings.address, secret);
  if (!tls) return tls.error().message;
  if (!reach(settings, *tls)) return "";
  if (auto ok = peer_->secure(connect_within); !ok) return ok.error().message;
  peer_->put(from_host(host_hello{.magic = host_hello::magic_of_probe, .penstock = settings.version, .name = "doctor", .pid = ::getpid(), .workers = 1}));
  if (auto ok = peer_->flush(connect_within); !ok) return ok.error().message;
  auto said = peer_->wait_for<to_host>(answer_within);
  if (!said) return said.error().message;
  if (const auto* no = std::get_if<refused>(&*said)) {
    answers_.other_version = no->why;
    return no->why;
  }
  auto* const invitation = std::get_if<welcome>(&*said);
  if (invitation == nullptr) return "it does not say what to load";
  answers_.who = probe_answers::peer::session;
  answers_.name = invitation->session;
  answers_.invitation = std::move(*invitation);
  return "";
}

std::string host_probe::try_as_session(const probe_settings& settings) {
  const hosts_secret secret{settings.secret_file, settings.insecure, "give --secret-file"};
  auto tls = tls_of_hosts(connection_side::session, connected_by::session, settings.address, secret);
  if (!tls) return tls.error().message;
  if (!reach(settings, *tls)) return std::exchange(answers_.no_connection, "");
  if (auto ok = peer_->secure(connect_within); !ok) return ok.error().message;
  peer_->put(to_host(session_calls{.magic = session_calls::magic_of_probe, .session = "doctor"}));
  if (auto ok = peer_->flush(connect_within); !ok) return ok.error().message;
  auto said = peer_->wait_for<from_host>(answer_within);
  if (!said) return said.error().message;
  const auto* hello = std::get_if<host_hello>(&*said);
  if (hello == nullptr) return "its first message is not a host's hello";
  answers_.other_version = difference_of_versions(hello->penstock, hello->version, settings.version);
  if (!answers_.other_version.empty()) return "";
  answers_.who = probe_answers::peer::host;
  answers_.name = hello->name;
  answers_.workers = hello->workers;
  return "";
}

/// The peer's answer to a question. Reads the bytes that it sends back.
result<probe_told> host_probe::ask(const probe_asked& question, std::span<const std::byte> bytes) {
  const bool of_session = answers_.who == probe_answers::peer::session;
  of_session ? peer_->put(from_host(question)) : peer_->put(to_host(question));
  if (auto ok = peer_->flush(silence_max, bytes); !ok) return tl::unexpected(std::move(ok.error()));
  const auto told = [&](auto&& said) -> result<probe_told> {
    if (!said) return tl::unexpected(std::move(said.error()));
    auto* const reply = std::get_if<probe_told>(&*said);
    if (reply == nullptr || reply->number != question.number || reply->bytes != question.wanted)
      return refuse(errc::protocol, "it does not answer the question");
    return std::move(*reply);
  };
  auto reply = of_session ? told(peer_->wait_for<to_host>(answer_within)) : told(peer_->wait_for<from_host>(answer_within));
  if (!reply) return reply;
  if (auto ok = peer_->skip_raw(reply->bytes, silence_max); !ok) return tl::unexpected(std::move(ok.error()));
  return reply;
}

result<void> host_probe::measure() {
  std::vector<nanoseconds> trips;
  for (std::size_t i = 0; i < round_trips; ++i) {
    const steady_time start = now();
    const std::int64_t clock = unix_now();
    auto told = ask({++asked_, 0, 0}, {});
    if (!told) return tl::unexpected(std::move(told.error()));
    trips.push_back(now() - start);
    if (trips.back() == *std::ranges::min_element(trips)) answers_.clock_ahead = nanoseconds(told->unix_ns - clock) - trips.back() / 2;
  }
  std::ranges::sort(trips);
  answers_.round_trip = trips[trips.size() / 2];
  const bool of_session = answers_.who == probe_answers::peer::session;
  for (std::uint64_t bytes = first_transfer; bytes <= last_transfer; bytes *= 2) {
    const std::vector<std::byte> raw(of_session ? bytes : 0);
    const steady_time start = now();
    auto told = ask({++asked_, raw.size(), of_session ? 0 : bytes}, raw);
    if (!told) return tl::unexpected(std::move(told.error()));
    const nanoseconds took = now() - start;
    const nanoseconds transfer = std::max<nanoseconds>(took - trips.front(), took / 10);
    answers_.bytes_per_second = std::max(answers_.bytes_per_second, static_cast<double>(bytes) / std::chrono::duration<double>(transfer).count());
    if (took >= measured_for) break;
  }
  return {};
}

result<std::string> host_probe::compare(from_host found) {
  peer_->put(found);
  if (auto ok = peer_->flush(silence_max); !ok) return tl::unexpected(std::move(ok.error()));
  auto said = peer_->wait_for<to_host>(answer_within);
  if (!said) return tl::unexpected(std::move(said.error()));
  auto* const reply = std::get_if<probe_told>(&*said);
  if (reply == nullptr) return refuse(errc::protocol, "it does not answer the question");
  return std::move(reply->difference);
}

}  // namespace penstock::hosts
