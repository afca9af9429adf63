// Computes the plan, the slots, the memory and the part of the stream from a config and a dataset. Pure; used
// by the session actor once the dataset is known, and by commands that start nothing (dry run, doctor,
// preview).
#pragma once

#include "runtime/arena/arena.hpp"
#include "runtime/arena/memory_budget.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/dataset/sampling.hpp"
#include "runtime/schedule/epoch_book.hpp"
#include "runtime/schedule/ledger.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::session {

/// The part of the stream that a session delivers, and how to find it once the plan is known.
struct stream_request {
  std::optional<std::uint64_t> batches;  ///< deliver at most this many
  std::optional<schedule::stream_state> resumed;
};

/// The plan for [sampler], or, with a state to resume, of the stream that continues from the state. `order`: from read_sampling.
/// Refuses the state of a different stream, and fails where check_there_are_batches does.
result<plan> plan_of(const config& settings, const dataset_description& dataset, const sampling& order,
                     const schedule::stream_state* resumed = nullptr);

/// Refuses a stream in which no rank ever has a batch (rule R14): errc::dataset without samples, errc::config where
/// `uneven` or `drop_last` leaves out all of them. `samples`: the number in an epoch, over all ranks.
result<void> check_there_are_batches(const config& settings, std::uint64_t samples);
/// Whether `uneven` is the reason why no batch is left.
[[nodiscard]] bool left_out_by_drop(const config& settings, std::uint64_t samples);

/// The largest number of samples in a batch: [sampler] batch_size, or this rank's share of an epoch if that
/// is less. Slots and device buffers have this size, because reserving and touching memory that no batch
/// fills takes up to a minute.
[[nodiscard]] std::uint32_t rows_max_of(const plan& order);

/// Slots for batches of this dataset. Refuses when [loader] slot_bytes is too small for a batch.
result<arena::geometry> geometry_of(const config& settings, const batch_layout& layout,
                                    std::uint32_t partitions);

/// The memory for this many workers plus the sacrificial one, which may be needed at any time.
arena::memory_need memory_need_of(const config& settings, const arena::geometry& shape,
                                  std::uint32_t workers);

/// The fingerprint that identifies a custom dataset in states and quarantine files. Covers the author's own
/// fingerprint, which may be empty, and type, sample count and tensors. 32 hex digits.
[[nodiscard]] std::string fingerprint_of_custom(const dataset_description& described);

/// `dataset` null: no worker has described the dataset yet; fingerprint and settings are then left open.
schedule::stream_identity identity_of(const config& settings, const dataset_description* dataset,
                                      const sampling& order);

/// The positions to deliver. `order`: the plan of the same request. Refuses a state with a position past the
/// end of its epoch.
result<schedule::stream_range> range_of(const config& settings, const stream_request& request,
                                        const plan& order);

/// The number of planned samples in a part of the stream. All batches but an epoch's last are full.
[[nodiscard]] std::uint64_t samples_in(const plan& order, schedule::stream_range range);

}  // namespace penstock::session
