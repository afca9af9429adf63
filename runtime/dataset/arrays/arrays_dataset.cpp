#include "runtime/dataset/arrays/arrays_dataset.hpp"

#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

namespace penstock {
namespace {

[[noreturn]] void throw_os(int os_code, const std::string& what) {
  failure why = os_failure(errc::io, os_code, what);
  if (is_transient(os_code)) throw transient_error(why.message);
  throw error(std::move(why));
}

}  // namespace

arrays_dataset::arrays_dataset(array_index index, std::string path)
    : index_(std::move(index)), path_(std::move(path)), files_(index_.arrays().size()) {}

int arrays_dataset::open(std::size_t array) {
  if (files_[array]) return files_[array].get();
  const indexed_array& facts = index_.arrays()[array];
  const std::string path = facts.file.empty() ? path_ : path_ + "/" + std::string(facts.file);
  unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const std::string shown = fmt::format("the file of '{}'", facts.tensor);
  if (!file) throw_os(errno, shown + " cannot be opened");
  struct ::stat now {};
  if (::fstat(file.get(), &now) != 0) throw_os(errno, shown + " cannot be examined");
  if (!S_ISREG(now.st_mode))
    throw error({errc::io, fmt::format("{} is {}, not a file", shown, kind_of_file(now.st_mode)), 0});
  if (static_cast<std::uint64_t>(now.st_size) != facts.file_bytes) {
    throw error(
        {errc::io,
         fmt::format("{} has {} bytes: it had {} when it was listed", shown, now.st_size, facts.file_bytes),
         0});
  }
  files_[array] = std::move(file);
  return files_[array].get();
}

void arrays_dataset::read(std::size_t array, std::uint64_t at, std::span<std::byte> into) {
  const int fd = open(array);
  while (!into.empty()) {
    const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(at));
    if (got > 0) {
      into = into.subspan(static_cast<std::size_t>(got));
      at += static_cast<std::uint64_t>(got);
    } else if (got == 0) {
      throw error(
          {errc::io, fmt::format("the file of '{}' ends at byte {}", index_.arrays()[array].tensor, at), 0});
    } else if (errno != EINTR) {
      const int os_code = errno;
      files_[array].reset();  // after ESTALE a new descriptor is needed
      throw_os(os_code, fmt::format("the file of '{}' cannot be read", index_.arrays()[array].tensor));
    }
  }
}

void arrays_dataset::load(const sample_request& request, const sample_slot& slot) {
  const stage_range range("read");
  const timed_read timed;
  for (std::size_t i = 0; i < index_.arrays().size(); ++i) {
    const indexed_array& array = index_.arrays()[i];
    const auto into = slot.bytes(i);
    if (array.in_index)
      std::ranges::copy(index_.row(i, request.index), into.begin());
    else
      read(i, array.data_at + request.index * into.size(), into);
  }
}

std::string arrays_dataset::name_of(std::uint64_t index) const {
  const indexed_array& first = index_.arrays().front();
  const std::string file =
      first.file.empty() ? std::filesystem::path(path_).filename().string() : std::string(first.file);
  return fmt::format("{}[{}]", printable(file), index);
}

}  // namespace penstock
