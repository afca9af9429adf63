// One state for all ranks of a group (rule R2). Pure. Used by Session's group_state() and by `penstock
// launch`.
#pragma once

#include "runtime/schedule/epoch_book.hpp"

#include <span>
#include <vector>

namespace penstock::schedule {

/// The common position of ranks that have delivered the same number of batches: a position in the epoch's
/// order from which any number of ranks with any batch size can continue. Contains every sample that
/// any rank has quarantined. Contains no counts and digests, because these depend on the number of
/// ranks and the batch size.
///
/// Refuses (errc::state_mismatch), naming both ranks and both values: states of different streams or at
/// different steps, a missing or duplicate rank. A rank that resumed from a group's state and has delivered
/// nothing since returns that state again; this state is accepted, too.
result<stream_state> group_state(std::span<const stream_state> of_ranks);

/// Like group_state(), but the ranks may be at different steps. The position is that of the slowest rank;
/// what the other ranks have delivered beyond it is delivered again.
result<stream_state> group_state_of_slowest(std::vector<stream_state> of_ranks);

}  // namespace penstock::schedule
