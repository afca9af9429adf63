// Runs a fuzz target on its seeds, on random changes of them, and on files named on the command line. Prints
// its seed; PENSTOCK_TEST_SEED repeats a run, PENSTOCK_FUZZ_ROUNDS makes it longer.
#include "tests/fuzz/fuzz_target.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

namespace {

std::uint64_t number_from(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

class mutator {
 public:
  mutator(std::uint64_t seed, std::vector<std::string> seeds) : bits_(seed), seeds_(std::move(seeds)) {}

  std::string next() {
    std::string text = seeds_[below(seeds_.size())];
    for (std::uint64_t i = below(6); i-- > 0;) change(text);
    // Keep some inputs for a while as starting points of further changes.
    if (below(50) == 0)
      seeds_.size() < 200 ? seeds_.push_back(text) : void(seeds_[below(seeds_.size())] = text);
    return text;
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : bits_() % bound; }

  void change(std::string& text) {
    static constexpr char telling[] = {'\0', '\x01', '\x7f', '\x80', '\xff', '"', '{', '}', '[', '-', '\n'};
    const std::size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = telling[below(std::size(telling))];
        break;
      case 2: text.insert(at, 1, static_cast<char>(bits_())); break;
      case 3: text.erase(at, below(16)); break;
      case 4: text.insert(at, text.substr(below(text.size() + 1), below(64))); break;
      case 5: text += seeds_[below(seeds_.size())]; break;
      default: text.resize(at); break;
    }
    if (text.size() > 1U << 16U) text.resize(1U << 16U);
  }

  std::mt19937_64 bits_;
  std::vector<std::string> seeds_;
};

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    run({std::istreambuf_iterator<char>(in), {}});
  }
  if (argc > 1) return 0;
  const std::uint64_t seed = number_from("PENSTOCK_TEST_SEED", std::random_device{}());
  const std::uint64_t rounds = number_from("PENSTOCK_FUZZ_ROUNDS", 100'000);
  std::printf("PENSTOCK_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  for (const std::string& good : fuzz_seeds()) run(good);
  mutator change(seed, fuzz_seeds());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::uint64_t done = 0;
  for (; done < rounds && std::chrono::steady_clock::now() < end; ++done) run(change.next());
  std::printf("%llu inputs\n", static_cast<unsigned long long>(done));
  return 0;
}
