#include "actors/job_worker/process_settings.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace penstock::job_worker {
namespace {

constexpr int high_number = 200;  // out of the way of programs that close what they think is theirs

std::string whole_environment() {
  std::string block;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    block.append(*entry, std::strlen(*entry) + 1);
  return block;
}

/// One for each text of the block, and the null pointer at the end.
std::vector<char*> pointers_into(std::string& block) {
  std::vector<char*> all;
  for (std::size_t at = 0; at < block.size(); at += std::strlen(block.data() + at) + 1)
    all.push_back(block.data() + at);
  all.push_back(nullptr);
  return all;
}

unique_fd working_folder() {
  unique_fd here(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const int high = ::fcntl(here.get(), F_DUPFD_CLOEXEC, high_number);
  if (high >= 0) here.reset(high);
  return here;
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
  for (int i = 0; i < static_cast<int>(limits_.size()); ++i)
    ::getrlimit(static_cast<__rlimit_resource>(i), &limits_[static_cast<std::size_t>(i)]);
}

process_settings::~process_settings() {
  restore_environment();
  // What was `environ` before may be gone: setenv() frees it.
  environ = nullptr;
  for (const char* entry : saved_pointers_) {
    const char* const equals = entry != nullptr ? std::strchr(entry, '=') : nullptr;
    if (equals != nullptr) ::setenv(std::string(entry, equals).c_str(), equals + 1, 1);
  }
}

bool process_settings::restore() noexcept {
  restore_environment();
  // Setting these says at once what they were: one call is the look and the remedy.
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
  constexpr auto name_of = [](int resource) {
    switch (resource) {
      case RLIMIT_AS: return "the limit on address space";
      case RLIMIT_CORE: return "the limit on core files";
      case RLIMIT_CPU: return "the limit on processor time";
      case RLIMIT_DATA: return "the limit on data";
      case RLIMIT_FSIZE: return "the limit on file sizes";
      case RLIMIT_NOFILE: return "the limit on open files";
      case RLIMIT_NPROC: return "the limit on processes";
      case RLIMIT_STACK: return "the limit on the stack";
      default: return "a resource limit";
    }
  };
  for (int i = 0; i < static_cast<int>(limits_.size()); ++i) {
    const auto resource = static_cast<__rlimit_resource>(i);
    const rlimit& wanted = limits_[static_cast<std::size_t>(i)];
    rlimit now{};
    if (::getrlimit(resource, &now) != 0 || same(now, wanted)) continue;
    if (::setrlimit(resource, &wanted) == 0) continue;
    lost_ = name_of(i);
    return false;
  }
  return true;
}

}  // namespace penstock::job_worker
