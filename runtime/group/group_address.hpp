// The address at which the ranks of a group meet: rank 0 listens there, the others connect (rule G2). Pure:
// the environment is an argument. Used when a session joins a group.
#pragma once

#include "runtime/base/launcher_environment.hpp"
#include "runtime/base/result.hpp"

#include <cstdint>
#include <string>

namespace penstock::group {

struct group_address {
  enum class kind : std::uint8_t { abstract_socket, tcp };
  kind what = kind::abstract_socket;
  std::string name{};  ///< name of the abstract socket, without the leading zero byte; or the host's name
  std::uint16_t port = 0;
  bool operator==(const group_address&) const = default;
};

/// The address as PENSTOCK_GROUP_ADDR spells it: "@name", "host:port", "[v6]:port".
[[nodiscard]] std::string text_of(const group_address& address);

/// PENSTOCK_GROUP_ADDR ("host:port", "[v6]:port"; for "@name" or "unix:@name", a socket of this session
/// derived from it). Otherwise, with all ranks on one host, an abstract socket named after user, job and
/// session. Otherwise MASTER_ADDR or Slurm's first node, and a port derived from the job's id, which is never
/// MASTER_PORT. Refuses (errc::config) if nothing gives an address; the message lists
/// the variables that would.
result<group_address> address_of(const launcher_place& place, const variable_lookup& variables,
                                 std::uint32_t user, const std::string& session);

}  // namespace penstock::group
