#include "runtime/process/oom_watch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <fstream>

using namespace penstock;
using namespace penstock::process;
using namespace std::chrono_literals;

namespace {

/// A made-up /proc/self/cgroup and /sys/fs/cgroup.
class fake_tree {
 public:
  fake_tree() {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-oom-XXXXXX").string();
    top = ::mkdtemp(pattern.data());
  }
  ~fake_tree() { std::filesystem::remove_all(top); }
  fake_tree(const fake_tree&) = delete;
  fake_tree& operator=(const fake_tree&) = delete;

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((top / file).parent_path());
    std::ofstream(top / file) << text;
  }
  [[nodiscard]] std::optional<std::filesystem::path> evidence() const {
    return oom_evidence_file(top);
  }

  std::filesystem::path top;
};

}  // namespace

TEST_CASE("OOM kills are counted in memory.events (cgroup v2) and in memory.oom_control (v1)") {
  const fake_tree v2;
  v2.write("proc/self/cgroup", "0::/user/job\n");
  v2.write("sys/fs/cgroup/user/job/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n");
  REQUIRE(v2.evidence());
  oom_watch watch(v2.evidence());
  CHECK_FALSE(watch.explains_death({}));
  v2.write("sys/fs/cgroup/user/job/memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\n");
  CHECK(watch.explains_death({}));
  CHECK_FALSE(watch.explains_death({}));  // one kill explains one death

  const fake_tree v1;
  v1.write("proc/self/cgroup", "5:cpu,cpuacct:/a\n3:memory:/job\n");
  v1.write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  REQUIRE(v1.evidence());
  CHECK_FALSE(oom_watch(v1.evidence()).explains_death({}));
}

TEST_CASE("in a cgroup without the memory controller, the nearest parent that has it counts OOM kills") {
  const fake_tree tree;
  tree.write("proc/self/cgroup", "0::/user/job/step\n");
  tree.write("sys/fs/cgroup/user/memory.events", "oom_kill 0\n");
  REQUIRE(tree.evidence());
  oom_watch watch(tree.evidence());
  tree.write("sys/fs/cgroup/user/memory.events", "oom_kill 1\n");
  CHECK(watch.explains_death({}));
}

TEST_CASE("an OOM kill of another process does not explain a later death") {
  const fake_tree tree;
  tree.write("proc/self/cgroup", "0::/\n");
  tree.write("sys/fs/cgroup/memory.events", "oom_kill 0\n");
  oom_watch watch(tree.evidence());
  steady_time now{};
  tree.write("sys/fs/cgroup/memory.events", "oom_kill 1\n");
  for (int i = 0; i < 3; ++i, now += 1s) watch.look(now);
  CHECK_FALSE(watch.explains_death(now));
}

TEST_CASE("an OOM kill explains a death that is noticed only after a suspension") {
  const fake_tree tree;
  tree.write("proc/self/cgroup", "0::/\n");
  tree.write("sys/fs/cgroup/memory.events", "oom_kill 0\n");
  oom_watch watch(tree.evidence());
  const steady_time now{1h};
  watch.look(now);
  tree.write("sys/fs/cgroup/memory.events", "oom_kill 1\n");
  watch.look(now + 1s);
  CHECK(watch.explains_death(now + 1h));
}

TEST_CASE("without a cgroup that counts OOM kills, no death is explained") {
  const fake_tree tree;
  tree.write("proc/self/cgroup", "1:name=systemd:/x\n");
  CHECK_FALSE(tree.evidence());
  CHECK_FALSE(oom_watch(std::nullopt).explains_death({}));
}
