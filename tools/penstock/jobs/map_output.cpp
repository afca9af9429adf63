#include "tools/penstock/jobs/map_output.hpp"

#include "runtime/base/output_lock.hpp"
#include "runtime/base/text.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

namespace penstock::cli {

result<map_output> map_output::open(const std::string& path) {
  map_output made;
  if (path == "-") return made;
  made.name_ = fmt::format("'{}'", printable(path));
  made.own_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!made.own_) return refuse_os(errc::io, errno, fmt::format("opening the output {}", made.name_));
  made.fd_ = made.own_.get();
  struct stat facts {};
  made.is_regular_file_ = ::fstat(made.fd_, &facts) == 0 && S_ISREG(facts.st_mode);
  if (made.is_regular_file_) {
    if (auto ok = lock_output(made.fd_, "the output " + made.name_); !ok) return tl::unexpected(std::move(ok.error()));
  }
  return made;
}

result<void> map_output::empty() {
  if (is_regular_file_ && ::ftruncate(fd_, 0) != 0)
    return refuse_os(errc::io, errno, fmt::format("emptying the output {}", name_));
  return {};
}

result<void> check_different(int input, int output, const std::string& journal, const std::string& job_log) {
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  const auto add = [&seen](const struct stat& facts, const std::string& name) -> result<void> {
    if (!S_ISREG(facts.st_mode)) return {};
    const auto [at, is_new] = seen.try_emplace({facts.st_dev, facts.st_ino}, name);
    if (is_new) return {};
    return refuse(errc::usage, "{} and {} are the same file", at->second, name);
  };
  struct stat facts {};
  if (::fstat(input, &facts) == 0) {
    if (auto ok = add(facts, "the input"); !ok) return ok;
  }
  if (::fstat(output, &facts) == 0) {
    if (auto ok = add(facts, "the output"); !ok) return ok;
  }
  if (!journal.empty() && ::stat(journal.c_str(), &facts) == 0) {
    if (auto ok = add(facts, "the journal"); !ok) return ok;
  }
  if (!job_log.empty() && ::stat(job_log.c_str(), &facts) == 0) return add(facts, "the job log");
  return {};
}

}  // namespace penstock::cli
