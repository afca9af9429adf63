// A device program that counts rows and prints the total at the end.
#include <penstock/device_program.hpp>

#include <cstdio>

namespace {

class row_counter final : public penstock::DeviceProgram {
 public:
  void on_batch(const penstock::DeviceBatch& batch, penstock::stream_handle) override {
    rows_ += batch.find("data") != nullptr ? batch.rows() : 0;
  }
  [[nodiscard]] bool keeps_state() const override { return false; }
  void finish() override { std::fprintf(stderr, "row-counter saw %zu rows\n", rows_); }

 private:
  std::size_t rows_ = 0;
};

}  // namespace

PENSTOCK_DEVICE_PROGRAM(row_counter)
