#include "runtime/arena/arena.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

using namespace penstock;
using namespace penstock::arena;

namespace {

constexpr geometry small{10'000, 3, 2};

penstock::arena::arena sealed(const geometry& shape) {
  auto made = penstock::arena::arena::create();
  REQUIRE(made);
  REQUIRE(made->size_and_seal(shape));
  return std::move(*made);
}

/// The signal that kills a process that writes one byte there; 0 if none does.
int signal_of_write(volatile std::byte* where) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // neither the test framework's handler nor a sanitizer's
    *where = std::byte{1};
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("slots lie one after another with a page between them") {
  STATIC_REQUIRE(small.slot_mapped_bytes() == 12'288);
  STATIC_REQUIRE(small.slot_offset(1) == 16'384);
  STATIC_REQUIRE(small.partition_offset(1) == 3 * 16'384);
  STATIC_REQUIRE(small.bytes() == 6 * 16'384);
}

TEST_CASE("the owner reads from the partition what a worker wrote into its slot") {
  auto memory = sealed(small);
  REQUIRE(memory.reserve(1));
  const auto worker = slots_view::map(memory.fd(), small, 1);
  const auto owner = map_partition(memory.fd(), small, 1);
  REQUIRE(worker);
  REQUIRE(owner);
  worker->slot(2)[9'999] = std::byte{42};
  CHECK(owner->bytes()[small.slot_offset(2) + 9'999] == std::byte{42});
}

TEST_CASE("reserving on a memory node leaves the thread's memory policy unchanged") {
  const auto policy = [](int& mode) { return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0); };
  int before = -1;
  if (policy(before) != 0) SKIP("the kernel has no memory policies, or this container forbids them");
  for (const int node : {0, 5, 100'000}) {  // the second node need not exist, and the third cannot
    auto made = penstock::arena::arena::create(node);
    REQUIRE(made);
    REQUIRE(made->size_and_seal(small));
    REQUIRE(made->reserve(0));
    int after = -1;
    REQUIRE(policy(after) == 0);
    CHECK(after == before);
  }
}

TEST_CASE("writing past the end of any slot is a segmentation fault") {
  auto memory = sealed(small);
  const auto worker = slots_view::map(memory.fd(), small, 0);
  REQUIRE(worker);
  for (std::uint32_t i = 0; i < small.slots; ++i) {
    std::byte* const slot = worker->slot(i).data();
    CHECK(signal_of_write(slot + small.slot_mapped_bytes() - 1) == 0);
    CHECK(signal_of_write(slot + small.slot_mapped_bytes()) == SIGSEGV);
  }
}

TEST_CASE("a sealed arena can be neither shrunk nor grown") {
  auto memory = sealed(small);
  CHECK(::ftruncate(memory.fd(), 0) == -1);
  CHECK(::ftruncate(memory.fd(), 1 << 20) == -1);
}

TEST_CASE("executed programs do not inherit the arena") {
  auto memory = sealed(small);
  CHECK((::fcntl(memory.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("only reserved slots use memory") {
  constexpr geometry big{1 << 20, 4, 8};
  auto memory = sealed(big);
  const auto used = [&] {
    struct stat facts {};
    ::fstat(memory.fd(), &facts);
    return static_cast<std::uint64_t>(facts.st_blocks) * 512;
  };
  CHECK(used() == 0);
  REQUIRE(memory.reserve({3, 1, 3}));
  CHECK(used() == 2 * big.slot_stride());
  REQUIRE(memory.reserve(3));
  CHECK(used() == big.partition_bytes());
  REQUIRE(memory.reserve(3));
  CHECK(used() == big.partition_bytes());
}

TEST_CASE("a worker refuses an arena that differs from what the session announced") {
  auto memory = sealed(small);
  constexpr geometry other{10'000, 4, 2};
  const auto view = slots_view::map(memory.fd(), other, 0);
  REQUIRE_FALSE(view);
  CHECK(view.error().code == errc::protocol);

  const unique_fd unsealed(::memfd_create("test", MFD_CLOEXEC));
  REQUIRE(::ftruncate(unsealed.get(), static_cast<off_t>(small.bytes())) == 0);
  CHECK_FALSE(slots_view::map(unsealed.get(), small, 0));
}
