// The messages between a session and a template, which is a process that has imported what workers need and
// forks them. They use one SOCK_SEQPACKET socket. An order carries a worker's descriptors, and the answer
// carries its pidfd. Used by worker_template and actors/job_worker (fork_on_order).
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <sched.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::process {

inline constexpr std::size_t fork_descriptors_max = 8;

/// The descriptor number of a template's socket; its workers use the lower numbers. The environment variable that
/// makes a program a template contains this number as text.
inline constexpr int template_socket = 8;
inline constexpr auto template_variable = "PENSTOCK_TEMPLATE";

/// Session to template: fork a worker.
struct fork_order {
  std::uint64_t number = 0;  ///< number of the order
  std::int32_t session = 0;  ///< the session's pid
  std::uint32_t worker = 0;
  std::uint32_t count = 0;                                  ///< number of descriptors
  std::array<std::int32_t, fork_descriptors_max> theirs{};  ///< their numbers in the worker
  std::uint32_t bound = 0;  ///< 1: the worker may run on `cores` only
  cpu_set_t cores{};
};

/// Template to session. After a fork, both the template and the worker answer, because either may
/// be killed before it does.
struct fork_answer {
  enum class kind : std::uint32_t { ready, declined, forked, refused };
  kind what = kind::ready;
  std::int32_t pid = 0;         ///< only for `forked`: the worker's pid; its pidfd is attached
  std::int32_t error = 0;       ///< refused: errno
  std::uint64_t number = 0;     ///< only for `forked` and `refused`: number of the order
  std::array<char, 512> why{};  ///< only for `declined`: why the template must not fork; null-terminated
};

result<std::pair<unique_fd, unique_fd>> make_fork_sockets();

/// Does not wait. Returns false if the socket is full. Fails with errc::system if the other side is gone.
result<bool> send_order(int socket, const fork_order& order, const std::vector<unique_fd>& descriptors);
/// Waits while the socket is full. Returns false if the session is gone.
bool send_answer(int socket, const fork_answer& answer, int pidfd = -1);

struct received_order {
  fork_order order;
  std::vector<unique_fd> descriptors;  ///< order.count of them
};
/// Waits for an order. Empty if the session has closed its end. Fails with errc::protocol on an invalid message.
result<std::optional<received_order>> receive_order(int socket);

struct received_answer {
  fork_answer answer;
  unique_fd pidfd;
};
/// Does not wait. Empty if no answer has arrived, or if the template has closed its end.
result<std::optional<received_answer>> receive_answer(int socket);

}  // namespace penstock::process
