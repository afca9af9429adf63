// The faults that the synthetic dataset injects. They imitate broken decoders and storage as closely as possible.
#include "runtime/base/units.hpp"
#include "runtime/dataset/synthetic/synthetic.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

namespace penstock {
namespace {

constexpr std::size_t leak_bytes = 64 * MiB;

void write_to_protected_memory() {
  void* const page = ::mmap(nullptr, 4 * KiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(page) = 1;
}

void leak() {
  // Uses mmap instead of new, because the optimiser may remove a call to new whose result is unused.
  void* const kept = ::mmap(nullptr, leak_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (kept == MAP_FAILED) throw std::bad_alloc();
  std::memset(kept, 1, leak_bytes);
}

}  // namespace

void inject(const fault_config& fault) {
  switch (fault.kind) {
    case fault_kind::segv: return write_to_protected_memory();
    case fault_kind::abort: std::abort();
    case fault_kind::exit: ::_exit(3);
    case fault_kind::kill: ::kill(::getpid(), SIGKILL); return;
    case fault_kind::hang:
      while (true) ::pause();
    case fault_kind::raise: throw std::runtime_error("the exception that [dataset] faults asked for");
    case fault_kind::leak: return leak();
    case fault_kind::stop: ::kill(::getpid(), SIGSTOP); return;
    case fault_kind::slow: std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds)); return;
  }
}

}  // namespace penstock
