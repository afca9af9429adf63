// A worker program with a custom dataset: sample i is the number i, four times. Sample 13 is bad.
#include <penstock/worker.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace {

class counting final : public penstock::Dataset {
 public:
  explicit counting(std::uint64_t samples) : samples_(samples) {}

  penstock::dataset_description describe() override {
    return {"counting",
            samples_,
            {{.name = "data", .type = penstock::dtype::int32, .shape = {4}}},
            "counting-" + std::to_string(samples_)};
  }
  void load(const penstock::sample_request& request, const penstock::sample_slot& slot) override {
    if (request.index == 13) throw std::runtime_error("thirteen brings bad luck");
    std::ranges::fill(slot.as<std::int32_t>(0), static_cast<std::int32_t>(request.index));
  }
  std::string name_of(std::uint64_t index) const override { return "number " + std::to_string(index); }

 private:
  std::uint64_t samples_;
};

}  // namespace

int main() {
  return penstock::worker_main([](const penstock::config& c) {
    return std::make_unique<counting>(std::stoull(penstock::option_of(c, "samples")));
  });
}
