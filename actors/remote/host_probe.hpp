// The questions of `penstock doctor --host` to a session or to a host that listens, without joining: versions, round trip,
// bandwidth, clock, and whether the datasets are equal. The side that is asked answers on the connection's thread. It gives no
// place, starts no worker and receives at most probe_bytes_max.
#pragma once

#include "actors/remote/host_stream.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock::hosts {

inline constexpr std::uint64_t probe_bytes_max = 64U << 20U;
inline constexpr std::uint64_t probe_questions_max = 256;

// ---- the side that is asked ----------------------------------------------------------------------------------

/// Answers as a session. `difference` compares the peer's findings with the session's, and says how they differ. Always returns a
/// refusal once the peer is done.
result<void> answer_probe_of_host(host_stream& peer, nanoseconds patience, const std::function<std::string(const from_host&)>& difference);
/// Answers as a host that sessions connect to.
result<void> answer_probe_of_session(host_stream& peer, const std::string& version, const std::string& name, std::uint32_t workers);

// ---- the side that asks --------------------------------------------------------------------------------------

struct probe_settings {
  group::group_address address;
  std::string secret_file;
  bool insecure = false;
  std::string version;  ///< penstock's
};

/// The peer and its answers. If a text about a problem is not empty, the fields after it are unknown.
struct probe_answers {
  enum class peer : std::uint8_t { none, session, host };
  peer who = peer::none;
  std::string reached;  ///< "10.0.0.7:7077"
  std::string no_connection;
  bool encrypted = false;
  std::string no_secret;
  std::string name;  ///< name of the session or the host
  std::string other_version;
  std::uint32_t workers = 0;  ///< set only for a host
  welcome invitation{};       ///< set only for a session
  std::string not_measured;
  nanoseconds round_trip{0};  ///< the median
  double bytes_per_second = 0;  ///< throughput from the host to the session
  nanoseconds clock_ahead{0};   ///< how far the other machine's clock is ahead
};

class host_probe {
 public:
  /// Connects, agrees and measures. Takes at most about half a minute.
  explicit host_probe(const probe_settings& settings);
  [[nodiscard]] const probe_answers& answers() const noexcept { return answers_; }
  /// Sends the session a description of the dataset or program found here. Returns how that differs from the
  /// session's. Refuses (errc::io).
  result<std::string> compare(from_host found);

 private:
  [[nodiscard]] bool reach(const probe_settings& settings, const std::shared_ptr<const group::tls_context>& tls);
  [[nodiscard]] std::string try_as_host(const probe_settings& settings);
  [[nodiscard]] std::string try_as_session(const probe_settings& settings);
  result<void> measure();
  result<probe_told> ask(const probe_asked& question, std::span<const std::byte> bytes);

  probe_answers answers_;
  std::unique_ptr<host_stream> peer_;
  std::uint64_t asked_ = 0;
};

}  // namespace penstock::hosts
