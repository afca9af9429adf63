#include "actors/remote/shared_program.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>

namespace penstock::hosts {

result<void> file_shelf::publish(std::uint64_t number, int file) {
  struct stat facts {};
  unique_fd copy(::fcntl(file, F_DUPFD_CLOEXEC, 3));
  if (!copy || ::fstat(copy.get(), &facts) != 0)
    return refuse_os(errc::system, errno, "publishing a file for loader hosts");
  const std::lock_guard hold(mutex_);
  files_[number] = {std::make_shared<const unique_fd>(std::move(copy)), static_cast<std::uint64_t>(facts.st_size)};
  return {};
}

void file_shelf::withdraw(std::uint64_t number) {
  const std::lock_guard hold(mutex_);
  files_.erase(number);
}

std::map<std::uint64_t, shelved_file> file_shelf::all() const {
  const std::lock_guard hold(mutex_);
  return files_;
}

result<job_marks> job_marks::map(int file, std::uint64_t bytes) {
  mapping memory = map_shared(file, {0, bytes});
  if (!memory || bytes < 2 * sizeof(std::uint64_t)) return refuse_os(errc::system, errno, "mapping the file of job marks");
  return job_marks(std::move(memory));
}

std::uint64_t* job_marks::pair_of(std::uint64_t job) const {
  auto* const all = reinterpret_cast<std::uint64_t*>(memory_.bytes().data());
  return all + 2 * (job % (memory_.bytes().size() / (2 * sizeof(std::uint64_t))));
}

std::int64_t job_marks::of(std::uint64_t job) const {
  std::uint64_t* const pair = pair_of(job);
  if (std::atomic_ref(pair[0]).load() != job) return -1;
  return static_cast<std::int64_t>(std::atomic_ref(pair[1]).load());
}

void job_marks::set(std::uint64_t job, std::int64_t mark) const {
  std::uint64_t* const pair = pair_of(job);
  std::atomic_ref(pair[1]).store(static_cast<std::uint64_t>(mark));
  std::atomic_ref(pair[0]).store(job);
}

void describe(const shared_program& program, welcome& in) {
  in.program = program.kind;
  in.code_bytes = program.code.size();
  in.marks_bytes = program.marks ? program.marks->bytes() : 0;
  in.nonce = program.nonce;
}

}  // namespace penstock::hosts
