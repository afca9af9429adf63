#include "runtime/base/mapping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

using namespace penstock;

TEST_CASE("a file of sealed size keeps its size, and its contents can still be changed") {
  const auto file = create_memory_file("test", "a file");
  REQUIRE(file);
  REQUIRE(::ftruncate(file->get(), 8192) == 0);
  CHECK_FALSE(is_sealed(file->get(), seal::size));
  REQUIRE(seal_memory_file(file->get(), seal::size, "a file"));
  CHECK(is_sealed(file->get(), seal::size));
  CHECK_FALSE(is_sealed(file->get(), seal::size_and_contents));
  CHECK(::ftruncate(file->get(), 4096) != 0);
  CHECK(::ftruncate(file->get(), 16384) != 0);

  const mapping whole = map_shared(file->get(), {0, 8192});
  const mapping second = map_shared(file->get(), {4096, 4096});
  REQUIRE(whole);
  REQUIRE(second);
  whole.bytes()[4096] = std::byte{7};
  CHECK(second.bytes()[0] == std::byte{7});
}

TEST_CASE("a file with sealed contents can be read but not written") {
  const auto file = create_memory_file("test", "a file");
  REQUIRE(file);
  REQUIRE(::write(file->get(), "abcd", 4) == 4);
  REQUIRE(seal_memory_file(file->get(), seal::size_and_contents, "a file"));
  CHECK(is_sealed(file->get(), seal::size));
  CHECK(is_sealed(file->get(), seal::size_and_contents));
  CHECK(::pwrite(file->get(), "x", 1, 0) != 1);
  CHECK_FALSE(map_shared(file->get(), {0, 4}));
  const mapping read = map_read_only(file->get(), {0, 4});
  REQUIRE(read);
  CHECK(read.bytes()[3] == std::byte{'d'});
}

TEST_CASE("writes to a copy-on-write mapping do not reach the file") {
  const auto file = create_memory_file("test", "a file");
  REQUIRE(file);
  REQUIRE(::write(file->get(), "abcd", 4) == 4);
  REQUIRE(seal_memory_file(file->get(), seal::size_and_contents, "a file"));
  const mapping own = map_copy_on_write(file->get(), {0, 4});
  const mapping others = map_read_only(file->get(), {0, 4});
  REQUIRE(own);
  REQUIRE(others);
  own.bytes()[0] = std::byte{'x'};
  CHECK(own.bytes()[0] == std::byte{'x'});
  CHECK(others.bytes()[0] == std::byte{'a'});
}

TEST_CASE("only a memory file can be sealed, and the error says what was being sealed") {
  const unique_fd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto refused = seal_memory_file(file.get(), seal::size, "the dataset's index");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::system);
  CHECK(refused.error().message.starts_with("sealing the dataset's index: "));
  CHECK_FALSE(is_sealed(file.get(), seal::size));
  CHECK_FALSE(is_sealed(-1, seal::size));
}

TEST_CASE("a moved-from mapping is empty, and the new one keeps the memory") {
  mapping first = map_anonymous(4096);
  REQUIRE(first);
  first.bytes()[0] = std::byte{1};
  mapping second = std::move(first);
  CHECK_FALSE(first);  // NOLINT: that is what is tested
  CHECK(second.bytes()[0] == std::byte{1});
  CHECK_FALSE(map_anonymous(0));
}
