#include "actors/job_worker/result_room.hpp"

#include "runtime/arena/geometry.hpp"
#include "runtime/base/units.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace penstock::job_worker {
namespace {

using arena::page_bytes;

constexpr int busy_tries = 100;  // a millisecond apart

/// A file beyond RLIMIT_FSIZE would raise SIGXFSZ instead of returning an error.
bool allowed_file_size(std::uint64_t bytes) {
  rlimit bound{};
  return ::getrlimit(RLIMIT_FSIZE, &bound) != 0 || bound.rlim_cur == RLIM_INFINITY || bytes <= bound.rlim_cur;
}

}  // namespace

// ---- result_file ------------------------------------------------------------------------------------------

result<result_file> result_file::make(std::uint64_t bytes) {
  const auto what = [&] {
    return fmt::format("allocating {} for a result outside its slot", bytes_for_people(bytes));
  };
  const std::uint64_t whole = round_up(bytes + arena::job_guard_bytes, page_bytes);
  if (!allowed_file_size(whole))
    return refuse(errc::out_of_memory, "{}: the limit on file sizes (ulimit -f) is smaller", what());
  auto file = create_memory_file("penstock-result", "a result");
  if (!file) return tl::unexpected(std::move(file.error()));
  int status = 0;
  do {
    status =
        // Allocate now: touching a missing page later would raise SIGBUS.
        ::fallocate(file->get(), 0, 0, static_cast<off_t>(whole));
  } while (status != 0 && errno == EINTR);
  if (status != 0) return refuse_os(errc::out_of_memory, errno, what());
  void* const range =
      ::mmap(nullptr, whole + page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return refuse_os(errc::out_of_memory, errno, what());
  mapping owned(static_cast<std::byte*>(range), whole + page_bytes);
  if (::mmap(range, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file->get(), 0) == MAP_FAILED)
    return refuse_os(errc::out_of_memory, errno, what());
  arena::job_slot(owned.bytes().first(whole)).guard(0, bytes);
  return result_file(std::move(*file), std::move(owned), bytes);
}

result_file::result_file(unique_fd file, mapping range, std::uint64_t bytes)
    : file_(std::move(file)),
      range_(std::move(range)),
      own_(range_.bytes().first(range_.bytes().size() - page_bytes), file_.get(), 0),
      bytes_(bytes) {}

std::uint64_t result_file::overrun() const noexcept {
  return arena::job_slot(range_.bytes().first(bytes_ + arena::job_guard_bytes)).overrun(0, bytes_);
}

result<unique_fd> result_file::seal(std::uint64_t bytes) && {
  range_ = mapping();  // unmap: a file that is mapped for writing cannot be sealed
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0)
    return refuse_os(errc::system, errno, "cutting a result");
  // Sealing may fail at first: a child that was just forked may not have replaced its mapping with a private
  // copy yet.
  for (int tries = 1;; ++tries) {
    auto ok = seal_memory_file(file_.get(), penstock::seal::size_and_contents, "a result");
    if (ok) return std::move(file_);
    if (ok.error().os_code != EBUSY || tries == busy_tries) return tl::unexpected(std::move(ok.error()));
    static_cast<void>(::poll(nullptr, 0, 1));
  }
}

// ---- result_room ------------------------------------------------------------------------------------------

std::uint64_t result_room::most() const noexcept {
  return std::max(slot_.room_from(next_), elsewhere_max_);
}

std::span<std::byte> result_room::reserve(std::uint64_t bytes) {
  forget();
  if (bytes == 0) return {};
  if (bytes <= slot_.room_from(next_)) {
    room_ = bytes_ = bytes;
    slot_.guard(next_, bytes);
    return slot_.bytes(next_, bytes);
  }
  if (bytes > elsewhere_max_) {
    refused_ = true;
    throw error({errc::out_of_memory,
                 fmt::format("a result of {} bytes is too large: its slot has room for {}, and [jobs] memory "
                             "allows {} outside the slot",
                             bytes, slot_.room_from(next_), elsewhere_max_),
                 0});
  }
  file_.emplace(value_or_throw(result_file::make(bytes)));
  room_ = bytes_ = bytes;
  return file_->bytes();
}

void result_room::shorten(std::uint64_t bytes) {
  if (bytes > room_) {
    throw error({errc::usage,
                 fmt::format("shorten_result({}): result() reserved only {} bytes", bytes, room_), 0});
  }
  bytes_ = bytes;
}

void result_room::forget() noexcept {
  file_.reset();
  room_ = bytes_ = 0;
  refused_ = false;
}

std::uint64_t result_room::overrun() const noexcept {
  if (file_) return file_->overrun();
  return room_ > 0 ? slot_.overrun(next_, room_) : 0;
}

result<result_room::place> result_room::keep() {
  if (bytes_ == 0) {
    forget();
    return place{};
  }
  if (file_) {
    place there{0, bytes_, {}};
    auto sealed = std::move(*file_).seal(bytes_);
    forget();
    if (!sealed) return tl::unexpected(std::move(sealed.error()));
    there.file = std::move(*sealed);
    return there;
  }
  place here{next_, bytes_, {}};
  next_ = arena::job_next_result(next_, bytes_);
  return here;
}

}  // namespace penstock::job_worker
