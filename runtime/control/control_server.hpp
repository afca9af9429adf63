// The server side of the control socket: answers requests, one JSON object per line.
//
//   {"penstock": 1, "verb": "status"}            ->  {"ok": true, "result": {...}}
//   {"penstock": 1, "verb": "wait", "for": ...}  ->  answered when it holds, or the session ends
//   {"penstock": 1, "verb": "events", "after": 17, "follow": true}
//                                                ->  {"ok": true, "result": {"events": [...], "last": 20,
//                                                "lost": 0}}
//   anything else                                ->  {"ok": false, "exit": 7, "error": {"kind": ...,
//   "message": ...}}
//
// Serves only processes of the same user or of root. Memory is bounded by connections_max
// (control_server.cpp) x (request_bytes_max + one answer); a client that stalls, floods or sends garbage is
// dropped, and a new connection replaces the quietest one.
#pragma once

#include "runtime/control/socket_place.hpp"

#include <boost/asio/io_context.hpp>
#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace penstock::control {

inline constexpr int protocol_version = 1;
/// Processes that write logs: 1024 workers ([loader.limits] max), the sacrificial one and the GPU owner.
inline constexpr std::size_t log_sources_max = 1024 + 1 + 1;

/// The longest request is `logs` with an `after`: a name ("worker/1024"), a number and punctuation for each
/// source.
inline constexpr std::size_t seen_entry_max = 11 + 20 + 4;
inline constexpr std::size_t other_fields_max = 1024;  // version, verb, target and flags
inline constexpr std::size_t request_bytes_max = 64 * 1024;
static_assert(log_sources_max * seen_entry_max + other_fields_max <= request_bytes_max);

/// An answer, or empty if there is none yet. The handler is then called again every 20 ms until it returns one.
using answer = std::optional<nlohmann::ordered_json>;
/// Called on the io thread; must not block. `last_call`: the session is ending, so no further call
/// follows.
using request_handler = std::function<answer(const nlohmann::ordered_json& request, bool last_call)>;

[[nodiscard]] nlohmann::ordered_json good_answer(nlohmann::ordered_json result);
[[nodiscard]] nlohmann::ordered_json refusal(int exit_code, const std::string& kind,
                                             const std::string& message);

class control_server {
 public:
  /// Takes the bound socket and removes its file at the end.
  control_server(boost::asio::io_context& io, bound_socket socket, request_handler handler);
  ~control_server();
  control_server(const control_server&) = delete;
  control_server& operator=(const control_server&) = delete;

  /// Answers waiting clients, closes everything, removes the socket. On the io thread, or when that thread is
  /// not running.
  void close();
  [[nodiscard]] const std::filesystem::path& path() const noexcept;

 private:
  class listener;
  std::shared_ptr<listener> listener_;
};

}  // namespace penstock::control
