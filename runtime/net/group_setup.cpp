#include "runtime/net/group_setup.hpp"

#include "runtime/group/this_process.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace penstock::group {

result<group_setup> setup_of(const group_config& settings, const launcher_place& place,
                             const std::string& name) {
  auto address = address_of(place, variable_of_this_process, ::getuid(), name);
  if (!address) return tl::unexpected(std::move(address.error()));
  group_setup made;
  link_settings& links = made.links;
  links.group = place.job.empty() ? name : fmt::format("{}/{}", place.job, name);
  auto secret = secret_of_links(*address, links.group, settings.secret_file, settings.insecure,
                                variable_of_this_process);
  if (!secret) return tl::unexpected(std::move(secret.error()));
  links.address = std::move(*address);
  links.secret = std::move(*secret);
  links.insecure = settings.insecure;
  links.world_size = place.world_size;
  links.lost_after = settings.lost_after;
  rank_card& card = made.member.card;
  card.rank = place.rank;
  card.world_size = place.world_size;
  card.process = number_of_this_process();
  card.starts = place.starts;
  card.one_at_a_time = place.one_at_a_time;
  card.host = host_name();
  card.pid = ::getpid();
  made.group.world_size = place.world_size;
  made.group.process = card.process;
  const bool waits = settings.on_lost_rank == lost_rank_rule::wait;
  made.member.waits_for_lost = made.group.waits_for_lost = waits;
  made.member.communicator = made.group.communicator = settings.communicator == communicator_kind::nccl;
  made.member.join_timeout = made.group.join_timeout = settings.join_timeout;
  made.member.lost_after = made.group.lost_after = settings.lost_after;
  made.member.rejoin_timeout = made.group.rejoin_timeout = settings.rejoin_timeout;
  return made;
}

}  // namespace penstock::group
