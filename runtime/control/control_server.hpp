// The session's ear: answers requests on the control socket, one JSON object a line.
//
//   {"penstock": 1, "verb": "status"}            ->  {"ok": true, "result": {...}}
//   {"penstock": 1, "verb": "wait", "for": ...}  ->  answered when it holds, or the session ends
//   {"penstock": 1, "verb": "events", "after": 17, "follow": true}
//                                                ->  {"ok": true, "result": {"events": [...], "last": 20,
//                                                "lost": 0}}
//   anything else                                ->  {"ok": false, "exit": 7, "error": {"kind": ...,
//   "message": ...}}
//
// Only processes of the same user (or root) are heard. Requests have a length cap and a deadline, connections
// are counted and the quietest gives way to a new one; a client that stalls, floods or sends garbage costs a
// bounded amount of memory and is dropped.
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
inline constexpr std::size_t request_bytes_max = 64 * 1024;

/// An answer, or nothing yet: then the request is asked again every 20 ms until it has one.
using answer = std::optional<nlohmann::ordered_json>;
/// Called on the io thread; must not block. `last_call`: the session ends, no later chance.
using request_handler = std::function<answer(const nlohmann::ordered_json& request, bool last_call)>;

[[nodiscard]] nlohmann::ordered_json good_answer(nlohmann::ordered_json result);
[[nodiscard]] nlohmann::ordered_json refusal(int exit_code, const std::string& kind,
                                             const std::string& message);

class control_server {
 public:
  /// Takes the bound socket and removes it from the folder at the end.
  control_server(boost::asio::io_context& io, bound_socket socket, request_handler handler);
  ~control_server();
  control_server(const control_server&) = delete;
  control_server& operator=(const control_server&) = delete;

  /// Answers who waits, closes everything, removes the socket. On the io thread, or when it is not running.
  void close();
  [[nodiscard]] const std::filesystem::path& path() const noexcept;

 private:
  class listener;
  std::shared_ptr<listener> listener_;
};

}  // namespace penstock::control
