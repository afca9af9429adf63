#include "tests/actors/job_worker/session_side.hpp"

#include "actors/protocol/parcels.hpp"
#include "runtime/base/mapping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <algorithm>

namespace penstock::testing {
namespace {

arena::arena sealed(const arena::geometry& shape) {
  auto made = arena::arena::create().value();
  REQUIRE(made.size_and_seal(shape));
  return made;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

session_side::session_side(std::uint64_t slot_bytes)
    : shape{slot_bytes, slots, 1},
      memory(sealed(shape)),
      seen(arena::map_partition(memory.fd(), shape, 0).value()) {}

arena::job_slot session_side::table(std::uint32_t slot) const {
  return arena::job_slot(seen.bytes().subspan(shape.slot_offset(slot), shape.slot_bytes));
}

protocol::run_jobs session_side::lease(const std::vector<std::string>& functions,
                                       const std::vector<job>& jobs, std::uint32_t slot) {
  ++generation_;
  std::vector<arena::job_order> orders;
  for (std::uint32_t row = 0; row < jobs.size(); ++row) {
    const job& j = jobs[row];
    const auto function = std::ranges::find(functions, j.function) - functions.begin();
    const auto argument = std::as_bytes(std::span(j.argument));
    orders.push_back({.job = ++jobs_,
                      .function = static_cast<std::uint32_t>(function),
                      .limit = j.limit,
                      .argument = j.argument_elsewhere ? std::span<const std::byte>() : argument,
                      .argument_elsewhere = j.argument_elsewhere});
    if (!j.argument_elsewhere || argument.empty()) continue;
    const auto file = create_memory_file("test", "an argument").value();
    REQUIRE(::write(file.get(), argument.data(), argument.size()) == static_cast<ssize_t>(argument.size()));
    REQUIRE(seal_memory_file(file.get(), seal::size_and_contents, "an argument"));
    REQUIRE(
        protocol::send_parcel(parcels.get(), {slot, generation_, row, argument.size()}, file.get()).value());
  }
  table(slot).write(generation_, orders);
  return {slot, generation_, static_cast<std::uint32_t>(jobs.size())};
}

std::vector<read_row> session_side::read_all(const protocol::run_jobs& order) const {
  std::vector<read_row> rows;
  for (std::uint32_t row = 0; row < order.rows; ++row) rows.push_back(read(order, row));
  return rows;
}

read_row session_side::read(const protocol::run_jobs& order, std::uint32_t row) const {
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
    auto parcel = protocol::receive_parcel(parcels.get());
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
