#include "tools/penstock/pack/shard_file.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace penstock::pack {

result<shard_file> shard_file::create(std::string path, std::uint64_t frame_size) {
  constexpr int zstd_level = 3;
  shard_file made;
  made.path_ = std::move(path);
  made.frame_size_ = frame_size;
  if (frame_size > 0) {
    auto frames = frame_writer::open(zstd_level);
    if (!frames) return tl::unexpected(std::move(frames.error()));
    made.frames_.emplace(std::move(*frames));
  }
  made.file_.reset(::open(made.part().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!made.file_) return made.failed("creating", errno);
  return made;
}

result<void> shard_file::add(std::string_view bytes) {
  constexpr std::size_t flushed_at = 1 * MiB;
  archive_bytes_ += bytes.size();
  if (!frames_) {
    pending_ += bytes;
  } else {
    if (frame_.size() + bytes.size() > frame_size_) end_frame();
    frame_ += bytes;
    if (frame_.size() >= frame_size_) end_frame();
  }
  return pending_.size() < flushed_at ? result<void>() : flush();
}

void shard_file::end_frame() {
  frames_->append_frame(pending_, frame_);
  frame_.clear();
}

result<std::uint64_t> shard_file::finish() {
  if (frames_) {
    end_frame();
    frames_->append_table(pending_);
  }
  if (auto ok = flush(); !ok) return tl::unexpected(std::move(ok.error()));
  if (::fsync(file_.get()) != 0) return failed("writing", errno);
  if (::rename(part().c_str(), path_.c_str()) != 0) return failed("naming", errno);
  return file_bytes_;
}

tl::unexpected<failure> shard_file::failed(std::string_view what, int os_code) const {
  return refuse_os(errc::io, os_code, fmt::format("{} the shard '{}'", what, printable(path_)));
}

result<void> shard_file::flush() {
  if (const int os_code = write_all(file_.get(), pending_); os_code != 0) return failed("writing", os_code);
  file_bytes_ += pending_.size();
  pending_.clear();
  return {};
}

}  // namespace penstock::pack
