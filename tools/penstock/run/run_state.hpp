// The state file of `penstock run`: of a session alone, or of all ranks of a group together (rule R8).
//
// Ranks share FILE, which has the position that all have passed. Each keeps its own in FILE-rankN, and rank 0 makes the
// group's of these. A later group of any number of ranks begins at FILE; the others are overwritten.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/schedule/epoch_book.hpp"

#include <penstock/session.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

/// A rank of several that share a state.
struct sharing_rank {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
};

/// Writes only a state that differs from the file's, and only one that the session has confirmed: a good file is never
/// replaced by a worse one.
class run_state {
 public:
  /// `path` empty: none is kept. Without `rank` the file is this session's alone.
  explicit run_state(std::string path, std::optional<sharing_rank> rank = std::nullopt);

  /// Where to begin; empty if there is no file. Removes what an earlier process has left as this rank's own. Call before
  /// the session joins its group.
  result<std::vector<std::byte>> read();
  /// The paths that are written.
  [[nodiscard]] std::vector<std::string> places() const;

  /// While the session runs.
  result<void> save(const Session& session);
  /// After its end. Rank 0 waits up to 5 s for the last positions of the others, unless it is in a hurry.
  result<void> finish(const Session& session, bool in_a_hurry);

 private:
  result<bool> save_own(const Session& session);
  void wait_for_last_states();
  result<void> save_of_group(bool ended_together);
  /// Of all ranks, by rank; nothing while one has written none.
  std::optional<std::vector<schedule::stream_state>> states_of_ranks();
  [[nodiscard]] std::string path_of(std::uint32_t rank) const;

  std::string path_;
  std::optional<sharing_rank> rank_;
  std::vector<std::byte> own_;    // as the file has it
  std::vector<std::byte> group_;  // the same of rank 0's file of the group
  bool delivered_ = false;        // something since the beginning: then all ranks have joined
  std::uint32_t incomplete_ = 0;  // how many times in a row a rank's state was missing
};

}  // namespace penstock::cli
