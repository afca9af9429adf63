// Loader hosts as targets: host/NAME, and host/NAME/worker/3, the fourth worker of that host. Used by verbs whose target may be
// a worker.
#pragma once

#include "tools/penstock/session_link.hpp"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace penstock::cli {

struct host_target {
  std::string host;
  std::optional<std::uint32_t> worker{};  ///< a worker of the host; empty: the host itself
};
/// Empty for text that names no host. Pure.
[[nodiscard]] std::optional<host_target> parse_host_target(std::string_view text);

/// The session's name of the worker that `target` means, "worker/65"; empty if there is none. Pure.
[[nodiscard]] std::string worker_of_host(const host_target& target, const nlohmann::ordered_json& status);

/// Replaces "host/NAME/worker/3" in `target` by the session's own name of that worker; leaves other targets unchanged.
/// If there is no such worker, prints that and returns an exit code other than exit_ok.
[[nodiscard]] int name_worker(const session_choice& choice, std::string& target);

}  // namespace penstock::cli
