// A device program with steps of 100 ms, which keep its device busy. Used by alerts_test.py.
#include <penstock/device_program.hpp>

#include <chrono>
#include <thread>

namespace {

class slow_program final : public penstock::DeviceProgram {
 public:
  void on_batch(const penstock::DeviceBatch&, penstock::stream_handle) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
};

}  // namespace

PENSTOCK_DEVICE_PROGRAM(slow_program)
