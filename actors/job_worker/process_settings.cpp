#include "actors/job_worker/process_settings.hpp"

#include "actors/child/high_descriptor.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

extern char** environ;  // NOLINT: no POSIX header declares it

namespace penstock::job_worker {
namespace {

std::string whole_environment() {
  std::string block;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    block.append(*entry, std::strlen(*entry) + 1);
  return block;
}

/// A pointer to each string in the block, then a null pointer.
std::vector<char*> pointers_into(std::string& block) {
  std::vector<char*> all;
  for (std::size_t at = 0; at < block.size(); at += std::strlen(block.data() + at) + 1)
    all.push_back(block.data() + at);
  all.push_back(nullptr);
  return all;
}

unique_fd working_folder() {
  unique_fd here(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  unique_fd high = child::high_duplicate(here.get());
  return high ? std::move(high) : std::move(here);
}

/// Every limit that has an effect on Linux.
struct named_limit {
  __rlimit_resource number;
  const char* name;
};
constexpr std::array<named_limit, process_settings::limits> resources{
    {{RLIMIT_CPU, "the limit on processor time"},
     {RLIMIT_FSIZE, "the limit on file sizes"},
     {RLIMIT_DATA, "the limit on data"},
     {RLIMIT_STACK, "the limit on the stack"},
     {RLIMIT_CORE, "the limit on core files"},
     {RLIMIT_NPROC, "the limit on processes"},
     {RLIMIT_NOFILE, "the limit on open files"},
     {RLIMIT_MEMLOCK, "the limit on locked memory"},
     {RLIMIT_AS, "the limit on address space"},
     {RLIMIT_SIGPENDING, "the limit on pending signals"},
     {RLIMIT_MSGQUEUE, "the limit on message queues"},
     {RLIMIT_NICE, "the limit on priorities"},
     {RLIMIT_RTPRIO, "the limit on real-time priorities"},
     {RLIMIT_RTTIME, "the limit on real-time processor time"}}};

/// Calls getrlimit directly: the C library calls prlimit64, which takes the kernel twice as long.
bool limit_now(const named_limit& which, rlimit& to) noexcept {
#if defined(SYS_getrlimit) && defined(__LP64__)
  return ::syscall(SYS_getrlimit, which.number, &to) == 0;
#else
  return ::getrlimit(which.number, &to) == 0;
#endif
}

bool same(const rlimit& a, const rlimit& b) {
  return a.rlim_cur == b.rlim_cur && a.rlim_max == b.rlim_max;
}

}  // namespace

process_settings::process_settings()
    : block_(whole_environment()),
      saved_block_(block_),
      pointers_(pointers_into(block_)),
      saved_pointers_(pointers_),
      folder_(working_folder()) {
  environ = pointers_.data();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &signals_);
  umask_ = ::umask(0);
  ::umask(umask_);
  for (std::size_t i = 0; i < limits_.size(); ++i) limit_now(resources[i], limits_[i]);
}

process_settings::~process_settings() {
  restore_environment();
  // `environ` may already point to freed memory: setenv() frees it.
  environ = nullptr;
  for (const char* entry : saved_pointers_) {
    const char* const equals = entry != nullptr ? std::strchr(entry, '=') : nullptr;
    if (equals != nullptr) ::setenv(std::string(entry, equals).c_str(), equals + 1, 1);
  }
}

bool process_settings::restore() noexcept {
  restore_environment();
  // Setting these also returns the old value: one call both checks and restores.
  ::pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  ::umask(umask_);
  if (folder_ && ::fchdir(folder_.get()) != 0) {
    lost_ = "the working directory";
    return false;
  }
  return restore_limits();
}

void process_settings::restore_environment() noexcept {
  if (environ == pointers_.data() && pointers_ == saved_pointers_ && block_ == saved_block_) return;
  std::memcpy(block_.data(), saved_block_.data(), block_.size());
  std::memcpy(pointers_.data(), saved_pointers_.data(), pointers_.size() * sizeof(char*));
  environ = pointers_.data();
}

bool process_settings::restore_limits() noexcept {
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    rlimit now{};
    if (!limit_now(resources[i], now) || same(now, limits_[i])) continue;
    if (::setrlimit(resources[i].number, &limits_[i]) == 0) continue;
    lost_ = resources[i].name;
    return false;
  }
  return true;
}

}  // namespace penstock::job_worker
