#include "tools/bench/hand_over.hpp"

#include "runtime/base/mapping.hpp"
#include "runtime/base/streaming_copy.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>

namespace penstock::bench {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t slot_stride = 4U << 20U;
constexpr std::size_t head_bytes = 4096;

double seconds_since(clock::time_point begun) {
  return std::chrono::duration<double>(clock::now() - begun).count();
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  }
  return cores;
}

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

/// The beginning of a slot. Does not use std::atomic::wait, which waits within one process.
struct turn {
  std::atomic<std::uint32_t> full{0};

  void wait_until(std::uint32_t value) {
    while (full.load(std::memory_order_acquire) != value)
      ::syscall(SYS_futex, &full, FUTEX_WAIT, 1 - value, nullptr, nullptr, 0);
  }
  void set(std::uint32_t value) {
    full.store(value, std::memory_order_release);
    ::syscall(SYS_futex, &full, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
};

}  // namespace

copied_arguments make_arguments() {
  copied_arguments made;
  for (unsigned i = 0; i < 256; ++i)
    made.push_back(std::make_shared<std::vector<std::byte>>(copied_bytes, static_cast<std::byte>(i)));
  return made;
}

bare_copies::bare_copies(std::uint32_t threads, std::uint32_t buffers_each)
    : buffers_(threads, std::vector(buffers_each, std::vector(2 * copied_bytes, std::byte{1}))) {}

double bare_copies::jobs_per_second(const copied_arguments& arguments, std::uint64_t jobs) {
  const auto begun = clock::now();
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < buffers_.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < jobs / buffers_.size(); ++i) {
        std::byte* const buffer = buffers_[t][i % buffers_[t].size()].data();
        const std::uint64_t job = i * buffers_.size() + t;
        std::memcpy(buffer, arguments[job % arguments.size()]->data(), copied_bytes);
        std::memcpy(buffer + copied_bytes, buffer, copied_bytes);
        asm volatile("" : : "r"(buffer) : "memory");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(jobs) / seconds_since(begun);
}

const char* name_of(placement where) noexcept {
  switch (where) {
    case placement::free: return "free";
    case placement::same_core: return "same core";
    case placement::other_core: return "other core";
  }
  return "unknown";
}

double handed_over_per_second(const copied_arguments& arguments, const hand_over_settings& s) {
  const std::size_t bytes = s.pairs * s.slots_each * slot_stride;
  const unique_fd file = value_or_throw(create_memory_file("penstock-bench", "the slots"));
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) std::abort();
  const mapping memory = map_shared(file.get(), {0, bytes});
  if (!memory) std::abort();
  const auto slot = [&](std::uint32_t pair, std::uint64_t job) {
    return memory.bytes().subspan((pair * s.slots_each + job % s.slots_each) * slot_stride, slot_stride);
  };
  const auto turn_of = [](std::span<std::byte> memory_of_slot) -> turn& {
    return *reinterpret_cast<turn*>(memory_of_slot.data());
  };
  for (std::uint64_t i = 0; i < s.pairs * s.slots_each; ++i)
    new (memory.bytes().data() + i * slot_stride) turn;

  const std::vector<int> cores = usable_cores();
  const std::uint64_t jobs = s.jobs / s.pairs;
  std::vector<pid_t> children;
  const pid_t parent = ::getpid();
  for (std::uint32_t pair = 0; pair < s.pairs; ++pair) {
    const pid_t child = ::fork();
    if (child < 0) std::abort();
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the child waits for its parent without a deadline
    if (::getppid() != parent) ::_exit(1);
    if (s.where != placement::free)
      stay_on(cores[(pair + (s.where == placement::other_core ? 1 : 0)) % cores.size()]);
    for (std::uint64_t i = 0; i < jobs; ++i) {
      const auto here = slot(pair, i);
      turn_of(here).wait_until(1);
      std::memcpy(here.data() + head_bytes + copied_bytes, here.data() + head_bytes, copied_bytes);
      asm volatile("" : : "r"(here.data()) : "memory");
      turn_of(here).set(0);
    }
    ::_exit(0);
  }

  const auto pass_on = [&](std::uint32_t pair, std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t i = from; i < to; ++i) {
      const auto here = slot(pair, i);
      const auto& argument = *arguments[(i * s.pairs + pair) % arguments.size()];
      turn_of(here).wait_until(0);
      if (s.streaming) {
        streaming_copy(here.subspan(head_bytes), argument);
      } else {
        std::memcpy(here.data() + head_bytes, argument.data(), argument.size());
      }
      turn_of(here).set(1);
    }
  };
  const std::uint64_t warm_up = jobs / 10;  // the warm-up touches every page in both processes
  clock::time_point begun;
  for (const auto& [from, to] : {std::pair(std::uint64_t{0}, warm_up), std::pair(warm_up, jobs)}) {
    begun = clock::now();
    std::vector<std::thread> threads;
    for (std::uint32_t pair = 0; pair < s.pairs; ++pair) {
      threads.emplace_back([&, pair, from = from, to = to] {
        if (s.where != placement::free) stay_on(cores[pair % cores.size()]);
        pass_on(pair, from, to);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return static_cast<double>((jobs - warm_up) * s.pairs) / seconds_since(begun);
}

double nanoseconds_between_cores() {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) return 0;
  constexpr std::uint32_t rounds = 20'000;
  alignas(64) std::atomic<std::uint32_t> ball{0};
  // Each round is two moves. Yields during a long wait: the other thread may have to run on this core.
  const auto play = [&](int core, std::uint32_t mine) {
    stay_on(core);
    for (std::uint32_t i = 0; i < rounds; ++i) {
      for (std::uint32_t tries = 0; ball.load(std::memory_order_acquire) != 2 * i + mine; ++tries) {
        if (tries % 10'000 == 9'999) std::this_thread::yield();
      }
      ball.store(2 * i + mine + 1, std::memory_order_release);
    }
  };
  const auto begun = clock::now();
  std::thread first(play, cores[0], 0);
  std::thread second(play, cores[1], 1);
  first.join();
  second.join();
  return seconds_since(begun) * 1e9 / rounds / 2;
}

}  // namespace penstock::bench
