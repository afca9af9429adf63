// A worker program for tests: [dataset] options say what its dataset does wrong and how long its samples are.
#include <penstock/worker.hpp>

#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace {

using namespace penstock;

class odd_dataset final : public Dataset {
 public:
  explicit odd_dataset(const config& settings) : options_(settings.dataset.options) {
    sacrificial_ = settings.loader.limits.max;
    crash_in("constructor");
    if (option("throw_in") == "constructor") throw std::runtime_error("no such archive");
  }

  dataset_description describe() override {
    crash_in("describe");
    if (option("throw_in") == "describe") throw std::runtime_error("the archive has no index");
    dataset_description d;
    d.type = "odd";
    d.samples = option("samples").empty() ? 60 : std::stoul(option("samples"));
    if (option("nameless").empty()) d.fingerprint = "odd/1";
    if (!option("new_each_time").empty()) d.fingerprint = "odd/" + std::to_string(::getpid());
    const auto rule = option("length") == "fixed"   ? length_rule::fixed_maximum
                      : option("length") == "batch" ? length_rule::batch_maximum
                                                    : length_rule::exact;
    d.tensors = {{"tokens", dtype::uint16, {10, 2}, tensor_role::data, rule},
                 {"number", dtype::int64, {}, tensor_role::data}};
    return d;
  }

  void setup(const worker_context& who) override {
    crash_in("setup");
    if (option("throw_in") == "setup") throw std::runtime_error("no licence");
    if (option("cuda_in") == "setup") bring_cuda();
    if (who.worker != sacrificial_) return;
    if (option("alone_in_setup") == "throw") throw std::runtime_error("no licence for one more");
    if (option("alone_in_setup") == "exit") std::exit(3);
    if (option("alone_in_setup") == "segv") raise_segv();
    if (option("alone_in_setup") == "hang") ::poll(nullptr, 0, -1);
  }

  void load(const sample_request& sample, const sample_slot& slot) override {
    if (is("segv", sample) || (is("segv_once", sample) && sample.attempt == 1)) raise_segv();
    if (is("exit", sample)) std::exit(3);
    if (is("throw", sample)) throw std::runtime_error("page is torn");
    if (!option("throw_all").empty())
      throw std::runtime_error(sample.index < 40 ? name_of(sample.index) + " is not a page" : "no such page");
    if (is("hang", sample)) ::poll(nullptr, 0, -1);
    if (is("cuda", sample)) bring_cuda();
    if (is("throw_odd", sample)) throw 42;
    if (is("wrong_type", sample)) slot.as<double>(1)[0] = 1;
    slot.as<std::int64_t>(1)[0] = static_cast<std::int64_t>(sample.index);
    // Fill with garbage first: garbage that remains is a bug.
    std::ranges::fill(slot.bytes(0), std::byte{0xee});
    const std::uint64_t length = length_of(sample.index);
    const auto tokens = slot.as<std::uint16_t>(0);
    const std::uint64_t entries = option("length").empty() ? 10 : length;
    for (std::uint64_t i = 0; i < entries * 2; ++i)
      tokens[i] = static_cast<std::uint16_t>(sample.index * 100 + i);
    if (!option("length").empty()) slot.set_length(0, is("too_long", sample) ? 11 : length);
    if (option("length").empty() && is("too_long", sample)) slot.set_length(0, 1);
  }

  void collate(const batch_slot& batch, random_source& random) override {
    if (option("collate").empty()) return;
    const bool here = std::ranges::count(batch.samples(), 7) > 0;
    if (here && option("collate") == "throw") throw std::runtime_error("these do not go together");
    if (here && option("collate") == "segv") raise_segv();
    const auto numbers = batch.as<std::int64_t>(1);
    for (std::int64_t& n : numbers) n = n * 1000 + static_cast<std::int64_t>(batch.rows());
    if (option("collate") == "draw") numbers[0] = random.below(1'000'000);
  }

  std::string name_of(std::uint64_t index) const override { return "page-" + std::to_string(index); }

  static std::uint64_t length_of(std::uint64_t index) { return index % 7; }

 private:
  [[nodiscard]] std::string option(const std::string& name) const {
    const auto at = options_.find(name);
    return at == options_.end() ? "" : at->second;
  }
  [[nodiscard]] bool is(const std::string& fault, const sample_request& sample) const {
    return option(fault) == std::to_string(sample.index);
  }
  void crash_in(const std::string& step) const {
    if (option("segv_in") == step) raise_segv();
  }
  static void raise_segv() { *static_cast<volatile int*>(nullptr) = 1; }
  void bring_cuda() const {
    if (::dlopen(option("fake_cuda").c_str(), RTLD_NOW) == nullptr) throw std::runtime_error(::dlerror());
  }

  string_map options_;
  std::uint32_t sacrificial_ = 0;  // number of the worker that tries suspects alone
};

}  // namespace

int main() {
  return penstock::worker_main([](const penstock::config& c) { return std::make_unique<odd_dataset>(c); });
}
