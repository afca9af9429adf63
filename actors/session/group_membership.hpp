// What a session needs to join its launcher's group: its rank, the group's address, and the facts that the
// ranks compare. Pure, except that it reads the environment, the secret's file and the host's name. Used when
// a session is created.
#pragma once

#include "runtime/base/launcher_environment.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/net/group_setup.hpp"
#include "runtime/schedule/ledger.hpp"

#include <penstock/config.hpp>
#include <penstock/session.hpp>

#include <cstdint>
#include <string>

namespace penstock::session {

/// The rank that a launcher assigned to this process. Refuses (errc::config) if there is none, naming the
/// variables that it looked for.
[[nodiscard]] result<launcher_place> place_of_this_process();

/// The settings of a session that joins as this rank: the launcher's rank and world size, the name with the
/// rank appended, and the rank's metrics port. Refuses (errc::config) settings with a different rank or world
/// size.
[[nodiscard]] result<config> settings_as_rank(config settings, const launcher_place& place);

/// The options of a session that joins as this rank: its sink gets a file or folder of its rank.
[[nodiscard]] session_options options_as_rank(session_options options, const launcher_place& place);

/// Checks the settings of a session outside any group. Refuses (errc::config) a communicator, which only a
/// group makes.
[[nodiscard]] result<void> check_alone(const config& settings);

/// The group is named after the session, without the rank. Fails (errc::config) where group::setup_of does.
[[nodiscard]] result<group::group_setup> membership_of(const config& settings, const session_options& options,
                                                       const launcher_place& place);

/// The facts that ranks compare, and the position where this stream begins: the same number in all ranks at
/// the same step.
[[nodiscard]] group::stream_facts facts_of(const std::string& fingerprint, const plan& order,
                                           schedule::stream_range range);

}  // namespace penstock::session
