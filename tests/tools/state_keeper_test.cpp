// What a state file holds after a write and after a failed write.
#include "tools/penstock/state_keeper.hpp"

#include "runtime/schedule/epoch_book.hpp"
#include "tests/runtime/base/scratch_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/resource.h>

#include <csignal>

using namespace penstock;
using namespace penstock::cli;
using penstock::testing::scratch_folder;

namespace {

std::vector<std::byte> state_after(std::uint64_t batches) {
  schedule::stream_state s;
  s.identity.batch_size = 8;
  s.identity.world_size = 1;
  s.next_batch = batches;
  s.delivered = 8 * batches;
  return schedule::serialise(s);
}

/// While this object exists, this process can write only empty files, as if the disk were full.
class full_disk {
 public:
  full_disk() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~full_disk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  full_disk(const full_disk&) = delete;
  full_disk& operator=(const full_disk&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a state that cannot be written leaves the earlier one, which is what is left behind") {
  const scratch_folder folder;
  const std::string path = folder.file("state");
  state_keeper file(path);
  REQUIRE(file.write(state_after(2)));
  {
    const full_disk full;
    CHECK_FALSE(file.write(state_after(3)));
  }
  CHECK(folder.entries() == 1);
  CHECK(file.contents() == state_after(2));
  CHECK(file.left_behind() == "'" + path + "' holds the position: epoch 0, 16 samples delivered");
  CHECK(*state_keeper(path).read() == state_after(2));
}

TEST_CASE("a state file that was found is left behind until a newer state is written") {
  const scratch_folder folder;
  const std::string path = folder.file("state");
  REQUIRE(state_keeper(path).write(state_after(1)));
  state_keeper file(path);
  CHECK(file.left_behind() == "'" + path + "' holds no position");
  REQUIRE(file.read());
  CHECK(file.left_behind() == "'" + path + "' holds the position: epoch 0, 8 samples delivered");
  REQUIRE(file.write(state_after(2)));
  CHECK(file.left_behind() == "'" + path + "' holds the position: epoch 0, 16 samples delivered");
}
