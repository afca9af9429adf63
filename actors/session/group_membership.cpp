#include "actors/session/group_membership.hpp"

#include "runtime/base/fnv1a.hpp"
#include "runtime/config/describe.hpp"
#include "runtime/group/group_address.hpp"
#include "runtime/group/group_secret.hpp"
#include "runtime/group/rank_files.hpp"
#include "runtime/group/this_process.hpp"

#include <fmt/core.h>
#include <unistd.h>

namespace penstock::session {
namespace {

/// `penstock launch` and settings_as_rank() append the rank to the name.
std::string name_without_rank(const std::string& name, const group::launcher_place& place) {
  const std::string suffix = group::with_rank("", place.rank);
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

/// A value may be as long as its file, but a report must fit a frame.
std::string shortened(const std::string& value) {
  constexpr std::size_t longest = 200;
  if (value.size() <= longest) return value;
  return fmt::format("{}... ({} bytes, hash {:016x})", value.substr(0, 100), value.size(), fnv1a(value));
}

group::rank_card card_of(const config& settings, const session_options& options,
                         const group::launcher_place& place) {
  group::rank_card card;
  card.rank = place.rank;
  card.world_size = place.world_size;
  card.process = group::number_of_this_process();
  card.starts = place.starts;
  card.one_at_a_time = place.one_at_a_time;
  card.host = group::host_name();
  card.pid = ::getpid();
  card.shares_device = settings.gpu.share;
  card.settings = config_file::stream_settings(settings);
  for (auto& [key, value] : card.settings) value = shortened(value);
  // A restarted rank has fewer batches left, so the number may differ where ranks restart.
  if (settings.group.on_lost_rank == lost_rank_rule::fail) {
    card.settings.emplace_back("the number of batches",
                               options.batches ? std::to_string(*options.batches) : "all");
  }
  card.settings.emplace_back("the version of penstock", PENSTOCK_VERSION);
  return card;
}

}  // namespace

result<group::launcher_place> place_of_this_process() {
  return group::place_required(group::variable_of_this_process);
}

result<config> settings_as_rank(config settings, const group::launcher_place& place) {
  sampler_config& s = settings.sampler;
  const bool by_default = s.world_size == 1 && s.rank.value_or(0) == 0;
  const bool the_same = s.world_size == place.world_size && s.rank.value_or(place.rank) == place.rank;
  // With "auto" the file's world size has no effect.
  if (s.rank && !by_default && !the_same) {
    return refuse(
        errc::config,
        "sampler.rank: this process is rank {} of {} by {} ({} and {}), but the settings say rank {} of {}; "
        "leave out 'rank' and 'world_size' in [sampler], or do not join ([group] join = \"never\")",
        place.rank, place.world_size, place.launcher, place.rank_variable, place.size_variable, *s.rank,
        s.world_size);
  }
  s.rank = place.rank;
  s.world_size = place.world_size;
  // Whoever put the rank into the name has also set the rank's port.
  if (place.world_size > 1 && name_without_rank(settings.name, place) == settings.name) {
    settings.name = group::with_rank(settings.name, place.rank);
    settings.metrics.listen = group::address_of_rank(settings.metrics.listen, place.rank);
  }
  return settings;
}

session_options options_as_rank(session_options options, const group::launcher_place& place) {
  if (place.world_size == 1) return options;
  options.sink = group::sink_of_rank(options.sink, place.rank);
  options.sink_out = group::folder_of_rank(options.sink_out, place.rank);
  return options;
}

result<void> check_alone(const config& settings) {
  if (settings.group.communicator == communicator_kind::none) return {};
  return refuse(
      errc::config,
      "'communicator' in [group] is between the ranks of a group, but session '{}' is in none: start it as "
      "one of several ranks (penstock launch, torchrun, srun, mpirun; in a program, with "
      "session_options::join_group), or leave 'communicator' out",
      settings.name);
}

result<group_membership> membership_of(const config& settings, const session_options& options,
                                       const group::launcher_place& place) {
  const group_config& g = settings.group;
  const std::string session = name_without_rank(settings.name, place);
  auto address = group::address_of(place, group::variable_of_this_process, ::getuid(), session);
  if (!address) return tl::unexpected(std::move(address.error()));
  const std::string name = place.job.empty() ? session : fmt::format("{}/{}", place.job, session);
  auto secret =
      group::secret_of_links(*address, name, g.secret_file, g.insecure, group::variable_of_this_process);
  if (!secret) return tl::unexpected(std::move(secret.error()));

  group_membership m;
  m.name = name;
  m.links.address = std::move(*address);
  m.links.group = m.name;
  m.links.secret = std::move(*secret);
  m.links.insecure = g.insecure;
  m.links.world_size = place.world_size;
  m.links.lost_after = g.lost_after;
  m.member.card = card_of(settings, options, place);
  m.member.waits_for_lost = m.group.waits_for_lost = g.on_lost_rank == lost_rank_rule::wait;
  m.member.communicator = m.group.communicator = g.communicator == communicator_kind::nccl;
  m.member.join_timeout = g.join_timeout;
  m.member.lost_after = g.lost_after;
  m.member.rejoin_timeout = g.rejoin_timeout;
  m.group.world_size = place.world_size;
  m.group.process = m.member.card.process;
  m.group.join_timeout = g.join_timeout;
  m.group.lost_after = g.lost_after;
  m.group.rejoin_timeout = g.rejoin_timeout;
  return m;
}

group::stream_facts facts_of(const std::string& fingerprint, const plan& order,
                             schedule::stream_range range) {
  const std::uint64_t per_epoch = std::max<std::uint64_t>(order.batches_per_epoch(), 1);
  group::stream_facts facts{fingerprint, range.first / per_epoch, 0};
  const epoch_share& share = order.shape().of(facts.epoch);
  const std::uint64_t steps = range.first % per_epoch - std::min(range.first % per_epoch, share.first_batch);
  facts.position = share.start + steps * order.settings().batch_size * order.settings().world_size;
  return facts;
}

}  // namespace penstock::session
