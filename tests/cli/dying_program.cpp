// A device program that kills its process: SIGKILL in finish(), for the first PENSTOCK_TEST_DEATHS processes,
// which the file PENSTOCK_TEST_COUNT counts. If PENSTOCK_TEST_SNAPSHOT_BYTES is set, its snapshots have that
// size. With PENSTOCK_TEST_AFTER_THE_END its thread never ends: a destructor waits forever. With
// PENSTOCK_TEST_STEP each batch takes this many seconds. Used by owner_process_test.py, communicator_test.py
// and pause_test.py.
#include <penstock/device_program.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct endless {
  ~endless() {
    while (std::getenv("PENSTOCK_TEST_AFTER_THE_END") != nullptr) ::pause();
  }
  bool used = false;
};
thread_local endless at_the_end_of_the_thread;

class dying_program final : public penstock::DeviceProgram {
 public:
  void on_batch(const penstock::DeviceBatch&, penstock::stream_handle) override {
    ++batches_;
    if (const char* seconds = std::getenv("PENSTOCK_TEST_STEP"))
      ::sleep(static_cast<unsigned>(std::strtoul(seconds, nullptr, 10)));
    at_the_end_of_the_thread.used = true;
  }

  std::optional<std::vector<std::byte>> snapshot() override {
    const char* bytes = std::getenv("PENSTOCK_TEST_SNAPSHOT_BYTES");
    std::vector<std::byte> state(bytes != nullptr ? std::strtoul(bytes, nullptr, 10) : sizeof batches_);
    std::memcpy(state.data(), &batches_, sizeof batches_);
    return state;
  }
  void restore(std::span<const std::byte> state) override {
    std::memcpy(&batches_, state.data(), sizeof batches_);
  }

  void finish() override {
    if (std::getenv("PENSTOCK_TEST_COUNT") == nullptr) return;
    const int file =
        ::open(std::getenv("PENSTOCK_TEST_COUNT"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct stat facts {};
    if (::write(file, ".", 1) == 1 && ::fstat(file, &facts) == 0 &&
        facts.st_size <= std::atol(std::getenv("PENSTOCK_TEST_DEATHS")))
      ::raise(SIGKILL);
    std::fprintf(stderr, "dying_program: finished with %llu batches\n",
                 static_cast<unsigned long long>(batches_));
  }

 private:
  std::uint64_t batches_ = 0;
};

}  // namespace

PENSTOCK_DEVICE_PROGRAM(dying_program)
