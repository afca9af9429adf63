// Large arguments in a worker: which ones are kept until their row starts, and which are freed.
#include "actors/job_worker/argument_parcels.hpp"

#include "runtime/base/mapping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

using namespace penstock;
using namespace penstock::job_worker;

namespace {

struct post {
  std::pair<unique_fd, unique_fd> ends = protocol::make_parcel_pair().value();
  argument_parcels arguments{ends.second.get()};

  void send(std::uint32_t slot, std::uint32_t generation, std::uint32_t row) {
    const auto file = create_memory_file("test", "an argument").value();
    REQUIRE(::ftruncate(file.get(), 1 + row) == 0);
    REQUIRE(seal_memory_file(file.get(), seal::size_and_contents, "an argument"));
    REQUIRE(protocol::send_parcel(ends.first.get(), {slot, generation, row, 1 + row}, file.get()).value());
  }
  bool gets(std::uint32_t slot, std::uint32_t generation, std::uint32_t row) {
    const auto got = arguments.take({slot, generation, 100}, row, nanoseconds(0)).value();
    if (got) CHECK(got->label == protocol::parcel_label{slot, generation, row, 1 + row});
    return got.has_value();
  }
};

}  // namespace

TEST_CASE("arguments can be taken in any order of rows and leases, each once") {
  post p;
  for (const std::uint32_t row : {0U, 1U, 2U}) p.send(0, 7, row);
  p.send(1, 3, 0);
  CHECK(p.gets(0, 7, 2));
  CHECK(p.gets(1, 3, 0));
  CHECK(p.gets(0, 7, 0));
  CHECK_FALSE(p.gets(0, 7, 0));
  CHECK_FALSE(p.gets(0, 7, 3));
  CHECK(p.arguments.kept() == 1);
}

TEST_CASE("arguments of an ended lease are freed, whether they arrive before or after its end") {
  post p;
  p.send(0, 7, 0);
  p.send(0, 7, 1);
  p.send(1, 4, 0);
  CHECK(p.gets(1, 4, 0));  // skips the arguments of slot 0
  CHECK(p.arguments.kept() == 2);
  p.send(0, 7, 2);
  p.send(0, 8, 0);
  p.arguments.lease_over({0, 7, 3});
  CHECK(p.arguments.kept() == 1);
  p.send(0, 6, 0);
  p.send(0, 7, 1);
  CHECK(p.gets(0, 8, 0));
  CHECK_FALSE(p.gets(0, 8, 1));
  CHECK(p.arguments.kept() == 0);
}

TEST_CASE("generations that wrap around still count as later") {
  post p;
  p.arguments.lease_over({0, generation_mask, 1});
  p.send(0, 0, 0);
  p.send(0, generation_mask - 1, 0);
  CHECK_FALSE(p.gets(1, 1, 0));
  CHECK(p.arguments.kept() == 1);
  CHECK(p.gets(0, 0, 0));
}
