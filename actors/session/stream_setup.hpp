// Everything about a stream that follows from its dataset's description. Pure; used by the session actor when the first worker has
// described the dataset.
#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/session/sizing.hpp"
#include "runtime/device/transfer_plan.hpp"
#include "runtime/schedule/partition_book.hpp"

#include <penstock/report.hpp>

#include <memory>
#include <string>
#include <vector>

namespace penstock::session {

/// What the worker's message says. Refuses what protocol::from_wire refuses, and (errc::dataset) encoded tensors unless the
/// device decodes.
result<schedule::served> served_by(const config& settings, const protocol::dataset_described& from);

struct stream_setup {
  std::shared_ptr<const plan> order;
  std::shared_ptr<const device::transfer_plan> transfer;
  schedule::stream_range range;
  arena::geometry shape;
  std::uint32_t rows_max = 0;  ///< the most rows in a slot
  std::uint32_t slots = 0;     ///< batches that a worker may hold
  schedule::ledger_settings rules;
  schedule::stream_identity identity;
  std::string fingerprint;  ///< identifies the dataset and its order; shown to users
};

/// `from_store`: the dataset's files are objects at URLs. Refuses what plan_of, lay_out, range_of, geometry_of and
/// device::plan_transfer refuse.
result<stream_setup> set_up_stream(const config& settings, const dataset_description& dataset, const sampling& order,
                                   const stream_request& request, std::uint32_t partitions, bool from_store);

/// The state's quarantined samples that the quarantine file does not list; a state has only their numbers.
[[nodiscard]] std::vector<quarantine_report> only_in_state(const schedule::stream_state& state,
                                                           const std::vector<quarantine_report>& listed);

}  // namespace penstock::session
