#include "runtime/dataset/synthetic/synthetic.hpp"

#include "runtime/dataset/order/philox.hpp"
#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/dataset/loading.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <list>

using namespace penstock;
using namespace std::chrono_literals;
using testing::bytes;
using testing::load_into;
using testing::load_one;
using testing::sample_memory;

namespace {

dataset_config settings(fill_kind fill, std::uint64_t bytes_per_sample) {
  dataset_config config;
  config.type = dataset_type::synthetic;
  config.samples = 100;
  config.fill = fill;
  config.bytes_per_sample = byte_size{bytes_per_sample};
  return config;
}

synthetic_dataset make(const dataset_config& config) {
  REQUIRE(synthetic_dataset::describe(config));
  return synthetic_dataset(config);
}

/// How a process ended that loads one sample with a fault: the signal's number, 256 + exit code, or 512 if it was stopped. Such processes
/// run no destructors and flush no buffers.
int fate_of(const fault_config& fault, std::uint32_t attempt = 1) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS})
      std::signal(signal, SIG_DFL);  // removes Catch2's handlers
    const ::rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const ::itimerval soon{{}, {0, 50'000}};
    if (fault.kind == fault_kind::hang) ::setitimer(ITIMER_REAL, &soon, nullptr);
    dataset_config config = settings(fill_kind::stamp, 100);
    config.faults = {fault};
    synthetic_dataset dataset(config);
    try {
      (void)load_one(dataset, fault.sample, {.attempt = attempt});
    } catch (const std::runtime_error&) {
      ::_exit(77);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  if (WIFSTOPPED(status)) {
    ::kill(child, SIGCONT);
    ::waitpid(child, &status, 0);
    return 512 + (WIFEXITED(status) ? WEXITSTATUS(status) : 255);
  }
  return WIFSIGNALED(status) ? WTERMSIG(status) : 256 + WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a synthetic dataset describes itself from its config") {
  dataset_config config = settings(fill_kind::memset, 1000);
  auto described = synthetic_dataset::describe(config);
  REQUIRE(described);
  CHECK(described->type == "synthetic");
  CHECK(described->samples == 100);
  CHECK(described->tensors == std::vector<tensor_spec>{{"data", dtype::uint8, {1000}, tensor_role::data}});
  config.bytes_per_sample.reset();
  config.shape = {3, 4};
  config.dtype = dtype::float32;
  described = synthetic_dataset::describe(config);
  REQUIRE(described);
  CHECK(described->tensors == std::vector<tensor_spec>{{"data", dtype::float32, {3, 4}, tensor_role::data}});
}

TEST_CASE("a synthetic dataset without a size, or with two, is refused") {
  dataset_config config = settings(fill_kind::memset, 1000);
  config.shape = {3};
  CHECK(synthetic_dataset::describe(config).error().message ==
        "a synthetic dataset needs either [dataset] bytes_per_sample or shape (with dtype), not both");
  config.shape.clear();
  config.bytes_per_sample.reset();
  CHECK(synthetic_dataset::describe(config).error().message ==
        "a synthetic dataset needs either [dataset] bytes_per_sample or shape (with dtype)");
  config.bytes_per_sample = byte_size{1ULL << 32U};
  CHECK_FALSE(synthetic_dataset::describe(config));
}

TEST_CASE("faults, work and waiting do not change the fingerprint") {
  dataset_config config = settings(fill_kind::random, 1000);
  const std::string before = synthetic_dataset::describe(config)->fingerprint;
  config.faults = {{}};
  config.work = 1ms;
  config.wait = 1ms;
  CHECK(synthetic_dataset::describe(config)->fingerprint == before);
  config.fill = fill_kind::memset;
  CHECK(synthetic_dataset::describe(config)->fingerprint != before);
}

TEST_CASE("every fill writes the same bytes for a sample, whatever was in the slot or was loaded before") {
  for (const fill_kind fill : {fill_kind::stamp, fill_kind::memset, fill_kind::memcpy, fill_kind::random}) {
    for (const std::uint64_t size : {1ULL, 63ULL, 64ULL, 4096ULL, 4100ULL, 20000ULL}) {
      const dataset_config config = settings(fill, size);
      synthetic_dataset one = make(config);
      synthetic_dataset other = make(config);
      one.setup({0, 1, 5});
      other.setup({3, 2, 5});
      sample_memory reused(one.describe());
      std::list<sample_memory> slots;  // every sample gets memory at its own address
      for (const std::uint64_t index : {7ULL, 99ULL, 0ULL, 7ULL}) {
        load_into(one, index, reused, {.seed = 5, .epoch = 2});
        sample_memory& fresh = slots.emplace_back(other.describe());
        load_into(other, index, fresh, {.seed = 5, .epoch = 2});
        const bool equal = reused.tensor(0) == fresh.tensor(0);
        REQUIRE(equal);
        REQUIRE(reused.guards_intact());
      }
    }
  }
}

TEST_CASE("samples differ from each other under every fill") {
  for (const fill_kind fill : {fill_kind::stamp, fill_kind::memset, fill_kind::memcpy, fill_kind::random}) {
    synthetic_dataset dataset = make(settings(fill, 5000));
    dataset.setup({});
    const bool differ = load_one(dataset, 1) != load_one(dataset, 2);
    CHECK(differ);
  }
}

TEST_CASE("a stamp is the index at the beginning of every 4 KiB, and zeros elsewhere") {
  synthetic_dataset dataset = make(settings(fill_kind::stamp, 10000));
  const bytes sample = load_one(dataset, 0x1234);
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const std::size_t in_page = i % 4096;
    const unsigned expected = in_page >= 64 ? 0 : in_page % 8 == 0 ? 0x34 : in_page % 8 == 1 ? 0x12 : 0;
    REQUIRE(std::to_integer<unsigned>(sample[i]) == expected);
  }
}

TEST_CASE("random bytes are Philox keyed by seed, epoch and index, and memset bytes are the index") {
  synthetic_dataset dataset = make(settings(fill_kind::random, 40));
  dataset.setup({0, 1, 77});
  const bytes sample = load_one(dataset, 3, {.epoch = 4});
  const philox_words words = philox_stream(random_domain::fill, 77, 4, 3).block_at(0);
  CHECK(std::memcmp(sample.data(), words.data(), sizeof words) == 0);
  CHECK(sample != load_one(dataset, 3, {.epoch = 5}));
  synthetic_dataset same = make(settings(fill_kind::memset, 40));
  CHECK(load_one(same, 300) == bytes(40, std::byte{300 - 256}));
}

TEST_CASE("a synthetic sample is named by its number") {
  CHECK(make(settings(fill_kind::stamp, 1)).name_of(17) == "sample 17");
}

TEST_CASE("work uses processor time, and waiting only lets time pass") {
  struct cost {
    double processor;
    double wall;
  };
  const auto cost_of = [](const dataset_config& config) {
    synthetic_dataset dataset(config);
    const std::clock_t processor = std::clock();
    const auto wall = std::chrono::steady_clock::now();
    (void)load_one(dataset, 0);
    return cost{static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count()};
  };
  dataset_config config = settings(fill_kind::memset, 1);
  config.work = 10ms;
  CHECK(cost_of(config).processor >= 0.0095);
  config.work = 0ms;
  config.wait = 10ms;
  const cost waiting = cost_of(config);
  CHECK(waiting.wall >= 0.01);
  CHECK(waiting.processor < 0.0095);
}

TEST_CASE("each fault ends or delays a process in its own way") {
  const auto fault = [](fault_kind kind) { return fault_config{17, kind, 1, 0.001}; };
  CHECK(fate_of(fault(fault_kind::abort)) == SIGABRT);
  CHECK(fate_of(fault(fault_kind::exit)) == 256 + 3);
  CHECK(fate_of(fault(fault_kind::kill)) == SIGKILL);
  CHECK(fate_of(fault(fault_kind::hang)) == SIGALRM);
  CHECK(fate_of(fault(fault_kind::raise)) == 256 + 77);
  CHECK(fate_of(fault(fault_kind::leak)) == 256);
  CHECK(fate_of(fault(fault_kind::stop)) == 512);
  CHECK(fate_of(fault(fault_kind::slow)) == 256);
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(fate_of(fault(fault_kind::segv)) == SIGSEGV);
#endif
}

TEST_CASE("a fault fires while attempt <= times, and always with times = 0") {
  fault_config fault{17, fault_kind::exit, 2, 0};
  CHECK(fate_of(fault, 1) == 256 + 3);
  CHECK(fate_of(fault, 2) == 256 + 3);
  CHECK(fate_of(fault, 3) == 256);
  fault.times = 0;
  CHECK(fate_of(fault, 1000) == 256 + 3);
}

TEST_CASE("a leak keeps 64 MiB of private memory at every load") {
  dataset_config config = settings(fill_kind::memset, 1);
  config.faults = {{0, fault_kind::leak, 0, 0}};
  synthetic_dataset dataset(config);
  const auto resident_pages = [] {
    long total = 0;
    long resident = 0;
    std::FILE* const statm = std::fopen("/proc/self/statm", "r");
    REQUIRE(std::fscanf(statm, "%ld %ld", &total, &resident) == 2);
    std::fclose(statm);
    return resident;
  };
  const long before = resident_pages();
  (void)load_one(dataset, 0);
  CHECK(resident_pages() - before >= 64 * 256 - 64);
}
