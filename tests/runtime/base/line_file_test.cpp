#include "runtime/base/line_file.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

using namespace penstock;
namespace fs = std::filesystem;

namespace {

class lines_on_disk {
 public:
  lines_on_disk() { REQUIRE(::mkdtemp(folder_.data()) != nullptr); }
  ~lines_on_disk() { fs::remove_all(folder_); }
  lines_on_disk(const lines_on_disk&) = delete;
  lines_on_disk& operator=(const lines_on_disk&) = delete;

  [[nodiscard]] unique_fd open(int how = O_RDWR) const {
    unique_fd file(::open(path().c_str(), how | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    REQUIRE(file);
    return file;
  }
  [[nodiscard]] std::string text() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& text) const { std::ofstream(path(), std::ios::binary) << text; }
  [[nodiscard]] std::string path() const { return folder_ + "/lines"; }

 private:
  std::string folder_ = (fs::temp_directory_path() / "penstock-lines-XXXXXX").string();
};

/// As on a full disk: a write that crosses the limit writes only what fits, and the next one fails.
class files_of_at_most {
 public:
  explicit files_of_at_most(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit tight{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  }
  ~files_of_at_most() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  files_of_at_most(const files_of_at_most&) = delete;
  files_of_at_most& operator=(const files_of_at_most&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace

TEST_CASE("wherever a full disk cuts a line, none of it remains and later lines are complete") {
  const std::string line = "the second line\n";
  for (std::size_t fits = 0; fits < line.size(); ++fits) {
    const lines_on_disk disk;
    line_file lines(disk.open());
    REQUIRE(lines.append("first\n") == 0);
    {
      const files_of_at_most limit(6 + fits);
      CHECK(lines.append(line) == EFBIG);
      CHECK(disk.text() == "first\n");
    }
    REQUIRE(lines.append(line) == 0);
    CHECK(disk.text() == "first\n" + line);
  }
}

TEST_CASE("an incomplete line that cannot be removed is ended before the next one") {
  const lines_on_disk disk;
  // The file is not open for reading, so line_file cannot check whether it wrote the file's end.
  line_file lines(disk.open(O_WRONLY));
  {
    const files_of_at_most limit(4);
    CHECK(lines.append("first\n") == EFBIG);
    CHECK(lines.append("again\n") == EFBIG);
  }
  REQUIRE(lines.append("second\n") == 0);
  REQUIRE(lines.append("third\n") == 0);
  CHECK(disk.text() == "firs\nsecond\nthird\n");
}

TEST_CASE("an incomplete line left by a crash is ended before the next process's first line") {
  const lines_on_disk disk;
  disk.write("whole\nha");
  line_file lines(disk.open());
  REQUIRE(lines.append("next\n") == 0);
  CHECK(disk.text() == "whole\nha\nnext\n");
  line_file empty_at_first(lines_on_disk().open());
  CHECK(empty_at_first.append("x\n") == 0);
}

TEST_CASE("a file cut after a complete line continues with the next one") {
  const lines_on_disk disk;
  disk.write("whole\nha");
  line_file lines(disk.open());
  REQUIRE(lines.cut(6) == 0);
  REQUIRE(lines.append("next\n") == 0);
  CHECK(disk.text() == "whole\nnext\n");
}

TEST_CASE("a pipe gets lines unchanged") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const unique_fd read_end(ends[0]);
  line_file lines{unique_fd(ends[1])};
  REQUIRE(lines.append("a\n") == 0);
  std::array<char, 8> got{};
  CHECK(::read(read_end.get(), got.data(), got.size()) == 2);
}
