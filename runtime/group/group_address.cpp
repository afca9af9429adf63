#include "runtime/group/group_address.hpp"

#include "runtime/base/fnv1a.hpp"
#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"

#include <string_view>

namespace penstock::group {
namespace {

constexpr std::size_t socket_name_max = 107;  // the kernel's limit for an abstract socket

/// The first node of a list: "gpu03" of "gpu[03-07,9],login".
std::string first_node(std::string_view list) {
  const std::size_t bracket = list.find('[');
  if (bracket == std::string_view::npos || bracket > list.find(','))
    return std::string(list.substr(0, list.find(',')));
  const std::string_view numbers = list.substr(bracket + 1);
  return fmt::format("{}{}", list.substr(0, bracket), numbers.substr(0, numbers.find_first_of("-,]")));
}

result<group_address> parse_address(std::string_view text) {
  const auto refused = [text] {
    return refuse(errc::config, "PENSTOCK_GROUP_ADDR is '{}'; it must be host:port, [address]:port or @name",
                  printable(shortened(text, 60)));
  };
  constexpr std::string_view scheme = "unix:";
  std::string_view rest = text;
  if (rest.starts_with("unix:@")) rest.remove_prefix(scheme.size());
  if (rest.starts_with('@')) {
    rest.remove_prefix(1);
    if (rest.empty()) return refused();
    if (rest.size() > socket_name_max) {
      return refuse(errc::config,
                    "the name in PENSTOCK_GROUP_ADDR has {} bytes; a socket's name has at most {}",
                    rest.size(), socket_name_max);
    }
    return group_address{group_address::kind::abstract_socket, std::string(rest), 0};
  }
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return refused();
  const auto port = whole_number<std::uint16_t>(rest.substr(colon + 1));
  if (!port) return refused();
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return refused();
  return group_address{group_address::kind::tcp, std::string(host), *port};
}

std::string socket_name(std::uint32_t user, const std::string& job, const std::string& session) {
  std::string name = fmt::format("penstock-group/{}/{}/{}", user, job, session);
  if (name.size() > socket_name_max) name = fmt::format("penstock-group/{}/{:016x}", user, fnv1a(name));
  return name;
}

}  // namespace

std::string text_of(const group_address& address) {
  if (address.what == group_address::kind::abstract_socket) return "@" + address.name;
  const bool v6 = address.name.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", address.name, v6 ? "]" : "", address.port);
}

result<group_address> address_of(const launcher_place& place, const variable_lookup& variables,
                                 std::uint32_t user, const std::string& session) {
  if (const auto given = variables("PENSTOCK_GROUP_ADDR")) {
    auto address = parse_address(*given);
    // A training and a validation loader read the same variable but need separate groups, so the session
    // becomes part of the socket's name. A port cannot be split: it serves one group.
    if (address && address->what == group_address::kind::abstract_socket)
      address->name = socket_name(user, address->name, session);
    return address;
  }
  const bool one_host = place.local_world_size == place.world_size;
  if (one_host)
    return group_address{group_address::kind::abstract_socket, socket_name(user, place.job, session), 0};
  std::string host = variables("MASTER_ADDR").value_or("");
  if (host.empty() && place.launcher == "srun") {
    auto nodes = variables("SLURM_STEP_NODELIST");
    if (!nodes) nodes = variables("SLURM_JOB_NODELIST");
    if (nodes) host = first_node(*nodes);
  }
  if (host.empty()) {
    return refuse(errc::config,
                  "the address of rank 0 is unknown: for all ranks, set MASTER_ADDR to its host (as torchrun "
                  "does), or PENSTOCK_GROUP_ADDR to host:port");
  }
  if (place.job.empty()) {
    return refuse(
        errc::config,
        "{} gives its jobs no name that all hosts know: set PENSTOCK_GROUP to the same name for all ranks",
        place.launcher);
  }
  // The port lies below 32768, where the ports begin that the kernel assigns by itself.
  constexpr std::uint64_t first_port = 20'000;
  constexpr std::uint64_t ports = 12'000;
  const std::uint64_t place_of_job = fnv1a(fmt::format("{}/{}", place.job, session)) % ports;
  std::uint64_t port = first_port + place_of_job;
  if (variables("MASTER_PORT") == std::to_string(port)) port = first_port + (place_of_job + 1) % ports;
  return group_address{group_address::kind::tcp, std::move(host), static_cast<std::uint16_t>(port)};
}

}  // namespace penstock::group
