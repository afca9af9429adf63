#include "runtime/dataset/file_reader.hpp"

#include "runtime/dataset/recycled_buffer.hpp"
#include "tests/runtime/dataset/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

using namespace penstock;
using testing::temporary_folder;

namespace {

failure refusal(const std::string& path, std::uint64_t bytes_max = 1U << 20U) {
  file_reader reader;
  const auto file = reader.read(path, bytes_max);
  return file ? failure{} : file.error();
}

}  // namespace

TEST_CASE("files are read whole, one after another into the same memory") {
  const temporary_folder folder;
  const std::string large(300000, 'x');
  folder.write("large", large);
  folder.write("small", "abc");
  file_reader reader;
  const auto first = reader.read(folder.path("large"), 1U << 20U);
  REQUIRE(first);
  CHECK(first->size() == large.size());
  CHECK(std::memcmp(first->data(), large.data(), large.size()) == 0);
  const auto* const place = first->data();
  const auto second = reader.read(folder.path("small"), 1U << 20U);
  REQUIRE(second);
  CHECK(second->size() == 3);
  CHECK(second->data() == place);
  folder.write("empty", "");
  CHECK(reader.read(folder.path("empty"), 10)->empty());
}

TEST_CASE("unreadable files are refused with the reason") {
  const temporary_folder folder;
  CHECK(refusal(folder.path("gone")).os_code == ENOENT);
  CHECK(refusal(folder.path("gone")).message == "cannot be opened: No such file or directory");
  folder.link("dangling", "nowhere");
  CHECK(refusal(folder.path("dangling")).os_code == ENOENT);
  folder.link("loop", "loop");
  CHECK(refusal(folder.path("loop")).os_code == ELOOP);
  CHECK(refusal(folder.path()).message == "is a folder, not a file");
  CHECK(refusal("/dev/null").message == "is a device, not a file");
  folder.write("large", std::string(2000, 'x'));
  CHECK(refusal(folder.path("large"), 1999).message == "is 1.95 KiB; the limit is 1.95 KiB");
}

TEST_CASE("a FIFO is refused without waiting for a writer") {
  const temporary_folder folder;
  REQUIRE(::mkfifo(folder.path("pipe.jpg").c_str(), 0600) == 0);
  CHECK(refusal(folder.path("pipe.jpg")).message == "is a FIFO, not a file");
}

TEST_CASE("a file without permission is refused with the name of the error") {
  const temporary_folder folder;
  folder.write("secret", "x");
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(folder.path("secret").c_str(), 0) == 0);
  const bool root = ::geteuid() == 0;
  if (root) REQUIRE(::seteuid(65534) == 0);
  const failure why = refusal(folder.path("secret"));
  if (root) REQUIRE(::seteuid(0) == 0);
  CHECK(why.os_code == EACCES);
}

TEST_CASE("only errors of storage that may recover count as transient") {
  for (const int code : {EIO, ESTALE, EAGAIN, ETIMEDOUT, EMFILE}) CHECK(is_transient(code));
  for (const int code : {0, ENOENT, EACCES, EISDIR, ELOOP, ENAMETOOLONG}) CHECK_FALSE(is_transient(code));
}

TEST_CASE("a buffer that one huge sample enlarged shrinks again, but not at once") {
  recycled_buffer buffer;
  buffer.take(20U << 20U);
  const std::size_t grown = buffer.capacity();
  CHECK(grown >= 20U << 20U);
  buffer.take(300000);
  CHECK(buffer.capacity() == grown);
  for (int i = 0; i < 80; ++i) std::memset(buffer.take(300000), 1, 300000);
  CHECK(buffer.capacity() >= 300000);
  CHECK(buffer.capacity() < 400000);
}

TEST_CASE("a buffer whose large samples keep coming keeps its size") {
  recycled_buffer buffer;
  buffer.take(8U << 20U);
  const std::size_t grown = buffer.capacity();
  for (int i = 0; i < 200; ++i) {
    buffer.take(i % 20 == 0 ? 8U << 20U : 100000);
    REQUIRE(buffer.capacity() == grown);
  }
}

TEST_CASE("a moved buffer keeps its memory") {
  recycled_buffer buffer;
  std::byte* const memory = buffer.take(1000);
  recycled_buffer other(std::move(buffer));
  CHECK(other.take(1000) == memory);
}
