#include "runtime/dataset/records/records.hpp"

#include "runtime/base/dataset_type.hpp"
#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace penstock {
namespace {

[[noreturn]] void throw_os(int os_code, std::string_view what) {
  failure why = os_failure(errc::io, os_code, what);
  if (is_transient(os_code)) throw transient_error(why.message);
  throw error(std::move(why));
}

tensor_spec spec_of(const index_view& index) {
  return {"data", index.element(), index.shape(), tensor_role::data};
}

}  // namespace

record_dataset::record_dataset(index_view index, std::string path)
    : index_(std::move(index)), path_(std::move(path)) {
  struct ::stat facts {};
  is_folder_ = ::stat(path_.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
  record_bytes_ = bytes_of(spec_of(index_));
  ends_.reserve(index_.files());
  std::uint64_t end = 0;
  for (std::uint64_t i = 0; i < index_.files(); ++i) {
    end += (index_.size_of_file(i) - index_.data_at(i)) / record_bytes_;
    ends_.push_back(end);
  }
}

dataset_description record_dataset::describe(const index_view& index) {
  return {std::string(penstock::name_of(index.type())),
          index.samples(),
          {spec_of(index)},
          std::string(index.fingerprint())};
}

dataset_description record_dataset::describe() {
  return describe(index_);
}

record_dataset::place record_dataset::place_of(std::uint64_t index) const {
  const auto file = static_cast<std::uint64_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  return {file, index - (file == 0 ? 0 : ends_[file - 1])};
}

int record_dataset::open(std::uint64_t file) {
  kept_file& kept = kept_[file % kept_.size()];
  if (kept.fd && kept.file == file) return kept.fd.get();
  const std::string path = is_folder_ ? path_ + "/" + std::string(index_.name(file)) : path_;
  kept.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!kept.fd) throw_os(errno, "cannot be opened");
  kept.file = file;
  struct ::stat facts {};
  if (::fstat(kept.fd.get(), &facts) != 0) throw_os(errno, "cannot be examined");
  if (S_ISREG(facts.st_mode)) return kept.fd.get();
  kept.fd.reset();
  throw error({errc::io, fmt::format("is {}, not a file", kind_of_file(facts.st_mode)), 0});
}

void record_dataset::load(const sample_request& request, const sample_slot& slot) {
  const stage_range range("read");
  const timed_read timed;
  const place where = place_of(request.index);
  const int fd = open(where.file);
  const auto out = slot.bytes(0);
  std::uint64_t at = index_.data_at(where.file) + where.record * record_bytes_;
  std::size_t have = 0;
  while (have < out.size()) {
    const ssize_t got = ::pread(fd, out.data() + have, out.size() - have, static_cast<off_t>(at));
    if (got > 0) {
      have += static_cast<std::size_t>(got);
      at += static_cast<std::uint64_t>(got);
    } else if (got == 0) {
      throw error({errc::io,
                   fmt::format("its file ends at byte {}: it was {} bytes long when it was listed", at,
                               index_.size_of_file(where.file)),
                   0});
    } else if (errno != EINTR) {
      const int os_code = errno;
      kept_[where.file % kept_.size()].fd.reset();  // after ESTALE a new descriptor is needed
      throw_os(os_code, "cannot be read");
    }
  }
}

std::string record_dataset::name_of(std::uint64_t index) const {
  const place where = place_of(index);
  return fmt::format("{}[{}]", printable(index_.name(where.file)), where.record);
}

}  // namespace penstock
