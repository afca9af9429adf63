#include "runtime/control/control_client.hpp"

#include "runtime/base/patient_deadline.hpp"
#include "runtime/control/control_server.hpp"
#include "runtime/control/socket_place.hpp"

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace penstock::control {
namespace {

using json = nlohmann::ordered_json;

// The longest answers: `logs` has the kept lines of every source, for the running process and its
// predecessor; `deaths` has up to 1000 reports of workers and of owners, each with less output than a source
// has in `logs`. JSON takes up to 6 bytes for one byte ("\u001b"). Memory is allocated only as data arrives.
constexpr std::size_t kept_bytes = 64 * 1024;
constexpr std::size_t json_growth_max = 6;
constexpr std::size_t deaths_kept = 1000;
constexpr std::size_t logs_answer_max = log_sources_max * 2 * kept_bytes * json_growth_max;
constexpr std::size_t deaths_answer_max = 2 * deaths_kept * kept_bytes * json_growth_max;
constexpr std::size_t answer_bytes_max = std::max(logs_answer_max, deaths_answer_max);
constexpr std::chrono::milliseconds connect_again_after{5};

/// The deadline of the whole request, if it has one. Time during which this process is
/// suspended does not count, because the session may be suspended together with it.
class answer_deadline {
 public:
  explicit answer_deadline(std::optional<std::chrono::milliseconds> limit) {
    if (!limit) return;
    turn_ = look_interval(*limit, std::chrono::milliseconds(250));
    until_.emplace(*limit, *turn_).restart(std::chrono::steady_clock::now());
  }
  [[nodiscard]] bool is_over() { return until_ && until_->is_over(std::chrono::steady_clock::now()); }
  /// The timeout for poll(): when to check the deadline again.
  [[nodiscard]] int turn_ms() const {
    return turn_ ? static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(*turn_).count()) : -1;
  }

 private:
  std::optional<nanoseconds> turn_;
  std::optional<patient_deadline> until_;
};

/// Waits until the socket is ready. Refuses (errc::timed_out) after the deadline.
result<void> wait_for(int fd, short events, answer_deadline& until) {
  while (true) {
    pollfd one{fd, events, 0};
    const int ready = ::poll(&one, 1, until.turn_ms());
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return refuse_os(errc::io, errno, "waiting for the session");
    if (until.is_over()) return refuse(errc::timed_out, "the session did not answer in time");
  }
}

}  // namespace

result<json> ask(const std::filesystem::path& socket, json request,
                 std::optional<std::chrono::milliseconds> deadline) {
  answer_deadline until(deadline);
  auto connected = connect_to(socket);
  // The backlog is full: the session is suspended or very busy.
  while (!connected && connected.error().code == errc::timed_out && !until.is_over()) {
    std::this_thread::sleep_for(connect_again_after);
    connected = connect_to(socket);
  }
  if (!connected) return tl::unexpected(std::move(connected.error()));
  request["penstock"] = protocol_version;
  const std::string line = request.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    if (auto ok = wait_for(connected->get(), POLLOUT, until); !ok)
      return tl::unexpected(std::move(ok.error()));
    const ssize_t bytes = ::send(connected->get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (bytes < 0 && errno != EINTR && errno != EAGAIN)
      return refuse_os(errc::io, errno, "asking the session");
    if (bytes > 0) sent += static_cast<std::size_t>(bytes);
  }
  std::string received;
  for (std::size_t searched = 0; received.find('\n', searched) == std::string::npos;) {
    searched = received.size();
    if (auto ok = wait_for(connected->get(), POLLIN, until); !ok)
      return tl::unexpected(std::move(ok.error()));
    char piece[16 * 1024];
    const ssize_t bytes = ::read(connected->get(), piece, sizeof piece);
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (bytes <= 0) return refuse(errc::io, "the session ended before it answered");
    received.append(piece, static_cast<std::size_t>(bytes));
    if (received.size() > answer_bytes_max) return refuse(errc::protocol, "the session's answer is too long");
  }
  json parsed = json::parse(received, nullptr, false);
  if (parsed.is_discarded() || !parsed.is_object())
    return refuse(errc::protocol, "the session's answer is not JSON");
  return parsed;
}

}  // namespace penstock::control
