// The state file of `penstock run`: for a session alone, or for all ranks of a group together (rule R8).
//
// Ranks share FILE, which contains a position that all have passed. Each rank keeps its own position in
// FILE-rankN, and rank 0 computes the group's from these. A later group of any size begins at FILE and
// overwrites the others.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/schedule/epoch_book.hpp"
#include "tools/penstock/state_keeper.hpp"

#include <penstock/session.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

/// A rank of several that share a state.
struct sharing_rank {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
};

/// Writes a state only if it differs from the file's and the session has confirmed it: a good file is never
/// replaced by a worse one.
class run_state {
 public:
  /// `path` empty: keeps no state. Without `rank`, the file belongs to this session alone.
  explicit run_state(std::string path, std::optional<sharing_rank> rank = std::nullopt);

  /// The state to begin from; empty if there is no file, or if no batch is delivered in it. Removes the file that an earlier process of
  /// this rank left. Call before the session joins its group.
  result<std::vector<std::byte>> read();
  /// "resuming from 'photos.state': epoch 0, 96 samples delivered"; empty if read() found no state.
  [[nodiscard]] std::string resumed_from() const;
  /// What to do after a run that had nothing left to deliver.
  [[nodiscard]] std::string next_after_the_end() const;
  /// The paths that are written.
  [[nodiscard]] std::vector<std::string> places() const;
  /// The file that the next run begins from. The result may outlive this object.
  [[nodiscard]] std::shared_ptr<const state_keeper> file() const;

  /// Call before the first batch, so that a file exists from the start. Keeps a file that read() has found. Ranks that share a
  /// state save none yet: until they have delivered something, it would be the state of another group.
  result<void> save_beginning(const Session& session);
  /// Call while the session runs.
  result<void> save(const Session& session);
  /// Call after the session's end. Rank 0 waits up to 5 s for the last positions of the other ranks, unless `in_a_hurry`.
  result<void> finish(const Session& session, bool in_a_hurry);

 private:
  result<void> save_own(const Session& session);
  void wait_for_last_states();
  result<void> save_of_group(bool ended_together);
  /// The states of all ranks, in rank order; empty until every rank has written one.
  std::optional<std::vector<schedule::stream_state>> states_of_ranks();
  [[nodiscard]] std::string path_of(std::uint32_t rank) const;

  std::string path_;
  std::optional<sharing_rank> rank_;
  std::shared_ptr<state_keeper> own_;    // the file of this rank or, without other ranks, the only file
  std::shared_ptr<state_keeper> group_;  // the file that the ranks share; rank 0 writes it
  bool delivered_ = false;        // whether this run has delivered anything: then all ranks have joined
  std::uint32_t incomplete_ = 0;  // how many times in a row a rank's state was missing
};

}  // namespace penstock::cli
