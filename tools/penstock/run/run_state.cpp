#include "tools/penstock/run/run_state.hpp"

#include "runtime/base/patient_wait.hpp"
#include "runtime/base/text.hpp"
#include "runtime/group/rank_files.hpp"
#include "runtime/schedule/group_state.hpp"
#include "tools/penstock/control/file_position.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/state_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

namespace penstock::cli {
namespace {

// A rank may be a few periods behind. If its file is still missing after that, it must be in another place.
constexpr std::uint32_t incomplete_max = 3;
constexpr auto last_states_within = std::chrono::seconds(5);
constexpr auto state_look_interval = std::chrono::milliseconds(20);

void warn_not_updated(const std::string& path, const std::string& why) {
  say(fmt::format("{} the state '{}' was not updated: {}", styled(style::yellow, "warning:"), printable(path),
                  why));
}

/// Whether this rank knows that all ranks have stopped at one step, or finished.
bool ended_with_group(const Session& session) {
  const auto group = session.status().group;
  return group && (group->outcome == run_outcome::finished || group->outcome == run_outcome::stopped);
}

/// Whether no batch was delivered and no sample quarantined: then the run starts at the beginning, whatever the settings are now.
bool is_beginning(const schedule::stream_state& s) {
  return s.epoch == 0 && s.start == 0 && s.next_batch == 0 && s.early == 0 && s.quarantined_samples.empty();
}

std::pair<std::uint64_t, std::uint64_t> place_of(const schedule::stream_state& s) {
  return {s.epoch, s.start + s.next_batch * s.identity.batch_size * s.identity.world_size};
}

}  // namespace

run_state::run_state(std::string path, std::optional<sharing_rank> rank)
    : path_(std::move(path)),
      rank_(rank),
      own_(std::make_shared<state_keeper>(rank_ ? path_of(rank_->rank) : path_)),
      group_(std::make_shared<state_keeper>(path_)) {}

std::string run_state::path_of(std::uint32_t rank) const {
  return group::with_rank(path_, rank);
}

std::vector<std::string> run_state::places() const {
  if (path_.empty()) return {};
  if (!rank_) return {path_};
  if (rank_->rank != 0) return {path_of(rank_->rank)};
  return {path_, path_of(0)};
}

std::shared_ptr<const state_keeper> run_state::file() const {
  return rank_ && rank_->rank == 0 ? group_ : own_;
}

result<std::vector<std::byte>> run_state::read() {
  if (path_.empty()) return std::vector<std::byte>();
  auto found = (rank_ ? group_ : own_)->read();
  if (!found) return found;
  if (!rank_) {
    const auto state = schedule::parse_state(*found);
    return state && is_beginning(*state) ? std::vector<std::byte>() : found;
  }
  std::error_code trouble;
  std::filesystem::remove(own_->path(), trouble);
  if (trouble)
    return refuse_os(errc::io, trouble.value(),
                     fmt::format("removing the earlier state '{}'", printable(own_->path())));
  return found;
}

std::string run_state::resumed_from() const {
  const auto state = schedule::parse_state((rank_ ? group_ : own_)->contents());
  if (!state || is_beginning(*state)) return {};
  return fmt::format("resuming from '{}': {}", printable(path_), position_in_words(*state));
}

std::string run_state::next_after_the_end() const {
  return fmt::format(
      "'{}' holds the end of the stream: continue it with more --epochs, or remove the file to begin again",
      printable(path_));
}

result<void> run_state::save_own(const Session& session) {
  try {
    return own_->write(session.state());
  } catch (const error& e) {
    if (e.code() != errc::timed_out) throw;
    warn_not_updated(own_->path(), e.what());
    return {};
  }
}

result<void> run_state::save_beginning(const Session& session) {
  return rank_ || !own_->contents().empty() ? result<void>() : save(session);
}

result<void> run_state::save(const Session& session) {
  if (path_.empty()) return {};
  if (auto ok = save_own(session); !ok) return ok;
  if (!rank_ || rank_->rank != 0) return {};
  delivered_ = delivered_ || session.status().batches_delivered > 0;
  return save_of_group(false);
}

result<void> run_state::finish(const Session& session, bool in_a_hurry) {
  if (path_.empty()) return {};
  if (auto ok = save_own(session); !ok) return ok;
  if (!rank_ || rank_->rank != 0) return {};
  delivered_ = delivered_ || session.status().batches_delivered > 0;
  const bool together = ended_with_group(session);
  // A rank that has delivered everything leaves before it learns how the group ends.
  if (!together && !in_a_hurry) wait_for_last_states();
  return save_of_group(together);
}

/// Rank 0 ends when all ranks have delivered everything, while they still write their last positions. A rank
/// that has failed meanwhile writes none.
void run_state::wait_for_last_states() {
  const auto are_there = [this](nanoseconds turn) {
    const auto states = states_of_ranks();
    const auto is_there = [&](const schedule::stream_state& s) {
      return place_of(s) == place_of(states->front());
    };
    if (states && std::ranges::all_of(*states, is_there)) return true;
    std::this_thread::sleep_for(std::min<nanoseconds>(turn, state_look_interval));
    return false;
  };
  static_cast<void>(comes_within(last_states_within, are_there));
}

/// Until this run has delivered something, the ranks' files may be from an earlier run.
result<void> run_state::save_of_group(bool ended_together) {
  if (!delivered_ || own_->contents().empty()) return {};
  auto own = schedule::parse_state(own_->contents());
  if (!own) return tl::unexpected(std::move(own.error()));
  auto states = states_of_ranks();
  if (ended_together) {
    // Other ranks may not have written their last position yet; it equals ours.
    if (!states) states.emplace(rank_->world_size, *own);
    for (std::uint32_t rank = 0; rank < rank_->world_size; ++rank) {
      auto quarantined = std::move((*states)[rank].quarantined_samples);
      (*states)[rank] = *own;
      (*states)[rank].identity.rank = rank;
      (*states)[rank].quarantined_samples = std::move(quarantined);
    }
  }
  if (!states) {
    if (++incomplete_ == incomplete_max)
      warn_not_updated(path_,
                       "the positions of other ranks are not in that folder; the file must be on a file system that all ranks share");
    return {};
  }
  incomplete_ = 0;
  const auto common = schedule::group_state_of_slowest(std::move(*states));
  if (!common) {
    warn_not_updated(path_, common.error().message);
    return {};
  }
  return group_->write(schedule::serialise(*common));
}

std::optional<std::vector<schedule::stream_state>> run_state::states_of_ranks() {
  std::vector<schedule::stream_state> states;
  for (std::uint32_t rank = 0; rank < rank_->world_size; ++rank) {
    const auto bytes = rank == 0 ? own_->contents() : read_state(path_of(rank)).value_or(std::vector<std::byte>());
    if (bytes.empty()) return std::nullopt;
    auto state = schedule::parse_state(bytes);
    if (!state) return std::nullopt;
    states.push_back(std::move(*state));
  }
  return states;
}

}  // namespace penstock::cli
