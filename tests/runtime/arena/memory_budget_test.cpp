#include "runtime/arena/memory_budget.hpp"

#include "runtime/base/units.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

using namespace penstock;
using namespace penstock::arena;

namespace {

namespace fs = std::filesystem;

/// A root folder with just the files that a test needs.
class fake_root {
 public:
  fake_root() : path_(fs::temp_directory_path() / fmt::format("penstock-root-{}", ::getpid())) {
    fs::remove_all(path_);
  }
  ~fake_root() { fs::remove_all(path_); }
  fake_root(const fake_root&) = delete;
  fake_root& operator=(const fake_root&) = delete;

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

memory_need need(std::uint64_t bytes) {
  return {bytes, bytes, bytes, "4 workers x 3 slots x 1 MiB", "lower [loader] workers"};
}

}  // namespace

TEST_CASE("every memory cgroup above us is a limit, and reclaimable cache does not count as used (v2)") {
  const fake_root root;
  root.write("proc/meminfo", "MemTotal:  8388608 kB\nMemAvailable:  4194304 kB\n");
  root.write("proc/self/cgroup", "0::/slice/job\n");
  root.write("sys/fs/cgroup/slice/memory.max", "3221225472\n");
  root.write("sys/fs/cgroup/slice/memory.current", "1073741824\n");
  root.write("sys/fs/cgroup/slice/job/memory.max", "2147483648\n");
  root.write("sys/fs/cgroup/slice/job/memory.current", "1610612736\n");
  root.write("sys/fs/cgroup/slice/job/memory.stat", "anon 1\ninactive_file 536870912\n");
  const auto limits = memory_limits(root.path());
  REQUIRE(limits.size() == 3);
  CHECK(limits[0].available == 4 * GiB);
  CHECK(limits[1].available == 1 * GiB);  // the job's cgroup: 2 GiB minus 1.5 GiB in use, of which 0.5 GiB is reclaimable
  CHECK(limits[2].available == 2 * GiB);  // the slice
}

TEST_CASE("a v1 memory controller is read too, and its number for \"no limit\" sets none") {
  const fake_root root;
  root.write("proc/self/cgroup", "4:memory:/a\n3:cpuset:/\n0::/\n");
  root.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n");
  root.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto limits = memory_limits(root.path());
  REQUIRE(limits.size() == 1);
  CHECK(limits[0].available == MiB);
}

TEST_CASE("a machine that reports nothing sets no limit") {
  const fake_root root;
  CHECK(memory_limits(root.path()).empty());
  CHECK(check_memory(need(1), {}));
}

TEST_CASE("too little memory is refused with both numbers, the limit's name and the remedy") {
  const std::vector<memory_limit> limits{{"available memory", 8 * GiB, 16 * GiB},
                                         {"memory cgroup /x", GiB, 2 * GiB}};
  CHECK(check_memory(need(GiB), limits));
  const auto no = check_memory(need(3 * GiB), limits);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::out_of_memory);
  CHECK(no.error().message ==
        "the arena needs 3.00 GiB (4 workers x 3 slots x 1 MiB), but memory cgroup /x leaves 1.00 GiB of "
        "2.00 GiB; "
        "lower [loader] workers");
}

TEST_CASE("a limit on file sizes causes an error and no signal") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit tight = before;
  tight.rlim_cur = 1 << 20;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const auto no = check_memory(need(2 << 20), {});
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  REQUIRE_FALSE(no);
  CHECK(no.error().message.find("ulimit -f") != std::string::npos);
}
