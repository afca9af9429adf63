#include "actors/remote/dataset_program.hpp"

#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace penstock;
using namespace penstock::hosts;

TEST_CASE("a program file that was modified or replaced counts as another file") {
  const auto folder = std::filesystem::temp_directory_path() / ("penstock-program-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = folder / "worker";
  const auto write = [&](const std::string& to) { std::ofstream(to) << "first"; };
  write(path);
  const auto before = look_at_program(path);
  REQUIRE(before);
  CHECK(check_unchanged(*before));

  SECTION("replaced by an equal file") {
    write(path + ".new");
    std::filesystem::rename(path + ".new", path);
    const auto refused = check_unchanged(*before);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::worker_program);
    CHECK(refused.error().message.find("it was inode " + std::to_string(before->inode)) != std::string::npos);
    CHECK(refused.error().message.find("but is inode " + std::to_string(look_at_program(path)->inode)) != std::string::npos);
  }
  SECTION("modified") {
    std::ofstream(path, std::ios::app) << "x";
    CHECK_FALSE(check_unchanged(*before));
  }
  SECTION("removed") {
    std::filesystem::remove(path);
    CHECK_FALSE(check_unchanged(*before));
  }
  std::filesystem::remove_all(folder);
}
