// A device program that kills its process: SIGKILL in finish(), for the first PENSTOCK_TEST_DEATHS processes,
// which are counted in the file PENSTOCK_TEST_COUNT. Its snapshots have PENSTOCK_TEST_SNAPSHOT_BYTES, if that
// is set. Used by owner_process_test.py.
#include <penstock/device_program.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

class dying_program final : public penstock::DeviceProgram {
 public:
  void on_batch(const penstock::DeviceBatch&, penstock::stream_handle) override { ++batches_; }

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
