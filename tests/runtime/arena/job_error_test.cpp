// Encoding of a function's exception: whatever fits is kept, and bytes in a different format are refused.
#include "runtime/arena/job_error.hpp"

#include <catch2/catch_test_macros.hpp>

#include <random>

using namespace penstock;
using namespace penstock::arena;

namespace {

constexpr std::size_t plenty = 1 << 20;

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> all;
  for (const int value : values) all.push_back(static_cast<std::byte>(value));
  return all;
}

}  // namespace

TEST_CASE("type, text and traceback survive encoding") {
  for (const job_exception_text& one :
       {job_exception_text{}, job_exception_text{"std::runtime_error", "no such file", ""},
        job_exception_text{"ValueError", std::string("with\0a zero", 11), "Traceback:\n  line 1\n"},
        job_exception_text{std::string(job_exception_text::type_bytes_max, 't'),
                           std::string(job_exception_text::text_bytes_max, 'x'),
                           std::string(job_exception_text::traceback_bytes_max, 'b')}}) {
    CHECK(job_exception_from(as_bytes(one, plenty)).value() == one);
  }
}

TEST_CASE("overlong texts are cut and marked, and a traceback loses its middle") {
  std::string trace;
  for (int i = 0; i < 20'000; ++i) trace += "frame " + std::to_string(i) + "\n";
  const job_exception_text whole{std::string(10'000, 't'), std::string(100'000, 'x'), trace};
  const job_exception_text read = job_exception_from(as_bytes(whole, plenty)).value();
  CHECK(read.type.size() == job_exception_text::type_bytes_max);
  CHECK(read.text.ends_with("x..."));
  CHECK(read.traceback.size() == job_exception_text::traceback_bytes_max);
  CHECK(read.traceback.starts_with("frame 0\n"));
  CHECK(read.traceback.ends_with("frame 19999\n"));
  CHECK(read.traceback.find("[...]") != std::string::npos);
}

TEST_CASE("an error is cut to the available space and loses its traceback first") {
  const job_exception_text whole{"std::runtime_error", std::string(300, 'x'), std::string(500, 'b')};
  for (std::size_t room = 0; room < 1000; ++room) {
    const auto written = as_bytes(whole, room);
    REQUIRE(written.size() <= room);
    const auto read = job_exception_from(written);
    REQUIRE(read);
    if (room >= 12 + 18 + 300) CHECK(read->text == whole.text);
    if (room >= 12 + 18) CHECK(read->type == whole.type);
  }
  CHECK(job_exception_from({})->text == "it failed, but there was no room for its error message");
}

TEST_CASE("truncated, overlong and extra bytes are refused") {
  const auto good = as_bytes({"T", "text", ""}, plenty);
  for (std::size_t cut = 1; cut < good.size(); ++cut)
    CHECK_FALSE(job_exception_from(std::span(good).first(cut)));
  auto longer = good;
  longer.push_back(std::byte{0});
  CHECK(job_exception_from(longer).error().message == "the error of a job is followed by 1 stray bytes");
  CHECK_FALSE(job_exception_from(bytes({0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0})));
  // A type of 513 bytes: one byte longer than any that as_bytes() writes.
  std::vector<std::byte> long_type = bytes({0x01, 0x02, 0, 0});
  long_type.resize(4 + 513 + 8);
  CHECK_FALSE(job_exception_from(long_type));
}

TEST_CASE("random bytes are parsed or refused without a crash") {
  std::mt19937 random(20261122);
  const auto good = as_bytes({"std::logic_error", "an argument", "somewhere"}, plenty);
  for (int i = 0; i < 50'000; ++i) {
    auto changed = good;
    changed[random() % changed.size()] = static_cast<std::byte>(random());
    changed.resize(random() % (changed.size() + 1));
    const auto read = job_exception_from(changed);
    if (read) REQUIRE(read->type.size() + read->text.size() + read->traceback.size() <= good.size() + 60);
  }
}
