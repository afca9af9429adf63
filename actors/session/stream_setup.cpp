#include "actors/session/stream_setup.hpp"

#include "actors/protocol/tensors.hpp"
#include "runtime/base/worker_slots.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock::session {
namespace {

std::uint64_t quarantine_max(const config& c, std::uint64_t samples) {
  // rule D6
  const auto share = static_cast<std::uint64_t>(std::ceil(c.quarantine.max_fraction * static_cast<double>(samples)));
  return std::min(c.quarantine.max_samples, std::max<std::uint64_t>(8, share));
}

schedule::ledger_settings ledger_settings_of(const config& c, std::uint64_t samples, bool from_store, std::uint32_t slots) {
  schedule::ledger_settings made{.max_attempts = c.quarantine.max_attempts,
                                 .quarantine_max = quarantine_max(c, samples),
                                 .on_bad_sample = c.loader.on_bad_sample,
                                 .window = c.scheduler.order == order_rule::relaxed ? c.scheduler.window : 0};
  if (c.loader.hedge) made.spare_slots = 1;
  if (from_store) {
    made.leases_ahead = std::max(made.leases_ahead, slots);
    made.slow_batch = nanoseconds::max();
  }
  return made;
}

}  // namespace

result<schedule::served> served_by(const config& settings, const protocol::dataset_described& from) {
  auto tensors = protocol::from_wire(from.tensors);
  if (!tensors) return tl::unexpected(std::move(tensors.error()));
  for (const tensor_spec& t : *tensors) {
    if (t.role == tensor_role::encoded && settings.image.decoder == decoder_rule::cpu)
      return refuse(errc::dataset, "tensor '{}' is encoded: only built-in datasets may leave decoding to the device", t.name);
  }
  dataset_description described{from.type, from.samples, std::move(*tensors), from.fingerprint};
  if (settings.dataset.type == dataset_type::custom) described.fingerprint = fingerprint_of_custom(described);
  return schedule::served_dataset{std::move(described), from.fingerprint};
}

result<stream_setup> set_up_stream(const config& c, const dataset_description& dataset, const sampling& by,
                                   const stream_request& request, std::uint32_t partitions, bool from_store) {
  auto order = plan_of(c, dataset, by, request.resumed ? &*request.resumed : nullptr);
  if (!order) return tl::unexpected(std::move(order.error()));
  const std::uint32_t rows_max = rows_max_of(*order);
  auto layout = lay_out(dataset.tensors, rows_max);
  if (!layout) return tl::unexpected(std::move(layout.error()));
  auto range = range_of(c, request, *order);
  if (!range) return tl::unexpected(std::move(range.error()));
  auto shape = geometry_of(c, *layout, partitions);
  if (!shape) return tl::unexpected(std::move(shape.error()));
  auto transfer = device::plan_transfer(*layout, {c.gpu.layout, c.gpu.dtype, c.gpu.mean, c.gpu.std});
  if (!transfer) return tl::unexpected(std::move(transfer.error()));
  const std::uint32_t slots = slots_for_batches(c.loader, shape->slot_bytes);
  return stream_setup{
      .order = std::make_shared<const plan>(std::move(*order)),
      .transfer = std::make_shared<const device::transfer_plan>(std::move(*transfer)),
      .range = *range,
      .shape = *shape,
      .rows_max = rows_max,
      .slots = slots,
      .rules = ledger_settings_of(c, dataset.samples, from_store, slots),
      .identity = identity_of(c, &dataset, by),
      .fingerprint = by.identity.empty() ? dataset.fingerprint : fmt::format("{}, {}", dataset.fingerprint, by.identity)};
}

std::vector<quarantine_report> only_in_state(const schedule::stream_state& state, const std::vector<quarantine_report>& listed) {
  std::set<std::uint64_t> known;
  for (const quarantine_report& one : listed) known.insert(one.sample);
  std::vector<quarantine_report> only;
  for (const std::uint64_t sample : state.quarantined_samples) {
    if (!known.contains(sample)) only.push_back({sample, std::nullopt, 0, {}, true, false});
  }
  return only;
}

}  // namespace penstock::session
