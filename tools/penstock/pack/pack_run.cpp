#include "tools/penstock/pack/pack_run.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/dataset/tar/tar_writer.hpp"
#include "tools/penstock/pack/packed_sample.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::pack {
namespace {

/// Hands pictures that several threads have packed to one reader, in the order of their samples. At most `window`
/// pictures wait.
class ordered_pictures {
 public:
  ordered_pictures(const listing& list, const pack_state& state, unsigned threads)
      : list_(list),
        settings_(state.settings),
        folder_(state.folder),
        next_to_pack_(state.next_sample),
        next_to_take_(state.next_sample),
        window_(8 * threads) {
    const all_signals_blocked in_the_threads;
    for (unsigned i = 0; i < threads; ++i)
      threads_.emplace_back([this](const std::stop_token& stopped) { work(stopped); });
  }
  /// Requests all threads to stop before it joins the first.
  ~ordered_pictures() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

  /// The next picture. Call it once for each sample.
  result<packed_picture> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_.contains(next_to_take_); });
    auto node = done_.extract(next_to_take_++);
    changed_.notify_all();
    return std::move(node.mapped());
  }

 private:
  void work(const std::stop_token& stopped) {
    picture_packer packer(folder_, settings_);
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stopped, [this] { return next_to_pack_ < next_to_take_ + window_; })) {
      if (stopped.stop_requested() || next_to_pack_ >= list_.files.size()) return;
      const std::uint64_t sample = next_to_pack_++;
      lock.unlock();
      auto packed = packer.pack(list_.name_of(list_.files[sample]));
      lock.lock();
      done_.emplace(sample, std::move(packed));
      changed_.notify_all();
    }
  }

  const listing& list_;
  const pack_settings settings_;
  const std::string folder_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::uint64_t next_to_pack_;
  std::uint64_t next_to_take_;
  const std::uint64_t window_;
  std::map<std::uint64_t, result<packed_picture>> done_;
  std::vector<std::jthread> threads_;  // last, so that they end before the members that they use
};

/// A shard that is being written, under another name until it is complete.
class open_shard {
 public:
  static result<open_shard> create(const std::string& folder, std::size_t number) {
    open_shard shard;
    shard.folder_ = folder;
    shard.name_ = shard_name(number);
    // Overwrites what a killed run may have left.
    shard.file_.reset(
        ::open(shard.part().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!shard.file_) return shard.failed("creating", errno);
    return shard;
  }

  result<void> add(std::string_view extension, std::string_view contents, const std::string& key,
                   std::uint32_t label) {
    append_tar_member(pending_, fmt::format("{}.{}", key, extension), contents);
    append_tar_member(pending_, key + ".cls", fmt::format("{}", label));
    ++samples_;
    return pending_.size() < flushed_at ? result<void>() : flush();
  }

  /// Writes the shard to disk and gives it its final name.
  result<packed_shard> finish() {
    append_tar_end(pending_);
    if (auto ok = flush(); !ok) return tl::unexpected(std::move(ok.error()));
    if (::fsync(file_.get()) != 0) return failed("writing", errno);
    if (::rename(part().c_str(), path().c_str()) != 0) return failed("naming", errno);
    return packed_shard{name_, samples_, bytes_};
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_ + pending_.size(); }
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
  shard_keys keys;
  marker_counts markers;

 private:
  static constexpr std::size_t flushed_at = std::size_t{1} << 20U;

  [[nodiscard]] std::string path() const { return folder_ + "/" + name_; }
  [[nodiscard]] std::string part() const { return path() + ".part"; }
  [[nodiscard]] tl::unexpected<failure> failed(std::string_view what, int os_code) const {
    return refuse_os(errc::io, os_code, fmt::format("{} the shard '{}'", what, printable(path())));
  }
  result<void> flush() {
    if (const int os_code = write_all(file_.get(), pending_); os_code != 0) return failed("writing", os_code);
    bytes_ += pending_.size();
    pending_.clear();
    return {};
  }

  std::string folder_;
  std::string name_;
  unique_fd file_;
  std::string pending_;
  std::uint64_t bytes_ = 0;
  std::uint64_t samples_ = 0;
};

/// The shard's size with the members of this sample and the end of the archive.
std::uint64_t bytes_with(const open_shard& shard, std::string_view path, const packed_picture& picture) {
  constexpr std::uint64_t archive_end = 1024;
  return shard.bytes() + tar_member_bytes(path, picture.contents.size()) + tar_member_bytes(path, 20) +
         archive_end;
}

}  // namespace

result<void> write_shards(const listing& list, const std::string& out, unsigned threads, pack_state& state,
                          pack_progress& progress) {
  // A run killed between its first shard and that shard's state would leave shards that the next one refuses.
  if (auto ok = write_state(out, state); !ok) return ok;
  ordered_pictures pictures(list, state, threads);
  std::optional<open_shard> shard;
  std::vector<unpacked_sample> failed;
  // Records the shard, with the pictures that have failed since the previous one.
  const auto finish = [&](std::uint64_t next_sample) -> result<void> {
    if (shard) {
      auto done = shard->finish();
      if (!done) return tl::unexpected(std::move(done.error()));
      state.shards.push_back(std::move(*done));
      state.markers.add(shard->markers);
      shard.reset();
    }
    state.failed.insert(state.failed.end(), failed.begin(), failed.end());
    failed.clear();
    state.next_sample = next_sample;
    return write_state(out, state);
  };
  progress.samples = state.next_sample;
  for (std::uint64_t sample = state.next_sample; sample < list.files.size(); ++sample) {
    const listed_file& file = list.files[sample];
    const std::string_view path = list.name_of(file);
    auto picture = pictures.take();
    ++progress.samples;
    if (!picture) {
      failed.push_back({sample, std::string(path), picture.error().message});
      continue;
    }
    if (shard && bytes_with(*shard, path, *picture) > state.settings.shard_size) {
      if (auto ok = finish(sample); !ok) return ok;
    }
    if (!shard) {
      auto created = open_shard::create(out, state.shards.size());
      if (!created) return tl::unexpected(std::move(created.error()));
      shard.emplace(std::move(*created));
    }
    const std::uint64_t before = shard->bytes();
    if (auto ok = shard->add(picture->extension, picture->contents, shard->keys.key_for(path), file.label);
        !ok)
      return ok;
    shard->markers.add(picture->markers);
    progress.bytes += shard->bytes() - before;
  }
  return finish(list.files.size());
}

}  // namespace penstock::pack
