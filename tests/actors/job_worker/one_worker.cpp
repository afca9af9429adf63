#include "tests/actors/job_worker/one_worker.hpp"

#include "actors/protocol/parcels.hpp"
#include "runtime/base/mapping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <algorithm>

namespace penstock::testing {
namespace {

std::vector<job_worker::named_function> as_list(const std::map<std::string, job_function>& functions) {
  std::vector<job_worker::named_function> list;
  for (const auto& [name, run] : functions) list.push_back({name, run});
  return list;
}

arena::arena sealed(const arena::geometry& shape) {
  auto made = arena::arena::create().value();
  REQUIRE(made.size_and_seal(shape));
  return made;
}

}  // namespace

one_worker::one_worker(const std::map<std::string, job_function>& given, std::uint64_t slot_bytes,
                       std::uint64_t elsewhere_max)
    : functions(as_list(given)),
      shape{slot_bytes, slots, 1},
      memory(sealed(shape)),
      seen_by_session(arena::map_partition(memory.fd(), shape, 0).value()),
      slots_seen(arena::slots_view::map(memory.fd(), shape, 0).value()),
      own(job_worker::private_slots(slots_seen, memory.fd(), shape, 0)),
      flights(arena::flight_recorders::create(1).value()),
      flight(arena::flight_writer::map(flights.fd(), 0).value()),
      runner([&] {
        auto ends = protocol::make_parcel_pair().value();
        parcels_of_session = std::move(ends.first);
        parcels_of_worker = std::move(ends.second);
        return job_worker::job_context{functions,
                                       slots_seen,
                                       flight,
                                       settings,
                                       {3, 1},
                                       parcels_of_worker.get(),
                                       elsewhere_max,
                                       [this](const protocol::jobs_done& rows) { reports.push_back(rows); },
                                       [this] { return stop; }};
      }()) {}

arena::job_slot one_worker::table(std::uint32_t slot) const {
  return arena::job_slot(seen_by_session.bytes().subspan(shape.slot_offset(slot), shape.slot_bytes));
}

protocol::run_jobs one_worker::lease(const std::vector<job>& jobs, std::uint32_t slot) {
  ++generation_;
  std::vector<arena::job_order> orders;
  for (const job& j : jobs) {
    const auto f = std::ranges::find(functions, j.function, &job_worker::named_function::name);
    orders.push_back({.job = ++jobs_,
                      .function = static_cast<std::uint32_t>(f - functions.begin()),
                      .limit = j.limit,
                      .argument = j.argument_elsewhere ? std::span<const std::byte>()
                                                       : std::as_bytes(std::span(j.argument)),
                      .argument_elsewhere = j.argument_elsewhere});
  }
  for (std::uint32_t row = 0; row < jobs.size(); ++row) {
    const std::string& argument = jobs[row].argument;
    if (!jobs[row].argument_elsewhere || argument.empty()) continue;
    auto file = create_memory_file("test", "an argument").value();
    REQUIRE(::write(file.get(), argument.data(), argument.size()) == static_cast<ssize_t>(argument.size()));
    REQUIRE(seal_memory_file(file.get(), seal::size_and_contents, "an argument"));
    REQUIRE(
        protocol::send_parcel(parcels_of_session.get(), {slot, generation_, row, argument.size()}, file.get())
            .value());
  }
  table(slot).write(generation_, orders);
  return {slot, generation_, static_cast<std::uint32_t>(jobs.size())};
}

std::vector<read_row> one_worker::run(const protocol::run_jobs& order) {
  ended = runner.run(order);
  std::vector<read_row> rows;
  for (std::uint32_t row = 0; row < order.rows; ++row) rows.push_back(read(order, row));
  return rows;
}

read_row one_worker::read(const protocol::run_jobs& order, std::uint32_t row) {
  const arena::job_slot slot = table(order.slot);
  const auto found = slot.read(row);
  REQUIRE(found);
  read_row now{.state = found->state, .elsewhere = found->result_elsewhere, .busy = found->busy};
  if (now.state == arena::row_state::waiting || now.state == arena::row_state::begun ||
      now.state == arena::row_state::revoked) {
    return now;
  }
  mapping file;
  std::span<const std::byte> bytes;
  if (found->result_elsewhere) {
    auto parcel = protocol::receive_parcel(parcels_of_session.get());
    REQUIRE(parcel->has_value());
    CHECK((*parcel)->label == protocol::parcel_label{order.slot, order.generation, row, found->result_bytes});
    file = map_read_only((*parcel)->file.get(), {0, found->result_bytes});
    bytes = file.bytes();
  } else {
    bytes = slot.bytes(found->result_offset, found->result_bytes);
  }
  if (now.state == arena::row_state::finished) {
    now.result = text_of(bytes);
  } else {
    now.error = arena::job_exception_from(bytes).value();
  }
  return now;
}

}  // namespace penstock::testing
