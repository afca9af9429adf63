// A worker program whose dataset loads CUDA on one sample, like careless loader code. cuda_in_worker_test.cpp passes the library, the
// sample and a file that receives the time.
#include <penstock/worker.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <stdexcept>

namespace {

class cuda_using final : public penstock::Dataset {
 public:
  explicit cuda_using(const penstock::string_map& options)
      : library_(options.at("library")),
        time_file_(options.at("time_file")),
        cuda_sample_(std::stoull(options.at("sample"))),
        throws_(options.at("throws") == "yes") {}

  penstock::dataset_description describe() override {
    return {
        "cuda-using", 64, {{.name = "data", .type = penstock::dtype::uint8, .shape = {64}}}, "cuda-using"};
  }
  void load(const penstock::sample_request& request, const penstock::sample_slot& slot) override {
    std::ranges::fill(slot.bytes(0), static_cast<std::byte>(request.index));
    if (request.index != cuda_sample_) return;
    std::ofstream(time_file_) << std::chrono::steady_clock::now().time_since_epoch().count();
    void* const cuda = ::dlopen(library_.c_str(), RTLD_NOW);
    if (cuda == nullptr) throw std::runtime_error(::dlerror());
    const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(cuda, "cuInit"));
    if (init(0) != 0 && throws_) throw std::runtime_error("CUDA error: initialization error");
  }

 private:
  std::string library_;
  std::string time_file_;
  std::uint64_t cuda_sample_;
  bool throws_;
};

}  // namespace

int main() {
  return penstock::worker_main(
      [](const penstock::config& c) { return std::make_unique<cuda_using>(c.dataset.options); });
}
