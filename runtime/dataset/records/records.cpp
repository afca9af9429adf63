#include "runtime/dataset/records/records.hpp"

#include "runtime/base/dataset_type.hpp"
#include "runtime/base/read_at.hpp"
#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace penstock {
namespace {

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
  if (!kept.fd) throw_failed(os_failure(errc::io, errno, "cannot be opened"));
  kept.file = file;
  struct ::stat facts {};
  if (::fstat(kept.fd.get(), &facts) != 0)
    throw_failed(os_failure(errc::io, errno, "cannot be examined"));
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
  const std::uint64_t at = index_.data_at(where.file) + where.record * record_bytes_;
  const read_part got = read_at(fd, at, out);
  if (got.error != 0) {
    kept_[where.file % kept_.size()].fd.reset();  // after ESTALE a new descriptor is needed
    throw_failed(os_failure(errc::io, got.error, "cannot be read"));
  }
  if (got.bytes < out.size()) {
    throw error({errc::io,
                 fmt::format("its file ends at byte {}, but was {} bytes long when it was listed",
                             at + got.bytes, index_.size_of_file(where.file)),
                 0});
  }
}

std::string record_dataset::name_of(std::uint64_t index) const {
  const place where = place_of(index);
  return fmt::format("{}[{}]", printable(index_.name(where.file)), where.record);
}

}  // namespace penstock
