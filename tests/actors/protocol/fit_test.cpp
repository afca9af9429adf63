// Even the largest messages that the settings allow fit into frames.
#include "actors/protocol/fit.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::protocol;

namespace {

std::vector<wire_upload> uploads_of(std::size_t count, std::size_t samples) {
  std::vector<wire_upload> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back({i + 1, i, 0, i, 0, 0, std::vector<std::uint64_t>(samples, ~std::uint64_t{0})});
  return all;
}

}  // namespace

TEST_CASE("uploads of more than a frame leave in several messages, in order, and the peer accepts each") {
  for (const auto& [count, samples] : {std::pair<std::size_t, std::size_t>{0, 0},
                                       {1, 65536},
                                       {7, 65536},
                                       {9, 65536},
                                       {64, 65536},
                                       {100'000, 1},
                                       {100'000, 0}}) {
    std::uint64_t next = 1;
    std::size_t messages = 0;
    for (upload_slots& part : split_to_fit(uploads_of(count, samples))) {
      REQUIRE_FALSE(part.uploads.empty());
      for (const wire_upload& u : part.uploads) REQUIRE(u.upload == next++);
      std::vector<char> bytes;
      REQUIRE(append_frame(bytes, to_owner(std::move(part))));
      ++messages;
    }
    CHECK(next == count + 1);
    if (count == 64) CHECK(messages == 10);  // seven messages of 524 KB fit 4 MiB
  }
}

TEST_CASE("acknowledgements of more copies than fit a frame are split") {
  std::vector<std::uint64_t> uploads(1'500'000);
  for (std::size_t i = 0; i < uploads.size(); ++i) uploads[i] = i;
  std::uint64_t next = 0;
  for (slots_copied& part : split_to_fit(uploads)) {
    for (const std::uint64_t u : part.uploads) REQUIRE(u == next++);
    std::vector<char> bytes;
    REQUIRE(append_frame(bytes, from_owner(std::move(part))));
  }
  CHECK(next == uploads.size());
}

TEST_CASE(
    "a report of 65536 failures with long reasons is shortened to fit, and an ordinary one is unchanged") {
  batch_loaded usual{1, 2, 3, {{0, "a.jpg", "truncated"}}, 4};
  cut_to_fit(usual);
  CHECK(usual.failures[0].reason == "truncated");

  batch_loaded report{1, 2, 0, {}, 4};
  for (std::uint32_t row = 0; row < 65536; ++row)
    report.failures.push_back({row, std::string(500, 'n'), row == 7 ? "short" : std::string(4000, 'r')});
  cut_to_fit(report);
  CHECK(report.failures.size() == 65536);
  CHECK(report.failures[7].reason == "short");
  CHECK(report.failures[8].reason.ends_with("r..."));
  std::vector<char> bytes;
  REQUIRE(append_frame(bytes, from_worker(std::move(report))));
}

TEST_CASE(
    "a message larger than a frame is refused by its sender, with its size, and leaves nothing behind") {
  std::vector<char> bytes;
  const auto no = append_frame(bytes, from_owner(worker_gives_up{79, 0, std::string(5 << 20, 'x')}));
  REQUIRE_FALSE(no);
  CHECK(no.error().message == "a message of type 4 has 5242889 bytes, but at most 4194304 can be sent");
  CHECK(bytes.empty());
}
