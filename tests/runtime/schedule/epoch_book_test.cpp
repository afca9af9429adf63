#include "runtime/schedule/epoch_book.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

using namespace penstock;
using namespace penstock::schedule;
using namespace std::chrono_literals;

namespace {

const stream_identity ours{
    1234, 4, 0, 1, true, false, "abcdef0123456789", "image.size=8x8\ngpu.dtype=float16"};
const steady_time start{1h};

stream_shape shape_of(std::uint64_t batches, std::uint64_t samples = 10) {
  stream_shape shape;
  shape.batches_per_epoch = batches;
  shape.usual.expected = samples;
  return shape;
}

epoch_book fresh(std::uint64_t batches = 3, std::uint64_t samples = 10) {
  return {ours, shape_of(batches, samples), start};
}

/// Every third batch has no rows, the others have three. In each batch one sample has failed.
delivered_batch lossy(stream_position p) {
  return {p, p % 3 == 2 ? 0U : 3U, 1, 0, 100 + p, std::nullopt, start};
}

delivered_batch full(stream_position p) {
  return {p, 4, 0, 0, p, std::nullopt, start};
}

stream_state half_way() {
  epoch_book book = fresh();
  for (stream_position p = 0; p < 5; ++p) book.delivered(lossy(p));
  return book.state();
}

std::string digest_of(std::initializer_list<std::uint64_t> batches) {
  digest_chain chain;
  for (const std::uint64_t digest : batches) chain.add(digest);
  return chain.hex();
}

/// The bytes of a version 1 state: its digests are a list, and it has no settings.
std::vector<std::byte> of_the_first_version(const stream_state& s,
                                            const std::vector<std::uint64_t>& digests) {
  std::vector<std::byte> bytes;
  const auto number = [&](std::uint64_t value) {
    std::byte raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes.insert(bytes.end(), raw, raw + sizeof value);
  };
  const auto list = [&](const std::vector<std::uint64_t>& values) {
    number(values.size());
    for (const std::uint64_t value : values) number(value);
  };
  number(0x31'45'54'41'54'53'53'50);
  for (const std::uint64_t value : {s.identity.seed, std::uint64_t{s.identity.batch_size},
                                    std::uint64_t{s.identity.rank}, std::uint64_t{s.identity.world_size}})
    number(value);
  number((s.identity.shuffle ? 1U : 0U) | (s.identity.drop_last ? 2U : 0U));
  number(s.identity.fingerprint.size());
  for (const char c : s.identity.fingerprint) bytes.push_back(static_cast<std::byte>(c));
  for (const std::uint64_t value : {s.epoch, s.next_batch, s.delivered, s.failed, s.quarantined})
    number(value);
  list(digests);
  list(s.quarantined_samples);
  list({1, 2, 3});  // epochs with 1, 2 and 3 failed samples
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte b : bytes) sum = (sum ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
  number(sum);
  return bytes;
}

}  // namespace

TEST_CASE("an epoch is complete when its last batch is delivered, and then the next one starts") {
  epoch_book book = fresh();
  for (stream_position p = 0; p < 4; ++p) {
    delivered_batch one = full(p);
    one.rows = p % 3 == 2 ? 2 : 4;
    book.delivered(one);
  }
  REQUIRE(book.epochs().size() == 2);
  CHECK(book.epochs()[0].complete);
  CHECK(book.epochs()[0].delivered == 10);
  CHECK(book.epochs()[0].expected == 10);
  CHECK(book.epochs()[0].digest == digest_of({0, 1, 2}));
  CHECK_FALSE(book.epochs()[1].complete);
  CHECK(book.epochs()[1].batches == 1);
  CHECK(book.epochs()[1].digest == digest_of({3}));
}

TEST_CASE("an epoch delivered in relaxed order has the same digest as in strict order") {
  epoch_book book = fresh(5, 20);
  for (const stream_position p : {1, 0, 4, 3}) book.delivered(full(p));
  const epoch_account before = book.epochs().back();
  CHECK_FALSE(before.digest);  // batch 2 is missing
  CHECK(before.delivered == 16);
  CHECK(book.next() == 2);
  book.delivered(full(2));
  const epoch_account after = book.epochs().back();
  CHECK(after.complete);
  CHECK(after.digest == digest_of({0, 1, 2, 3, 4}));
  CHECK(after.early_batches == 3);
  CHECK(after.most_early == 2);
}

TEST_CASE("a state counts batches that were delivered early, and the next run does not count them again") {
  epoch_book book = fresh(5, 20);
  for (const stream_position p : {0, 2, 4}) book.delivered(lossy(p));
  stream_state saved = book.state();
  CHECK(saved.next_batch == 1);
  CHECK(saved.early == 0b101);
  CHECK(saved.failed == 3);
  const auto back = parse_state(serialise(saved));
  REQUIRE(back);
  CHECK(*back == saved);

  epoch_book later = fresh(5, 20);
  later.resume(*back);
  CHECK(later.state() == saved);
  for (const stream_position p : {3, 1}) later.delivered(lossy(p));
  const epoch_account whole = later.epochs().back();
  CHECK(whole.complete);
  CHECK(whole.batches == 5);
  CHECK(whole.digest == digest_of({100, 101, 102, 103, 104}));
  CHECK(whole.early_batches == 1);  // counts only batches of this process
}

TEST_CASE("an epoch may begin with an early batch, and a state records that") {
  epoch_book book = fresh(3, 12);
  book.delivered(full(1));
  const stream_state saved = book.state();
  CHECK(saved.next_batch == 0);
  CHECK(saved.early == 0b1);
  epoch_book later = fresh(3, 12);
  later.resume(saved);
  for (const stream_position p : {0, 2}) later.delivered(full(p));
  CHECK(later.epochs().back().complete);
  CHECK(later.epochs().back().digest == digest_of({0, 1, 2}));
}

TEST_CASE("a state whose early batches contradict its counts or its epoch is refused") {
  epoch_book book = fresh(5, 20);
  for (const stream_position p : {0, 2}) book.delivered(full(p));
  stream_state saved = book.state();
  CHECK(check_position(saved, shape_of(5, 20)));
  CHECK_FALSE(check_position(saved, shape_of(2, 8)));
  saved.delivered = 13;  // in three batches of four rows
  CHECK_FALSE(parse_state(serialise(saved)));
  saved.delivered = 8;
  saved.early_digests.push_back(7);
  CHECK_FALSE(parse_state(serialise(saved)));
}

TEST_CASE("an epoch with a batch without digest has no digest") {
  epoch_book book = fresh();
  book.delivered(full(0));
  delivered_batch one = full(1);
  one.digest.reset();
  book.delivered(one);
  CHECK_FALSE(book.epochs()[0].digest);
  book.delivered(full(2));
  CHECK_FALSE(book.epochs()[0].digest);
}

TEST_CASE("a resumed epoch reports figures of the whole epoch") {
  const stream_state saved = half_way();
  CHECK(saved.epoch == 1);
  CHECK(saved.next_batch == 2);
  epoch_book book = fresh();
  book.resume(saved);
  CHECK(book.next() == 5);
  book.delivered(lossy(5));
  REQUIRE(book.epochs().size() == 1);
  const epoch_account e = book.epochs()[0];
  CHECK(e.complete);
  CHECK(e.from_batch == 2);
  CHECK(e.batches == 3);
  CHECK(e.delivered == 3 + 3 + 0);
  CHECK(e.failed == 3);
  CHECK(e.digest == digest_of({103, 104, 105}));
}

TEST_CASE("an epoch left early and restarted is counted from zero, and so is a state of its second pass") {
  epoch_book book = fresh(10, 40);
  for (stream_position p = 0; p < 5; ++p) book.delivered(full(p));
  book.begin_at(0);
  CHECK(book.state().next_batch == 0);
  CHECK(book.state().delivered == 0);
  for (stream_position p = 0; p < 6; ++p) book.delivered(full(p));
  const stream_state second = book.state();
  CHECK(second.next_batch == 6);
  CHECK(second.delivered == 24);
  CHECK(second.digests.count() == 6);
  CHECK(second.digests.hex() == digest_of({0, 1, 2, 3, 4, 5}));
  CHECK_FALSE(book.epochs().back().complete);
  for (stream_position p = 6; p < 10; ++p) book.delivered(full(p));
  REQUIRE(book.epochs().size() == 2);
  CHECK_FALSE(book.epochs()[0].complete);
  CHECK(book.epochs()[0].batches == 5);
  CHECK(book.epochs()[0].digest == digest_of({0, 1, 2, 3, 4}));
  CHECK(book.epochs()[1].complete);
  CHECK(book.epochs()[1].batches == 10);
  CHECK(book.epochs()[1].delivered == 40);
  CHECK(book.epochs()[1].digest == digest_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  book.begin_at(0);  // the whole epoch starts again
  book.delivered(full(0));
  CHECK(book.epochs().size() == 3);
  CHECK(book.state().delivered == 4);
}

TEST_CASE("an epoch's time runs from the demand for its first batch to the delivery of its last") {
  epoch_book book = fresh(2, 8);
  const auto at = [](stream_position p, std::optional<steady_time> demanded, steady_time taken) {
    return delivered_batch{p, 4, 0, 0, std::nullopt, demanded, taken};
  };
  SECTION("if the consumer reports when it demanded a batch") {
    book.delivered(at(0, start + 1s, start + 3s));
    book.delivered(at(1, start + 4s, start + 5s));
    book.delivered(at(2, start + 60s, start + 61s));  // after a pause that belongs to no epoch
    book.delivered(at(3, start + 62s, start + 63s));
    CHECK(book.epochs()[0].took == 4s);
    CHECK(book.epochs()[1].took == 3s);
  }
  SECTION("without a known demand, an epoch is timed from the previous delivery") {
    book.delivered(at(0, std::nullopt, start + 2s));
    book.delivered(at(1, std::nullopt, start + 5s));
    book.delivered(at(2, std::nullopt, start + 9s));
    CHECK(book.epochs()[0].took == 5s);
    CHECK(book.epochs()[1].took == 4s);
  }
  SECTION("without pauses of the consumer, the times of all epochs add up to that of the run") {
    for (stream_position p = 0; p < 8; ++p) book.delivered(at(p, std::nullopt, start + 3s * (p + 1)));
    nanoseconds sum{0};
    for (const epoch_account& e : book.epochs()) {
      CHECK(e.took == 6s);
      sum += e.took;
    }
    CHECK(sum == 24s);
  }
  SECTION("the time is never negative") {
    book.delivered(at(0, start + 3s, start + 2s));
    CHECK(book.epochs()[0].took == 0s);
  }
}

TEST_CASE("a state survives being written and read") {
  stream_state saved = half_way();
  saved.quarantined_samples = {0, 7, 8, 9, 1'000'000'000'000, (std::uint64_t{1} << 62U) - 1};
  const auto back = parse_state(serialise(saved));
  REQUIRE(back);
  CHECK(*back == saved);
  saved.quarantined_samples.clear();
  saved.identity.fingerprint.clear();
  saved.identity.settings.clear();
  CHECK(*parse_state(serialise(saved)) == saved);
}

TEST_CASE("a state is at most 1 KiB, however long the epoch is and however many samples are quarantined") {
  epoch_book book({1, 4, 0, 1, true, false, std::string(fingerprint_bytes_max, 'f'),
                   std::string(identity_settings_bytes_max, 's')},
                  shape_of(100'000, 400'000), start);
  std::size_t largest = 0;
  for (stream_position p = 0; p < 50'000; ++p) {
    book.delivered(full(p));
    if (p > 100 && p < 49'900) continue;
    stream_state state = book.state();
    for (std::uint64_t sample = 0; sample < 2000; ++sample)
      state.quarantined_samples.push_back(sample * 12'345);
    const auto bytes = serialise(state);
    largest = std::max(largest, bytes.size());
    const auto back = parse_state(bytes);
    REQUIRE(back);
    CHECK(back->digests == state.digests);
    // Only the first samples are kept; the others will be quarantined again.
    CHECK(back->quarantined_samples.size() >= 12);
    CHECK(std::ranges::equal(back->quarantined_samples,
                             std::span(state.quarantined_samples).first(back->quarantined_samples.size())));
  }
  CHECK(largest <= strict_state_bytes_max);
}

TEST_CASE(
    "a state with the maximum number of early batches keeps their digests and a dozen quarantined samples") {
  epoch_book book({1, 4, 0, 1, true, false, std::string(fingerprint_bytes_max, 'f'),
                   std::string(identity_settings_bytes_max, 's')},
                  shape_of(100'000, 400'000), start);
  for (stream_position p = 0; p < 1000; ++p) book.delivered(full(p));
  for (stream_position p = 1001; p <= 1064; ++p) book.delivered(full(p));
  stream_state state = book.state();
  CHECK(state.early == ~std::uint64_t{0});
  for (std::uint64_t sample = 0; sample < 2000; ++sample) state.quarantined_samples.push_back(sample * 12'345);
  const auto bytes = serialise(state);
  CHECK(bytes.size() <= state_bytes_max);
  const auto back = parse_state(bytes);
  REQUIRE(back);
  CHECK(back->early_digests == state.early_digests);
  CHECK(back->quarantined_samples.size() >= 12);
}

TEST_CASE("a hundred scattered quarantined samples of a million fit into a state for image datasets") {
  stream_state state = half_way();
  state.identity.fingerprint = std::string(32, 'f');
  state.identity.settings = std::string(230, 's');
  state.quarantined_samples.clear();
  for (std::uint64_t sample = 0; sample < 100; ++sample) state.quarantined_samples.push_back(sample * 9'999);
  const auto back = parse_state(serialise(state));
  REQUIRE(back);
  CHECK(back->quarantined_samples == state.quarantined_samples);
}

TEST_CASE("a state of the first version resumes, including its digests") {
  stream_state saved = half_way();
  saved.quarantined_samples = {7};
  const auto back = parse_state(of_the_first_version(saved, {103, 104}));
  REQUIRE(back);
  CHECK(back->digests == saved.digests);
  CHECK(back->quarantined_samples == saved.quarantined_samples);
  CHECK(back->delivered == saved.delivered);
  CHECK(back->identity.settings.empty());
  CHECK(check_same_stream(back->identity, ours));
}

TEST_CASE(
    "the empty state that the first version saved before its stream was open is refused with an explanation") {
  const auto no = parse_state(of_the_first_version({}, {}));
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::state_mismatch);
  CHECK(no.error().message.find("before its stream was open") != std::string::npos);
}

TEST_CASE("truncated and changed states, and arbitrary bytes, are refused") {
  const auto bytes = serialise(half_way());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CHECK_FALSE(parse_state(std::span(bytes).first(length)));
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto changed = bytes;
    changed[i] ^= std::byte{1};
    CHECK_FALSE(parse_state(changed));
  }
  CHECK_FALSE(parse_state(std::vector<std::byte>(64)));
}

TEST_CASE("a state with a valid checksum and impossible counts is refused with its contents") {
  const auto refusal = [](auto change) {
    stream_state s = half_way();
    change(s);
    const auto no = parse_state(serialise(s));
    if (no) return std::string("accepted");
    CHECK(no.error().code == errc::state_mismatch);
    return no.error().message;
  };
  constexpr std::uint64_t absurd = ~std::uint64_t{0};
  CHECK(refusal([](stream_state& s) { s.identity.world_size = 0; }).find("rank is 0 of 0") !=
        std::string::npos);
  CHECK(refusal([](stream_state& s) { s.identity.rank = 5; }).find("rank is 5 of 1") != std::string::npos);
  CHECK(refusal([](stream_state& s) { s.epoch = absurd; }).find("batch 2 of epoch 184467") !=
        std::string::npos);
  CHECK(refusal([](stream_state& s) { s.next_batch = absurd; }).find("it is at batch") !=
        std::string::npos);
  CHECK(refusal([](stream_state& s) { s.delivered = absurd; }).find("delivered") != std::string::npos);
  CHECK(refusal([](stream_state& s) { s.failed = absurd; }).find("failed") != std::string::npos);
  CHECK(refusal([](stream_state& s) { s.quarantined = 9; }).find("quarantined") != std::string::npos);
  CHECK(refusal([](stream_state& s) {
          s.next_batch = 1;
          s.delivered = 1;
          s.failed = 0;
        }).find("2 digests for 1 batches") != std::string::npos);
}

TEST_CASE("a state beyond the end of an epoch is refused") {
  stream_state s = half_way();
  CHECK(check_position(s, shape_of(3)));
  CHECK_FALSE(check_position(s, shape_of(2)));
  CHECK_FALSE(check_position(s, shape_of(0)));
  s.epoch = std::uint64_t{1} << 61U;
  CHECK_FALSE(check_position(s, shape_of(1000)));
  CHECK(check_position({}, shape_of(0)));
}

TEST_CASE("a state of another stream is refused with each difference named") {
  stream_identity other = ours;
  CHECK(check_same_stream(ours, other));
  other.seed = 5;
  other.batch_size = 8;
  other.settings = "image.size=9x9\nimage.augment=none\ngpu.dtype=float16";
  const auto no = check_same_stream(ours, other);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::state_mismatch);
  CHECK(no.error().message ==
        "the saved state belongs to another stream: seed was 1234 and is 5, batch_size was 4 and is 8, "
        "image.size was 8x8 and is 9x9, image.augment was unset and is none");
}

TEST_CASE("another dataset is named first, and then up to four of many differences") {
  stream_identity other = ours;
  other.fingerprint = "another";
  other.seed = 5;
  other.batch_size = 8;
  other.shuffle = !ours.shuffle;
  other.settings = "tensor.a=1\ntensor.b=2";
  const auto no = check_same_stream(ours, other);
  REQUIRE_FALSE(no);
  CHECK(no.error().message.starts_with("the saved state belongs to another stream: the dataset's fingerprint was "));
  CHECK(no.error().message.find(" seed was 1234 and is 5, batch_size was 4 and is 8, shuffle was ") != std::string::npos);
  CHECK(no.error().message.ends_with(" more differences"));
  CHECK(no.error().message.find("tensor.a") == std::string::npos);
}

TEST_CASE("a state without settings belongs to another stream than one that has a kind of order") {
  stream_identity saved = ours;
  saved.settings.clear();
  stream_identity now = saved;
  CHECK(check_same_stream(saved, now));
  now.settings = "order=window 8192";
  const auto no = check_same_stream(saved, now);
  REQUIRE_FALSE(no);
  CHECK(no.error().message == "the saved state belongs to another stream: order was unset and is window 8192");
  saved.has_settings = false;  // version 1
  CHECK_FALSE(check_same_stream(saved, now));
  now.settings = "image.size=9x9";
  CHECK(check_same_stream(saved, now));
}

TEST_CASE("a state taken before the dataset was described resumes with any dataset of the same plan") {
  stream_identity early = ours;
  early.fingerprint.clear();
  early.settings.clear();
  CHECK(check_same_stream(early, ours));
}

TEST_CASE("an epoch that a group's state enters midway counts from there and has no digest") {
  stream_shape shape = shape_of(5, 20);
  shape.entered_epoch = 1;
  shape.entered = {11, 3, 6, 1};  // from position 11 on, as batches 3 and 4
  stream_state saved;
  saved.identity = ours;
  saved.identity.of_group = true;
  saved.epoch = 1;
  saved.start = 11;
  REQUIRE(check_position(saved, shape));
  epoch_book book(ours, shape, start);
  book.begin_at(8);
  book.resume(saved);
  CHECK(book.next() == 8);
  CHECK(book.state().start == 11);
  CHECK(book.state().next_batch == 0);
  book.delivered(full(8));

  const stream_state between = book.state();
  CHECK(between.start == 11);
  CHECK(between.next_batch == 1);
  CHECK(between.delivered == 4);
  CHECK_FALSE(between.identity.of_group);
  CHECK(*parse_state(serialise(between)) == between);
  epoch_book again(ours, shape, start);
  again.resume(between);
  CHECK(again.next() == 9);

  for (epoch_book* one : {&book, &again}) {
    delivered_batch last = full(9);
    last.rows = 2;
    const epoch_account e = one->delivered(last);
    CHECK(e.complete);
    CHECK(e.batches == 2);
    CHECK(e.from_position == 11);
    CHECK(e.expected == 6);
    CHECK(e.padded == 1);
    CHECK(e.delivered == 6);
    CHECK_FALSE(one->epochs().back().digest);
    one->delivered(full(10));
    CHECK(one->epochs().back().from_position == 0);
    CHECK(one->epochs().back().digest == digest_of({10}));
    CHECK(one->state().start == 0);
  }
  CHECK(book.epochs()[0].from_batch == 3);
  CHECK(again.epochs()[0].from_batch == 4);
}

TEST_CASE("a stream that goes back before the entered epoch forgets the entry position") {
  stream_shape shape = shape_of(5, 20);
  shape.entered_epoch = 1;
  shape.entered = {11, 3, 6, 0};
  epoch_book book(ours, shape, start);
  book.begin_at(8);
  book.delivered(full(8));
  book.reshape(shape_of(5, 20));
  book.begin_at(0);
  for (stream_position p = 0; p < 10; ++p) book.delivered(full(p));
  REQUIRE(book.epochs().size() == 3);
  CHECK_FALSE(book.epochs()[0].complete);
  CHECK(book.epochs()[2].complete);
  CHECK(book.epochs()[2].batches == 5);
  CHECK(book.epochs()[2].digest == digest_of({5, 6, 7, 8, 9}));
}

TEST_CASE("the rest of an entered epoch may be too small for a batch") {
  stream_shape shape = shape_of(5, 20);
  shape.entered_epoch = 1;
  shape.entered = {39, 5, 0, 0};
  stream_state saved;
  saved.epoch = 1;
  saved.start = 39;
  CHECK(check_position(saved, shape));
  saved.next_batch = 1;
  CHECK_FALSE(check_position(saved, shape));
}

TEST_CASE(
    "with several ranks a state contains [sampler] uneven, and a state from before that key existed counts as allow") {
  stream_identity two = ours;
  two.world_size = 2;
  stream_identity padded = two;
  padded.uneven = uneven_rule::pad;
  stream_state state = half_way();
  state.identity = padded;
  CHECK(parse_state(serialise(state))->identity == padded);
  const auto no = check_same_stream(two, padded);
  REQUIRE_FALSE(no);
  CHECK(no.error().message == "the saved state belongs to another stream: uneven was allow and is pad");
}

TEST_CASE("a stream with one rank writes its state in the format from before groups existed") {
  const auto bytes = serialise(half_way());
  CHECK(std::memcmp(bytes.data(), "PSSTATE2", 8) == 0);
  stream_state grouped = half_way();
  grouped.start = 8;
  CHECK(std::memcmp(serialise(grouped).data(), "PSSTATE3", 8) == 0);
}
