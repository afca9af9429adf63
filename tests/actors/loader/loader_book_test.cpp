// What a loader worker does with each message, and how its process ends. Each test covers one rule.
#include "actors/loader/loader_book.hpp"
#include "runtime/base/exit_codes.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::loader;

namespace {

using next_step = loader_book::next_step;

const std::vector<tensor_spec> one_tensor{{.name = "x", .type = dtype::uint8, .shape = {100}}};
constexpr std::uint32_t batch_size = 2;

protocol::open_dataset open_order() { return {protocol::version, {3, 1}, "config", false}; }
protocol::assign_slots slots_of(std::uint64_t bytes = 4096) { return {bytes, 3, 4, 3, batch_size, 0}; }
protocol::load_batch lease(std::uint32_t slot) { return {slot, 1, 0, {}, false}; }

template <class Step>
bool is(const next_step& step) {
  return step && std::holds_alternative<Step>(*step);
}
/// The slot of the lease to run; empty if there is none.
std::optional<std::uint32_t> slot_of(const next_step& step) {
  if (!is<run_lease>(step)) return std::nullopt;
  return std::get<run_lease>(*step).lease.slot;
}
/// How the process ends: "82: the reason". Empty if it continues.
std::string end_of(const next_step& step) {
  if (!is<end_process>(step)) return {};
  const auto& end = std::get<end_process>(*step);
  return std::to_string(end.exit_code) + (end.why ? ": " + end.why->message : std::string());
}

loader_book described_book() {
  loader_book book;
  CHECK(is<open_and_describe>(book.open(open_order())));
  CHECK_FALSE(book.described(one_tensor));
  return book;
}
loader_book ready_book() {
  loader_book book = described_book();
  CHECK(is<map_and_set_up>(book.assign(slots_of())));
  CHECK(is<report_ready>(book.set_up(false, 1)));
  return book;
}

}  // namespace

TEST_CASE("a loader lays out its slots as it has described the dataset") {
  loader_book book = described_book();
  const auto step = book.assign(slots_of());
  REQUIRE(is<map_and_set_up>(step));
  const auto& set_up = std::get<map_and_set_up>(*step);
  CHECK(set_up.layout.rows_max == batch_size);
  CHECK(set_up.layout.bytes == 256);
  CHECK(set_up.order.partition == 3);
}

TEST_CASE("for a session of another version, or for jobs, the dataset is not opened, and the refusal says why") {
  auto other = open_order();
  other.version = protocol::version + 1;
  CHECK(end_of(loader_book().open(other)) ==
        fmt::format("82: the session speaks protocol {}, but this worker speaks {}", protocol::version + 1, protocol::version));
  auto jobs = open_order();
  jobs.pool = true;
  CHECK(end_of(loader_book().open(jobs)).starts_with("78: the worker program ([loader] command) loads a dataset"));
}

TEST_CASE("slots that are too small for a batch are blamed on the session, and tensors without a layout on the dataset") {
  CHECK(end_of(described_book().assign(slots_of(255))) == "82: a batch needs 256 bytes, but the slots have 255");
  loader_book book;
  REQUIRE(book.open(open_order()));
  CHECK_FALSE(book.described({}));
  CHECK(end_of(book.assign(slots_of())).starts_with("78: "));
}

TEST_CASE("a message out of turn ends the loader with what was out of turn") {
  CHECK(end_of(loader_book().assign(slots_of())) == "82: slots were assigned before a dataset was opened");
  CHECK(end_of(described_book().lease(lease(0))) == "82: it received a lease before slots were assigned");
  CHECK(end_of(described_book().urgent(lease(0))) == "82: it received a lease before slots were assigned");
  CHECK(end_of(described_book().name({{1}})) == "82: the session asked for names before it assigned slots");
  CHECK(end_of(described_book().open(open_order())) == "82: the session asked for a second dataset");
  CHECK(end_of(ready_book().assign(slots_of())) == "82: slots were assigned twice");
}

TEST_CASE("urgent leases run before the lease that arrived, and the loader looks for more after each") {
  loader_book book = ready_book();
  CHECK(is<look_for_urgent>(book.lease(lease(0))));
  CHECK(slot_of(book.urgent(lease(1))) == 1);
  CHECK(is<look_for_urgent>(book.ran(false)));
  CHECK(slot_of(book.urgent(std::nullopt)) == 0);
  CHECK(is<look_for_urgent>(book.ran(false)));
  CHECK_FALSE(book.urgent(std::nullopt));
}

TEST_CASE("an idle loader that is woken runs the urgent lease, or stops if it was asked to") {
  loader_book book = ready_book();
  CHECK(is<look_for_urgent>(book.woken(false)));
  CHECK(slot_of(book.urgent(lease(2))) == 2);
  CHECK(end_of(book.woken(true)) == "0");
}

TEST_CASE("CUDA ends its worker: setup that loads it also fails the run, and a sample that loads it costs one replacement") {
  loader_book book = described_book();
  REQUIRE(book.assign(slots_of()));
  CHECK(end_of(book.set_up(true, 77)) ==
        "78: the worker program or Dataset::setup loaded CUDA into worker 3 (pid 77); only the GPU owner uses the GPU");
  CHECK(end_of(ready_book().ran(true)) == "75");
}

TEST_CASE("a closed link ends the loader without a message, and a broken protocol with one") {
  CHECK(end_of(ready_book().link_lost({})) == "83");
  CHECK(end_of(ready_book().link_lost("a frame of 5 GiB")) == "82: a frame of 5 GiB");
}

TEST_CASE("a loader that has ended does nothing more and ends once") {
  loader_book book = ready_book();
  CHECK(end_of(book.stopped()) == "0");
  CHECK_FALSE(book.lease(lease(0)));
  CHECK_FALSE(book.woken(true));
  CHECK_FALSE(book.name({{1}}));
  CHECK_FALSE(book.open(open_order()));
  CHECK_FALSE(book.assign(slots_of()));
  CHECK_FALSE(book.link_lost({}));
}
