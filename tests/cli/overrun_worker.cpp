// A worker program with a bug. On its first attempt at the sample that `[dataset.options] sample` names, it writes far past the
// sample's row. With `closes`, it instead closes file descriptors that it does not own, on every attempt. Used by bad_worker_test.py.
#include <penstock/worker.hpp>

#include <unistd.h>

#include <cstring>

namespace {

constexpr std::uint32_t sample_bytes = 1024;
constexpr std::size_t far = 4U << 20U;

class overrunning final : public penstock::Dataset {
 public:
  overrunning(std::uint64_t sample, bool closes) : bad_sample_(sample), closes_(closes) {}

  penstock::dataset_description describe() override {
    return {"overrunning",
            200,
            {{"data", penstock::dtype::uint8, {sample_bytes}, penstock::tensor_role::data}},
            "1"};
  }
  void load(const penstock::sample_request& request, const penstock::sample_slot& slot) override {
    const bool now = request.index == bad_sample_ && request.attempt == 1 && !closes_;
    if (closes_ && request.index == bad_sample_) {
      for (int number = 3; number < 1024; ++number) ::close(number);
    }
    std::memset(slot.bytes(0).data(), static_cast<int>(request.index & 0xffU), now ? far : sample_bytes);
  }

 private:
  std::uint64_t bad_sample_;
  bool closes_;
};

}  // namespace

int main() {
  return penstock::worker_main([](const penstock::config& settings) {
    return std::make_unique<overrunning>(std::stoull(penstock::option_of(settings, "sample")),
                                         settings.dataset.options.contains("closes"));
  });
}
