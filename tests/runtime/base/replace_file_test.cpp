#include "runtime/base/replace_file.hpp"

#include "tests/runtime/base/scratch_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::testing;
namespace fs = std::filesystem;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("a replaced file has the new contents and the old permissions, and no temporary file remains") {
  const scratch_folder folder;
  const std::string path = folder.file("state");
  REQUIRE(replace_file(path, "first"));
  CHECK(text_of(path) == "first");
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  REQUIRE(check_replaceable(path));
  REQUIRE(replace_file(path, "second, longer"));
  REQUIRE(replace_file(path, ""));
  REQUIRE(replace_file(path, std::string(100'000, 'x')));
  CHECK(text_of(path) == std::string(100'000, 'x'));
  struct stat there {};
  REQUIRE(::stat(path.c_str(), &there) == 0);
  CHECK((there.st_mode & 0777) == 0640);
  CHECK(folder.entries() == 1);
}

TEST_CASE("a link planted at the temporary file's path is not followed") {
  const scratch_folder folder;
  const std::string precious = folder.file("precious");
  put(precious, "mine");
  // All names that the next temporary files could have.
  for (int n = 0; n < 64; ++n)
    fs::create_symlink(precious, folder.file("state") + fmt::format(".tmp-{}-{}", ::getpid(), n));
  fs::create_symlink(precious, folder.file("state") + ".tmp");
  REQUIRE(replace_file(folder.file("state"), "new"));
  CHECK(text_of(precious) == "mine");
  CHECK(text_of(folder.file("state")) == "new");
}

TEST_CASE("replacing through a link replaces its target and keeps the link") {
  const scratch_folder folder;
  put(folder.file("real"), "old");
  fs::create_symlink("real", folder.file("link"));
  REQUIRE(replace_file(folder.file("link"), "new"));
  CHECK(fs::is_symlink(folder.file("link")));
  CHECK(text_of(folder.file("real")) == "new");
}

TEST_CASE("a non-regular file or a missing folder is refused before anything is written") {
  const scratch_folder folder;
  const auto device = replace_file("/dev/null", "text");
  REQUIRE_FALSE(device);
  CHECK(device.error().message.find("'/dev/null': it exists and is not a regular file") != std::string::npos);
  CHECK_FALSE(check_replaceable("/dev/null"));
  CHECK_FALSE(replace_file(folder.file("."), "text"));
  const auto nowhere = check_replaceable(folder.file("missing/state"));
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().message == fmt::format("writing '{0}/state': the folder '{0}' does not exist", folder.file("missing")));
  CHECK(folder.entries() == 0);
}

TEST_CASE("a failed write leaves the old file and no temporary one") {
  const scratch_folder folder;
  put(folder.file("state"), "old");
  // A name that is valid, but too long for the temporary file's suffix.
  const std::string name(250, 'n');
  put(folder.file(name.c_str()), "old");
  CHECK_FALSE(replace_file(folder.file(name.c_str()), "new"));
  CHECK(text_of(folder.file(name.c_str())) == "old");
  CHECK(folder.entries() == 2);
}

TEST_CASE("if threads replace one file at the same time, one thread's complete version remains") {
  const scratch_folder folder;
  const std::string path = folder.file("state");
  {
    std::vector<std::jthread> writers;
    for (char c : {'a', 'b', 'c', 'd'}) {
      writers.emplace_back([&path, c] {
        for (int i = 0; i < 20; ++i) static_cast<void>(replace_file(path, std::string(4096, c)));
      });
    }
  }
  const std::string text = text_of(path);
  CHECK(text == std::string(4096, text.empty() ? '?' : text.front()));
  CHECK(folder.entries() == 1);
}
