#include "actors/remote/hosts_setup.hpp"

#include "runtime/base/worker_places.hpp"
#include "runtime/group/this_process.hpp"

namespace penstock::hosts {
namespace {

constexpr std::string_view remedy_of_sessions =
    "set [loader.hosts] secret_file (`penstock secret` makes one; hosts need a copy), or insecure = true to "
    "admit any machine that reaches that port";

}  // namespace

result<std::unique_ptr<const hosts_setup>> read_hosts(const loader_config& loader, bool has_local_workers) {
  if (!has_hosts(loader)) return std::unique_ptr<const hosts_setup>();
  const hosts_config& rules = loader.hosts;
  if (auto packs = packer::open(rules.compress); !packs) return tl::unexpected(std::move(packs.error()));
  const hosts_secret secret{rules.secret_file, rules.insecure, remedy_of_sessions};
  auto made = std::make_unique<hosts_setup>();
  made->hub.book = {.first_place = first_remote_place_of(loader), .places = remote_workers_max, .lost_after = rules.lost_after};
  made->hub.wait = rules.wait;
  made->hub.has_local_workers = has_local_workers;
  if (!rules.listen.empty()) {
    auto address = parse_address(rules.listen);
    if (!address) return tl::unexpected(std::move(address.error()));
    auto tls = tls_of_hosts(connection_side::session, connected_by::host, *address, secret);
    if (!tls) return tl::unexpected(std::move(tls.error()));
    made->hub.address = std::move(*address);
    made->tls = std::move(*tls);
  }
  for (const std::string& one : rules.connect) {
    auto address = parse_address(one);
    if (!address) return tl::unexpected(std::move(address.error()));
    if (!made->tls_of_calls) {
      auto tls = tls_of_hosts(connection_side::session, connected_by::session, *address, secret);
      if (!tls) return tl::unexpected(std::move(tls.error()));
      made->tls_of_calls = std::move(*tls);
    }
    made->hub.called.push_back(std::move(*address));
  }
  return made;
}

connection_deps deps_of(const config& settings, const hosts_setup& setup, std::string version) {
  const hosts_config& rules = settings.loader.hosts;
  const bool encrypted = !rules.secret_file.empty();
  connection_deps made;
  made.session = settings.name;
  made.version = std::move(version);
  made.process = group::number_of_this_process();
  made.tls = setup.tls;
  made.tls_of_calls = setup.tls_of_calls;
  made.compress = rules.compress;
  made.digests = rules.verify == verify_rule::always || (rules.verify == verify_rule::automatic && !encrypted);
  made.lost_after = rules.lost_after;
  return made;
}

}  // namespace penstock::hosts
