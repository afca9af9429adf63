#include "runtime/schedule/epoch_book.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::schedule;

namespace {

const stream_identity ours{1234, 4, 0, 1, true, false, "abcdef0123456789"};

stream_state half_way() {
  epoch_book book(ours, 3, 10);
  for (stream_position p = 0; p < 5; ++p) book.delivered(p, p % 3 == 2 ? 1 : 4, 1, 0, 100 + p);
  return book.state();
}

}  // namespace

TEST_CASE("an epoch is complete when its last batch is delivered, and the next one begins") {
  epoch_book book(ours, 3, 10);
  for (stream_position p = 0; p < 4; ++p) book.delivered(p, p % 3 == 2 ? 2 : 4, 0, 0, std::nullopt);
  REQUIRE(book.epochs().size() == 2);
  CHECK(book.epochs()[0].complete);
  CHECK(book.epochs()[0].delivered == 10);
  CHECK(book.epochs()[0].expected == 10);
  CHECK_FALSE(book.epochs()[1].complete);
  CHECK(book.epochs()[1].batches == 1);
}

TEST_CASE("a resumed epoch reports the whole epoch") {
  const stream_state saved = half_way();
  CHECK(saved.epoch == 1);
  CHECK(saved.next_batch == 2);
  epoch_book book(ours, 3, 10);
  book.resume(saved);
  CHECK(book.next() == 5);
  book.delivered(5, 2, 0, 0, 105);
  REQUIRE(book.epochs().size() == 1);
  const epoch_account& e = book.epochs()[0];
  CHECK(e.complete);
  CHECK(e.from_batch == 2);
  CHECK(e.batches == 3);
  CHECK(e.delivered == 4 + 4 + 2);
  CHECK(e.failed == 2);
  CHECK(e.batch_digests == std::vector<std::uint64_t>{103, 104, 105});
}

TEST_CASE("a state survives being written and read") {
  stream_state saved = half_way();
  saved.quarantined_samples = {7};
  saved.failed_samples = {1, 2, 3};
  const auto back = parse_state(serialise(saved));
  REQUIRE(back);
  CHECK(*back == saved);
}

TEST_CASE("a state is at most 1 KiB and 8 bytes a batch of the open epoch") {
  epoch_book book(ours, 100'000, 400'000);
  for (stream_position p = 0; p < 50'000; ++p) book.delivered(p, 4, 0, 0, p);
  CHECK(serialise(book.state()).size() <= 1024 + 8 * 50'000);
}

TEST_CASE("a state that was cut, changed or never was one is refused") {
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

TEST_CASE("a state of another stream is refused with each difference named") {
  stream_identity other = ours;
  CHECK(check_same_stream(ours, other));
  other.seed = 5;
  other.batch_size = 8;
  const auto no = check_same_stream(ours, other);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::state_mismatch);
  CHECK(no.error().message ==
        "the saved state belongs to another stream: seed was 1234 and is 5, batch_size was 4 and is 8");
}
