#include "tools/penstock/jobs/result_files.hpp"

#include "runtime/base/output_lock.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace penstock::cli {

result<std::unique_ptr<result_files>> result_files::open(const std::string& folder) {
  std::error_code trouble;
  std::filesystem::create_directories(folder, trouble);
  const std::filesystem::path whole =
      trouble ? std::filesystem::path() : std::filesystem::absolute(folder, trouble);
  if (trouble)
    return refuse_os(errc::io, trouble.value(),
                     fmt::format("making the folder '{}' of --results", printable(folder)));
  unique_fd lock(::open(whole.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock)
    return refuse_os(errc::io, errno, fmt::format("opening the folder '{}' of --results", printable(folder)));
  if (auto ok = lock_output(lock.get(), fmt::format("its results to '{}'", printable(folder))); !ok)
    return tl::unexpected(std::move(ok.error()));
  if (::access(whole.c_str(), W_OK | X_OK) != 0)
    return refuse_os(errc::io, errno,
                     fmt::format("writing to the folder '{}' of --results", printable(folder)));
  return std::unique_ptr<result_files>(new result_files(whole.string(), std::move(lock)));
}

std::string result_files::path_of(std::uint64_t index) const {
  return fmt::format("{}/{}", folder_, index);
}

result<void> result_files::write(std::uint64_t index, std::span<const std::byte> bytes) const {
  const std::string path = path_of(index) + ".result";
  const std::string unfinished = path + ".unfinished";
  unique_fd file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  int why = file ? write_all(file.get(), bytes) : errno;
  if (why == 0 && ::rename(unfinished.c_str(), path.c_str()) != 0) why = errno;
  if (why == 0) return {};
  ::unlink(unfinished.c_str());
  return refuse_os(errc::io, why, fmt::format("writing the result '{}'", printable(path)));
}

}  // namespace penstock::cli
