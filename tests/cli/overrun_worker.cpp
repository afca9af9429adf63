// A worker program with a bug: while it loads sample [dataset.options] sample for the first time, it writes
// far past the sample's row. Used by bad_worker_test.py.
#include <penstock/worker.hpp>

#include <cstring>

namespace {

constexpr std::uint32_t sample_bytes = 1024;
constexpr std::size_t far = 4U << 20U;

class overrunning final : public penstock::Dataset {
 public:
  explicit overrunning(std::uint64_t sample) : bad_sample_(sample) {}

  penstock::dataset_description describe() override {
    return {"overrunning",
            200,
            {{"data", penstock::dtype::uint8, {sample_bytes}, penstock::tensor_role::data}},
            "1"};
  }
  void load(const penstock::sample_request& request, const penstock::sample_slot& slot) override {
    const bool now = request.index == bad_sample_ && request.attempt == 1;
    std::memset(slot.bytes(0).data(), static_cast<int>(request.index & 0xffU), now ? far : sample_bytes);
  }

 private:
  std::uint64_t bad_sample_;
};

}  // namespace

int main() {
  return penstock::worker_main([](const penstock::config& settings) {
    return std::make_unique<overrunning>(std::stoull(settings.dataset.options.at("sample")));
  });
}
