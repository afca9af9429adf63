#include "actors/jobs/pending_parcels.hpp"

#include "runtime/base/mapping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/resource.h>
#include <unistd.h>

using namespace penstock;
using namespace penstock::jobs;

namespace {

constexpr worker_ref worker{0, 1};

/// A worker that sends parcels, and the session's end of its socket.
struct sender {
  sender() {
    auto made = protocol::make_parcel_pair();
    REQUIRE(made);
    session = std::move(made->first);
    workers = std::move(made->second);
    auto memory = create_memory_file("parcel", "a parcel");
    REQUIRE(memory);
    file = std::move(*memory);
    REQUIRE(::write(file.get(), "result", 6) == 6);
    REQUIRE(seal_memory_file(file.get(), seal::size_and_contents, "a parcel"));
  }
  [[nodiscard]] bool send(std::uint32_t slot, std::uint32_t row) const {
    return protocol::send_parcel(workers.get(), {slot, 1, row, 6}, file.get()).value_or(false);
  }
  unique_fd session;
  unique_fd workers;
  unique_fd file;
};

lease_ref slot_of(std::uint32_t slot) {
  return {worker, slot, 1};
}

}  // namespace

TEST_CASE("parcels taken in row order are never stored") {
  const sender from;
  pending_parcels shelf(3, 256);
  for (std::uint32_t row = 0; row < 50; ++row) REQUIRE(from.send(0, row));
  for (std::uint32_t row = 0; row < 50; ++row) {
    REQUIRE(shelf.take(slot_of(0), row, from.session.get()));
    CHECK(shelf.kept(worker) == 0);
  }
  CHECK(!shelf.take(slot_of(0), 50, from.session.get()));
}

TEST_CASE("parcels taken in another order are stored until the worker is forgotten") {
  const sender from;
  pending_parcels shelf(3, 256);
  for (std::uint32_t row = 0; row < 5; ++row) REQUIRE(from.send(2, row));
  CHECK(shelf.take(slot_of(2), 3, from.session.get())->label.row == 3);
  CHECK(shelf.kept(worker) == 3);
  CHECK(shelf.take(slot_of(2), 0, -1)->label.row == 0);
  CHECK(!shelf.take(slot_of(1), 1, -1));
  shelf.forget(worker);
  CHECK(!shelf.take(slot_of(2), 1, -1));
}

TEST_CASE("a worker with many slots loses no parcel, in whatever order its rows are settled") {
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  if (files.rlim_max < 4096) SKIP("a process may have no more than " << files.rlim_max << " descriptors");
  const rlimit more{4096, files.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &more) == 0);
  const sender from;
  constexpr std::uint32_t slots = 6;
  constexpr std::uint32_t rows = 256;
  pending_parcels shelf(slots, rows);
  // The socket holds fewer parcels than this. Asking for a parcel that was not sent drains the socket in between.
  for (std::uint32_t i = 0; i < slots * rows; ++i) {
    if (i % 100 == 0) REQUIRE(!shelf.take(slot_of(slots), 0, from.session.get()));
    REQUIRE(from.send(i / rows, i % rows));
  }
  REQUIRE(!shelf.take(slot_of(slots), 0, from.session.get()));
  CHECK(shelf.kept(worker) == slots * rows);
  for (std::uint32_t i = slots * rows; i-- > 0;) REQUIRE(shelf.take(slot_of(i / rows), i % rows, -1));
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
}

TEST_CASE("a worker that sends more parcels than it has rows uses no more memory") {
  const sender from;
  pending_parcels shelf(2, 4);
  for (std::uint32_t row = 0; row < 20; ++row) REQUIRE(from.send(0, row));
  CHECK(!shelf.take(slot_of(1), 0, from.session.get()));
  CHECK(shelf.kept(worker) == 8);
  CHECK(!shelf.take(slot_of(0), 11, -1));
  CHECK(shelf.take(slot_of(0), 12, -1));
}
