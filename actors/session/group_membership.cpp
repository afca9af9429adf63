#include "actors/session/group_membership.hpp"

#include "runtime/base/fnv1a.hpp"
#include "runtime/config/describe.hpp"
#include "runtime/group/rank_files.hpp"
#include "runtime/group/this_process.hpp"

#include <fmt/core.h>

namespace penstock::session {
namespace {

/// `penstock launch` and settings_as_rank() append the rank to the name.
std::string name_without_rank(const std::string& name, const launcher_place& place) {
  const std::string suffix = group::with_rank("", place.rank);
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

/// A value can be as long as its file, but a report must fit a frame.
std::string shortened(const std::string& value) {
  constexpr std::size_t longest = 200;
  if (value.size() <= longest) return value;
  return fmt::format("{}... ({} bytes, hash {:016x})", value.substr(0, 100), value.size(), fnv1a(value));
}

/// What the ranks compare.
std::vector<std::pair<std::string, std::string>> compared(const config& settings,
                                                          const session_options& options) {
  auto all = config_file::stream_settings(settings);
  for (auto& [key, value] : all) value = shortened(value);
  // A restarted rank has fewer batches left, so the number may differ where ranks restart.
  if (settings.group.on_lost_rank == lost_rank_rule::fail)
    all.emplace_back("the number of batches", options.batches ? std::to_string(*options.batches) : "all");
  all.emplace_back("the version of penstock", PENSTOCK_VERSION);
  return all;
}

}  // namespace

result<launcher_place> place_of_this_process() {
  return required_launcher_place(group::variable_of_this_process);
}

result<config> settings_as_rank(config settings, const launcher_place& place) {
  sampler_config& s = settings.sampler;
  const bool by_default = s.world_size == 1 && s.rank.value_or(0) == 0;
  const bool the_same = s.world_size == place.world_size && s.rank.value_or(place.rank) == place.rank;
  // With "auto" the file's world size has no effect.
  if (s.rank && !by_default && !the_same) {
    return refuse(errc::config,
                  "sampler.rank: this process is rank {} of {} according to {} ({} and {}), but the settings "
                  "make it rank {} of {}; leave out 'rank' and 'world_size' in [sampler], or do not join the "
                  "group ([group] join = \"never\")",
                  place.rank, place.world_size, place.launcher, place.rank_variable, place.size_variable,
                  *s.rank, s.world_size);
  }
  s.rank = place.rank;
  s.world_size = place.world_size;
  // If the name already contains the rank, the rank's port has been set, too.
  if (place.world_size > 1 && name_without_rank(settings.name, place) == settings.name) {
    settings.name = group::with_rank(settings.name, place.rank);
    settings.metrics.listen = group::address_of_rank(settings.metrics.listen, place.rank);
  }
  return settings;
}

session_options options_as_rank(session_options options, const launcher_place& place) {
  if (place.world_size == 1) return options;
  options.sink = group::sink_of_rank(options.sink, place.rank);
  options.sink_out = group::folder_of_rank(options.sink_out, place.rank);
  return options;
}

result<void> check_alone(const config& settings) {
  if (settings.group.communicator == communicator_kind::none) return {};
  return refuse(
      errc::config,
      "'communicator' in [group] connects the ranks of a group, but session '{}' is in none: start it as "
      "one of several ranks (penstock launch, torchrun, srun, mpirun; in a program, with "
      "session_options::join_group), or leave 'communicator' out",
      settings.name);
}

result<group::group_setup> membership_of(const config& settings, const session_options& options,
                                         const launcher_place& place) {
  if (settings.scheduler.order == order_rule::relaxed && place.world_size > 1) {
    return refuse(errc::config,
                  "scheduler.order: the {} ranks of a group take their batches step by step, so each needs the "
                  "order of the plan: write order = \"strict\" in [scheduler], or let the ranks run apart "
                  "([group] join = \"never\", with 'rank' and 'world_size' in [sampler])",
                  place.world_size);
  }
  auto made = group::setup_of(settings.group, place, name_without_rank(settings.name, place));
  if (!made) return made;
  made->member.card.shares_device = settings.gpu.share;
  made->member.card.settings = compared(settings, options);
  return made;
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
