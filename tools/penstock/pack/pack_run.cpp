#include "tools/penstock/pack/pack_run.hpp"

#include "runtime/base/signals.hpp"
#include "runtime/dataset/tar/tar_writer.hpp"
#include "tools/penstock/pack/packed_sample.hpp"
#include "tools/penstock/pack/shard_file.hpp"

#include <fmt/format.h>

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
  /// Asks all threads to stop before it joins the first one.
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
  std::vector<std::jthread> threads_;  // last, so that the threads end before the members that they use are destroyed
};

/// A shard that is being written.
class open_shard {
 public:
  static result<open_shard> create(const std::string& folder, std::size_t number, const pack_settings& settings) {
    std::string name = shard_name(number, settings);
    auto file = shard_file::create(folder + "/" + name, settings.frame_size);
    if (!file) return tl::unexpected(std::move(file.error()));
    return open_shard(std::move(name), std::move(*file));
  }

  result<void> add(std::string_view extension, std::string_view contents, const std::string& key,
                   std::uint32_t label) {
    members_.clear();
    append_tar_member(members_, fmt::format("{}.{}", key, extension), contents);
    append_tar_member(members_, key + ".cls", fmt::format("{}", label));
    ++samples_;
    return file_.add(members_);
  }

  result<packed_shard> finish() {
    members_.clear();
    append_tar_end(members_);
    if (auto ok = file_.add(members_); !ok) return tl::unexpected(std::move(ok.error()));
    const auto bytes = file_.finish();
    if (!bytes) return tl::unexpected(bytes.error());
    return packed_shard{name_, samples_, *bytes};
  }

  /// The size of the archive.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return file_.archive_bytes(); }
  shard_keys keys;
  marker_counts markers;

 private:
  open_shard(std::string name, shard_file file) : name_(std::move(name)), file_(std::move(file)) {}

  std::string name_;
  shard_file file_;
  std::string members_;  ///< the members of the newest sample
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
  // Write the state first: a run killed between its first shard and that shard's state would leave a shard that the next run refuses.
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
      auto created = open_shard::create(out, state.shards.size(), state.settings);
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
