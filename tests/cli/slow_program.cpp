// A device program with steps of 100 ms, or of PENSTOCK_TEST_STEP_MS, which keep its device busy. Used by alerts_test.py
// and tools/bench/stalls.py.
#include <penstock/device_program.hpp>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

class slow_program final : public penstock::DeviceProgram {
 public:
  void on_batch(const penstock::DeviceBatch&, penstock::stream_handle) override {
    std::this_thread::sleep_for(step_);
  }

 private:
  static std::chrono::milliseconds step() {
    const char* const given = std::getenv("PENSTOCK_TEST_STEP_MS");
    return std::chrono::milliseconds(given != nullptr ? std::atoi(given) : 100);
  }

  const std::chrono::milliseconds step_ = step();
};

}  // namespace

PENSTOCK_DEVICE_PROGRAM(slow_program)
