// Handles processes that ranks leave behind: daemons, and processes that left their rank's process group.
// They become our children, so that none survives the group.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace penstock::cli {

/// From now on orphans below this process become its children (PR_SET_CHILD_SUBREAPER).
void adopt_orphans();

/// Reaps adopted processes that have exited. `is_rank`: true for processes that are reaped elsewhere. Does
/// not block.
void reap_strays(const std::function<bool(pid_t)>& is_rank);

/// Kills and reaps all processes below this one; call while no rank runs. Returns how many were killed. Waits
/// for them up to `patience`.
std::size_t kill_strays(std::chrono::milliseconds patience);

/// Like kill_strays(), but only for adopted processes with all of these variables ("NAME=value") in their environment: the
/// processes of one rank, while other ranks run.
std::size_t kill_strays_with(const std::vector<std::string>& variables, std::chrono::milliseconds patience);

}  // namespace penstock::cli
