// What follows from a dataset's description: the session's sizes and rules, and which descriptions it refuses.
#include "actors/protocol/tensors.hpp"
#include "actors/session/stream_setup.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::session;

namespace {

dataset_description numbers(std::uint64_t samples) {
  return {"numbers", samples, {{.name = "x", .type = dtype::float32, .shape = {16}}}, "ab12"};
}

config batches_of(std::uint32_t batch_size) {
  config c;
  c.sampler.batch_size = batch_size;
  c.quarantine.max_fraction = 0.001;
  c.quarantine.max_samples = 1000;
  return c;
}

result<stream_setup> set_up(const config& c, std::uint64_t samples, bool from_store = false, const sampling& by = {}) {
  return set_up_stream(c, numbers(samples), by, {}, 5, from_store);
}

protocol::dataset_described described_as(const dataset_description& what) {
  return {what.type, what.samples, protocol::as_wire(what.tensors), what.fingerprint};
}

}  // namespace

TEST_CASE("slots hold a batch of the stream, and no more if the dataset is smaller") {
  const auto stream = set_up(batches_of(32), 1000);
  REQUIRE(stream);
  CHECK(stream->rows_max == 32);
  CHECK(stream->shape.slot_bytes == 32 * 16 * sizeof(float));
  CHECK(stream->shape.partitions == 5);
  CHECK(stream->range.end == batches_of(32).sampler.epochs * stream->order->batches_per_epoch());
  const auto small = set_up(batches_of(32), 10);
  REQUIRE(small);
  CHECK(small->rows_max == 10);
}

TEST_CASE("the quarantine's limit is the larger of eight samples and a fraction of the dataset, up to a maximum") {
  CHECK(set_up(batches_of(4), 100)->rules.quarantine_max == 8);
  CHECK(set_up(batches_of(4), 100'001)->rules.quarantine_max == 101);
  CHECK(set_up(batches_of(4), 100'000'000)->rules.quarantine_max == 1000);
}

TEST_CASE("workers that read from a store may hold a lease for each slot, however slow their batches are") {
  const auto local = set_up(batches_of(4), 100);
  const auto store = set_up(batches_of(4), 100, true);
  CHECK(local->rules.leases_ahead == 2);
  CHECK(store->rules.leases_ahead == store->slots);
  CHECK(store->slots > 2);
  CHECK(store->rules.slow_batch == nanoseconds::max());
}

TEST_CASE("a second copy of late batches has a slot that usual leases do not use") {
  config hedged = batches_of(4);
  hedged.loader.hedge = true;
  const auto stream = set_up(hedged, 100);
  CHECK(stream->rules.spare_slots == 1);
  CHECK(stream->shape.slots == stream->slots + 1);
}

TEST_CASE("the order of the samples is part of the fingerprint that people see") {
  CHECK(set_up(batches_of(4), 100)->fingerprint == "ab12");
  CHECK(set_up(batches_of(4), 100, false, {nullptr, "weighted 7", {}})->fingerprint == "ab12, weighted 7");
}

TEST_CASE("a stream without batches, and slots too small for a batch, are refused") {
  const auto empty = set_up(batches_of(4), 0);
  REQUIRE_FALSE(empty);
  CHECK(empty.error().message == "the dataset has no samples");
  config narrow = batches_of(4);
  narrow.loader.slot_bytes = byte_size{16};
  CHECK_FALSE(set_up(narrow, 100));
}

TEST_CASE("encoded tensors are refused unless the device decodes") {
  auto jpegs = numbers(3);
  jpegs.tensors.push_back({.name = "jpeg", .type = dtype::uint8, .shape = {100}, .role = tensor_role::encoded});
  config c;
  const auto refused = served_by(c, described_as(jpegs));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "tensor 'jpeg' is encoded: only built-in datasets may leave decoding to the device");
  c.image.decoder = decoder_rule::gpu;
  CHECK(served_by(c, described_as(jpegs)));
}

TEST_CASE("the fingerprint of a custom dataset covers the description, and its author's string is kept for messages") {
  config c;
  c.dataset.type = dataset_type::custom;
  const auto said = served_by(c, described_as(numbers(3)));
  REQUIRE(said);
  const auto& custom = std::get<schedule::served_dataset>(*said);
  CHECK(custom.own_fingerprint == "ab12");
  CHECK(custom.dataset.fingerprint == fingerprint_of_custom(numbers(3)));
  c.dataset.type = dataset_type::synthetic;
  const auto built_in = served_by(c, described_as(numbers(3)));
  CHECK(std::get<schedule::served_dataset>(*built_in).dataset == numbers(3));
}

TEST_CASE("of a state's quarantined samples, only those that the file does not list are new") {
  schedule::stream_state state;
  state.quarantined_samples = {3, 5, 8};
  quarantine_report listed;
  listed.sample = 5;
  const auto only = only_in_state(state, {listed});
  REQUIRE(only.size() == 2);
  CHECK(only[0].sample == 3);
  CHECK(only[1].sample == 8);
  CHECK(only[1].known);
}
