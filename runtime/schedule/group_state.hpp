// One state for all ranks of a group (semantics 31). Pure. Used by Session's group_state().
#pragma once

#include "runtime/schedule/epoch_book.hpp"

#include <span>

namespace penstock::schedule {

/// Where all ranks stand that have delivered the same number of batches: a position in the epoch's order, from which
/// any number of ranks with any batch size can go on. Counts and digests are not in it: they belong to a layout. Samples
/// that any rank has quarantined are.
///
/// Refuses (errc::state_mismatch), naming both ranks and both values: states of different streams or at different
/// steps, a rank that is missing or there twice. A rank that was itself resumed from a group's state and has
/// delivered nothing since gives that state again; it stands for any rank.
result<stream_state> group_state(std::span<const stream_state> of_ranks);

}  // namespace penstock::schedule
