// The session's end of a connection that serves as a pool's worker. One side is a pool, and the test plays the host
// on the other.
#include "actors/remote/lent_jobs.hpp"

#include "actors/protocol/parcels.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;
using arena::row_state;

namespace {

constexpr auto soon = 10s;
const arena::geometry shape{64 << 10, 2, 1};

std::pair<unique_fd, unique_fd> two_sockets() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return {unique_fd(ends[0]), unique_fd(ends[1])};
}

std::vector<std::byte> bytes_of(std::size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

struct pool_and_host {
  pool_and_host() : pool_and_host(two_sockets()) {}
  explicit pool_and_host(std::pair<unique_fd, unique_fd> ends)
      : session(std::move(ends.first), nullptr), host(std::move(ends.second), nullptr) {
    REQUIRE(memory.size_and_seal(shape));
    REQUIRE(memory.reserve(0));
    pages = arena::map_partition(memory.fd(), shape, 0).value();
    jobs = lent_jobs::make(program, soon, [this](std::string_view frame) {
             REQUIRE(reader.feed({frame.data(), frame.size()}, [this](protocol::from_worker&& message) {
               reported.push_back(std::get<protocol::jobs_done>(message));
             }));
           }, parcels).value();
    protocol::to_worker slots = protocol::assign_slots{shape.slot_bytes, shape.slots, 1, 0, 256, 1 << 20};
    REQUIRE(jobs->hears(slots, memory.fd()).value());
    CHECK(std::get<protocol::assign_slots>(slots).slots == 1);  // the host runs one job at a time
  }

  arena::job_slot slot(std::uint32_t index) const {
    return arena::job_slot(pages.bytes().subspan(shape.slot_offset(index), shape.slot_bytes));
  }
  /// A lease of jobs with these numbers.
  void lease(std::uint32_t index, std::vector<std::uint64_t> numbers) {
    std::vector<arena::job_order> orders;
    const auto argument = bytes_of(100, 7);
    for (const std::uint64_t number : numbers) orders.push_back({number, 0, 1, 5ms, argument});
    slot(index).write(++generation, orders);
    protocol::to_worker order = protocol::run_jobs{index, generation, static_cast<std::uint32_t>(numbers.size())};
    CHECK_FALSE(jobs->hears(order, memory.fd()).value());
  }
  row_state state(std::uint32_t index, std::uint32_t row) const { return slot(index).read(row)->state; }

  void advance() {
    REQUIRE(jobs->advance(session));
    REQUIRE(session.flush(soon));
  }
  /// The next message to the host; empty if there is none.
  std::optional<to_host> heard() {
    if (!host.has_message()) static_cast<void>(host.read());
    return host.next<to_host>().value();
  }
  /// The number of the job that the host has received; 0 if there is none.
  std::uint64_t sent() {
    advance();
    const auto message = heard();
    const auto* job = message ? std::get_if<job_follows>(&*message) : nullptr;
    if (job == nullptr) return 0;
    std::vector<std::byte> argument(job->bytes);
    REQUIRE(host.read_raw(argument, soon));
    CHECK(argument == bytes_of(100, 7));
    CHECK(job->limit_ns == nanoseconds(5ms).count());
    return job->job;
  }
  result<std::string> ends(const std::vector<std::byte>& bytes, row_state how = row_state::finished, bool digest = false) {
    const job_over news{static_cast<std::uint8_t>(how), 1000, bytes.size()};
    REQUIRE(host.flush(soon, bytes, digest));
    return jobs->land(session, news, digest);
  }
  result<std::string> ends_damaged(std::vector<std::byte> bytes) {
    const job_over news{static_cast<std::uint8_t>(row_state::finished), 1000, bytes.size()};
    bytes.resize(bytes.size() + 8);  // the digest
    REQUIRE(host.flush(soon, bytes));
    return jobs->land(session, news, true);
  }
  std::vector<std::byte> result_of(std::uint32_t index, std::uint32_t row) const {
    const auto found = slot(index).read(row).value();
    const auto there = slot(index).bytes(found.result_offset, found.result_bytes);
    return {there.begin(), there.end()};
  }

  arena::arena memory = arena::arena::create().value();
  mapping pages;
  std::shared_ptr<shared_program> program = std::make_shared<shared_program>();
  host_stream session, host;
  unique_fd parcels;
  std::unique_ptr<lent_jobs> jobs;
  protocol::frame_reader<protocol::from_worker> reader;
  std::vector<protocol::jobs_done> reported;
  std::uint32_t generation = 0;
};

}  // namespace

TEST_CASE(
    "a row is marked as started before its job is sent, and later rows wait in the session, where they can be revoked") {
  pool_and_host of;
  of.lease(0, {11, 12, 13});
  of.lease(1, {14});
  CHECK(of.sent() == 11);
  CHECK(of.state(0, 0) == row_state::begun);
  CHECK(of.state(0, 1) == row_state::waiting);
  CHECK(of.sent() == 0);
  REQUIRE(of.slot(0).revoke(1));
  CHECK(of.ends(bytes_of(50, 1)).value().empty());
  CHECK(of.state(0, 0) == row_state::finished);
  CHECK(of.sent() == 13);
  CHECK(of.ends(bytes_of(60, 3)).value().empty());
  CHECK(of.sent() == 14);
  CHECK(of.result_of(0, 0) == bytes_of(50, 1));
  CHECK(of.result_of(0, 2) == bytes_of(60, 3));
  std::vector<std::uint32_t> rows;
  for (const auto& one : of.reported) rows.push_back(one.rows);
  CHECK(rows == std::vector<std::uint32_t>{1, 2, 3});
}

TEST_CASE("a lease whose rows are all revoked is reported, and no job is sent") {
  pool_and_host of;
  of.lease(0, {1, 2});
  REQUIRE((of.slot(0).revoke(0) && of.slot(0).revoke(1)));
  CHECK(of.sent() == 0);
  REQUIRE(of.reported.size() == 2);
  CHECK(of.reported.back().rows == 2);
}

TEST_CASE("a stop waits for the running job, and no job starts after it") {
  pool_and_host of;
  of.lease(0, {1, 2});
  CHECK(of.sent() == 1);
  protocol::to_worker stop = protocol::stop_work{};
  CHECK_FALSE(of.jobs->hears(stop, of.memory.fd()).value());
  of.advance();
  CHECK_FALSE(of.heard());
  CHECK(of.ends(bytes_of(8, 1)).value().empty());
  of.advance();
  CHECK(std::holds_alternative<to_place>(of.heard().value()));
  CHECK(of.sent() == 0);
  CHECK(of.state(0, 1) == row_state::waiting);
}

TEST_CASE(
    "a result that no longer fits the slot is sent outside it, and one that is too large fails only its job") {
  pool_and_host of;
  of.lease(0, {1, 2, 3});
  CHECK(of.sent() == 1);
  CHECK(of.ends(bytes_of(200 << 10, 5)).value().empty());
  const auto parcel = protocol::receive_parcel(of.parcels.get(), soon).value().value();
  CHECK(parcel.label == protocol::parcel_label{0, 1, 0, 200 << 10});
  CHECK(of.slot(0).read(0)->result_elsewhere);
  CHECK(of.sent() == 2);
  CHECK(of.ends(bytes_of(30 << 10, 6)).value().empty());
  CHECK(of.result_of(0, 1) == bytes_of(30 << 10, 6));
  CHECK(of.sent() == 3);
  CHECK_FALSE(of.jobs->land(of.session, {static_cast<std::uint8_t>(row_state::finished), 0, 2 << 20}, false));
}

TEST_CASE("a damaged result is requested again, and the end of an unknown job ends the connection") {
  pool_and_host of;
  CHECK_FALSE(of.ends({}));
  of.lease(0, {1});
  CHECK(of.sent() == 1);
  const auto right = bytes_of(100, 9);
  CHECK_FALSE(of.ends_damaged(bytes_of(100, 8)).value().empty());
  CHECK(of.state(0, 0) == row_state::begun);
  REQUIRE(of.session.flush(soon));
  CHECK(std::holds_alternative<send_again>(of.heard().value()));
  CHECK(of.ends(right, row_state::finished, true).value().empty());
  CHECK(of.result_of(0, 0) == right);
  CHECK_FALSE(of.ends(bytes_of(4, 1), row_state::waiting));
}

TEST_CASE("files are offered once, before the first job that needs them, and sent to hosts that lack them") {
  pool_and_host of;
  const unique_fd file(::memfd_create("test", MFD_CLOEXEC));
  REQUIRE(::write(file.get(), "content", 7) == 7);
  REQUIRE(of.program->files.publish(4, file.get()));
  of.lease(0, {1, 2});
  of.advance();
  CHECK(std::get<file_offered>(of.heard().value()).number == 4);
  CHECK(of.state(0, 0) == row_state::waiting);  // no job has begun
  REQUIRE(of.jobs->answered(of.session, {4, true}));
  const auto follows = std::get<file_follows>(of.heard().value());
  CHECK(follows.bytes == 7);
  std::array<std::byte, 7> content{};
  REQUIRE(of.host.read_raw(content, soon));
  CHECK(std::memcmp(content.data(), "content", 7) == 0);
  CHECK(of.sent() == 0);
  REQUIRE(of.jobs->answered(of.session, {4, false}));
  CHECK(of.sent() == 1);
  CHECK(of.ends({}).value().empty());
  of.program->files.withdraw(4);
  CHECK(of.sent() == 2);
  CHECK_FALSE(of.jobs->answered(of.session, {4, false}));
}

TEST_CASE("the host's flight page names the session's row, and its marks name the session's job") {
  pool_and_host of;
  const unique_fd file(::memfd_create("marks", MFD_CLOEXEC));
  REQUIRE(::ftruncate(file.get(), 16 * 8) == 0);
  of.program->marks = std::make_unique<const job_marks>(job_marks::map(file.get(), 16 * 8).value());
  of.lease(1, {20, 21});
  CHECK(of.sent() == 20);
  CHECK(of.ends({}).value().empty());
  CHECK(of.sent() == 21);
  arena::flight_reading page;
  page.state = {arena::phase::loading, 0, 0, 77};
  of.jobs->translate(page, 5);
  CHECK(page.state == arena::flight_state{arena::phase::loading, 1, 1, 1});
  CHECK(page.limit == 5ms);
  CHECK(of.program->marks->of(21) == 5);
  CHECK(of.program->marks->of(20) == -1);
}
