#include "runtime/dataset/tar/index_cache.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

namespace penstock {
namespace {

using clock = std::chrono::steady_clock;
constexpr auto told_every = std::chrono::milliseconds(100);
constexpr auto lock_polled_every = std::chrono::milliseconds(50);
/// How long to wait for a process that builds the same index. After that, the index is built here, too.
constexpr auto lock_patience = std::chrono::minutes(10);

// ---- where an index may be

struct place {
  std::string folder;
  std::string file;
};

std::string cache_folder(const std::string& given) {
  if (!given.empty()) return given;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/penstock";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/penstock" : std::string();
}

/// Names include a hash, so that several shard lists in one folder and several folders in one cache each have their own index.
std::vector<place> places_of(const shard_list& shards, const std::string& cache) {
  const auto name_with = [&](const std::string& folder) {
    fingerprint_hash hash("tar index");
    hash.add_text(folder);
    for (const std::string& name : shards.names) hash.add_text(name);
    return fmt::format(".penstock-{}.index", hash.hex().substr(0, 16));
  };
  const std::string beside = shards.folder.empty() ? "/" : shards.folder;
  std::vector<place> all;
  if (!shards.store) all.push_back({beside, beside + "/" + name_with("")});
  if (const std::string folder = cache_folder(cache); !folder.empty()) {
    std::error_code ignored;
    const std::string absolute =
        shards.store ? shards.folder : std::filesystem::weakly_canonical(beside, ignored).string();
    all.push_back({folder, folder + "/" + name_with(absolute)});
  }
  return all;
}

// ---- an existing index

struct shard_version {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::string_view tag;
};

result<shard_version> version_of(const shard_list& shards, std::size_t i) {
  if (shards.store) return shard_version{shards.facts[i].bytes, 0, shards.facts[i].tag};
  struct ::stat facts {};
  const std::string path = shards.path(i);
  if (::stat(path.c_str(), &facts) != 0)
    return refuse_os(errc::io, errno, fmt::format("the shard '{}' cannot be examined", printable(path)));
  return shard_version{static_cast<std::uint64_t>(facts.st_size), modified_ns_of(facts), {}};
}

result<void> fits(const tar_index& index, const shard_list& shards) {
  if (!index.checksum_holds()) return refuse(errc::dataset, "is damaged");
  if (index.shards() != shards.names.size())
    return refuse(errc::dataset, "covers {} shards, not {}", index.shards(), shards.names.size());
  for (std::uint64_t i = 0; i < index.shards(); ++i) {
    const indexed_shard shard = index.shard(i);
    if (shard.name != shards.names[i])
      return refuse(errc::dataset, "names '{}' instead of '{}'", printable(shard.name),
                    printable(shards.names[i]));
    const auto now = version_of(shards, i);
    if (!now) return tl::unexpected(now.error());
    if (shard.file_bytes != now->bytes)
      return refuse(errc::dataset, "is older than '{}', which had {} bytes and has {} now",
                    printable(shard.name), shard.file_bytes, now->bytes);
    if (shard.modified_ns != now->modified_ns || shard.tag != now->tag)
      return refuse(errc::dataset, "describes '{}' as it was before its latest modification",
                    printable(shard.name));
  }
  return {};
}

/// The index in this place; empty if there is no file. Refuses (errc::dataset) an index that cannot be opened or does
/// not fit, without naming it, and (errc::io) a shard that cannot be examined.
result<std::optional<found_index>> open_index(const place& where, const shard_list& shards) {
  unique_fd file(::open(where.file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    return refuse_os(errc::dataset, errno, "cannot be opened");
  }
  auto index = tar_index::map(file.get());
  if (!index) return refuse(errc::dataset, "cannot be used ({})", index.error().message);
  if (auto ok = fits(*index, shards); !ok) return tl::unexpected(std::move(ok.error()));
  return found_index{std::move(file), std::move(*index), where.file, false, {}};
}

// ---- building one

unsigned cores() noexcept {
  ::cpu_set_t usable;
  return ::sched_getaffinity(0, sizeof usable, &usable) == 0 ? static_cast<unsigned>(CPU_COUNT(&usable)) : 1U;
}

/// Reading scattered headers waits for the storage more than it computes, so use more threads than cores.
unsigned threads_wanted() noexcept {
  constexpr unsigned threads_max = 32;
  return std::clamp(2U * cores(), 4U, threads_max);
}

/// If there are fewer shards than threads, large shards are read in parts.
unsigned parts_of(std::size_t shards, const std::string& path) noexcept {
  const std::uint64_t part_min = is_zstd_name(path) ? 8 * MiB : 64 * MiB;  // smaller parts, because decompressing takes longer
  struct ::stat facts {};
  if (shards >= threads_wanted() || ::stat(path.c_str(), &facts) != 0) return 1;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(static_cast<std::uint64_t>(facts.st_size) / part_min, 1, threads_wanted() / shards));
}

unsigned threads_for(std::size_t shards) noexcept {
  return static_cast<unsigned>(std::min<std::size_t>(threads_wanted(), shards));
}

class parallel_reading {
 public:
  explicit parallel_reading(const shard_list& shards) : shards_(shards), results_(shards.names.size()) {}

  result<std::vector<shard_index>> run(const std::function<void(const index_progress&)>& told) {
    index_progress progress{0, bytes_of_all(), false};
    {
      std::vector<std::jthread> threads;
      running_ = threads_for(results_.size());
      {
        const all_signals_blocked in_the_new_threads;
        for (unsigned i = running_; i > 0; --i) threads.emplace_back([this] { work(); });
      }
      std::unique_lock lock(mutex_);
      while (!ended_.wait_for(lock, told_every, [this] { return running_ == 0; })) {
        progress.bytes = std::min(passed_.load(), progress.all);
        if (told) told(progress);
      }
    }
    if (told) told({progress.all, progress.all, false});
    return collect();
  }

 private:
  [[nodiscard]] std::uint64_t bytes_of_all() const {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < shards_.names.size(); ++i)
      if (const auto version = version_of(shards_, i)) all += version->bytes;
    return all;
  }

  void work() {
    for (std::size_t i = next_++; i < results_.size(); i = next_++) {
      auto shard = read(i);
      if (!shard) ++refused_;
      results_[i].emplace(std::move(shard));
      if (refused_ > 0) break;  // earlier shards have been read or are being read by other threads
    }
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) ended_.notify_all();
  }

  result<shard_index> read(std::size_t i) {
    const std::string& name = shards_.names[i];
    const std::string path = shards_.path(i);
    if (!shards_.store) return read_shard(path, name, parts_of(shards_.names.size(), path), passed_);
    return read_shard(shards_.store->object(path, shards_.facts[i]), shards_.facts[i].tag, name, passed_);
  }

  result<std::vector<shard_index>> collect() {
    std::vector<shard_index> all;
    for (auto& one : results_) {
      if (one && !*one) return tl::unexpected(std::move(one->error()));
      if (one) all.push_back(std::move(**one));
    }
    return all;
  }

  const shard_list& shards_;
  std::vector<std::optional<result<shard_index>>> results_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> refused_{0};
  std::atomic<std::uint64_t> passed_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  unsigned running_ = 0;
};

/// An exclusive lock on a folder. Some network file systems have no locks.
/// Several processes may then build the same index, and the last rename wins.
class folder_lock {
 public:
  explicit folder_lock(const std::string& folder)
      : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

  /// Returns false if another process has the lock.
  bool try_take() {
    if (held_ || !folder_) return true;
    held_ = ::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0;
    return held_ || errno != EWOULDBLOCK;
  }
  [[nodiscard]] bool held() const noexcept { return held_; }

 private:
  unique_fd folder_;
  bool held_ = false;
};

/// Removes files of builders that were killed. Call it only while holding the lock: otherwise those builders may
/// still be running.
void remove_leftovers(const place& where) {
  std::error_code fault;
  const std::string beginning = where.file + ".new-";
  for (std::filesystem::directory_iterator at(where.folder, fault), end; !fault && at != end;
       at.increment(fault))
    if (at->path().native().starts_with(beginning)) ::unlink(at->path().c_str());
}

/// Writes the index under a temporary name and renames it, so that a reader sees all of it or nothing.
result<found_index> keep(const place& where, std::span<const shard_index> shards) {
  // The name is random because, without locks, containers on several hosts may build at the same time with the same
  // process id.
  const std::string new_path =
      fmt::format("{}.new-{}-{:08x}", where.file, ::getpid(), std::random_device{}());
  const unique_fd file(::open(new_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return refuse_os(errc::io, errno, fmt::format("creating '{}'", printable(new_path)));
  const auto failed = [&](failure why) {
    ::unlink(new_path.c_str());
    return tl::unexpected(std::move(why));
  };
  if (auto ok = write_tar_index(file.get(), shards); !ok) return failed(std::move(ok.error()));
  unique_fd reading(::open(new_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!reading) return failed(os_failure(errc::io, errno, fmt::format("opening '{}'", printable(new_path))));
  auto index = tar_index::map(reading.get());
  if (!index) return failed(std::move(index.error()));
  if (::rename(new_path.c_str(), where.file.c_str()) != 0)
    return failed(os_failure(errc::io, errno, fmt::format("naming the index '{}'", printable(where.file))));
  return found_index{std::move(reading), std::move(*index), where.file, true, {}};
}

result<found_index> keep_in_memory(std::span<const shard_index> shards) {
  auto file = create_memory_file("penstock-shards", "the index of shards");
  if (!file) return tl::unexpected(std::move(file.error()));
  if (auto ok = write_tar_index(file->get(), shards); !ok) return tl::unexpected(std::move(ok.error()));
  auto index = tar_index::map(file->get());
  if (!index) return tl::unexpected(std::move(index.error()));
  return found_index{std::move(*file), std::move(*index), "", true, {}};
}

/// Waits while another process builds the index here. Returns that index if it fits.
std::optional<found_index> wait_for_builder(folder_lock& lock, const place& where, const shard_list& shards,
                                            const std::function<void(const index_progress&)>& told) {
  for (const auto until = clock::now() + lock_patience; !lock.try_take() && clock::now() < until;) {
    if (told) told({0, 0, true});
    std::this_thread::sleep_for(lock_polled_every);
  }
  auto found = open_index(where, shards);
  return found && *found ? std::move(*found) : std::nullopt;
}

/// The first index that fits. If none fits, notices say why.
result<std::optional<found_index>> look_for_index(const std::vector<place>& places, const shard_list& shards,
                                                  std::vector<std::string>& notices) {
  std::vector<std::string> unusable;
  for (const place& where : places) {
    auto found = open_index(where, shards);
    if (found && *found) return found;
    if (found) continue;
    if (found.error().code == errc::io) return found;
    unusable.push_back(
        fmt::format("the index '{}' {}: building it again", printable(where.file), found.error().message));
  }
  notices.insert(notices.end(), unusable.begin(), unusable.end());
  return std::nullopt;
}

result<void> check_writable(const std::string& folder) {
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) == 0) return {};
  return refuse_os(errc::io, errno, fmt::format("'{}'", printable(folder)));
}

result<found_index> find_or_build(const shard_list& shards, const std::vector<place>& places,
                                  std::vector<std::string>& notices,
                                  const std::function<void(const index_progress&)>& told) {
  if (auto found = look_for_index(places, shards, notices); !found || *found) {
    if (!found) return tl::unexpected(std::move(found.error()));
    return std::move(**found);
  }
  // A folder that seems writable may still refuse the file, for example because the disk is full. The next folder is tried then.
  std::vector<shard_index> read;
  const auto read_once = [&]() -> result<void> {
    if (!read.empty()) return {};
    auto all = parallel_reading(shards).run(told);
    if (!all) return tl::unexpected(std::move(all.error()));
    read = std::move(*all);
    return {};
  };
  std::string refusals;
  const auto refused = [&](const failure& why) { refusals += (refusals.empty() ? "" : "; ") + why.message; };
  for (const place& where : places) {
    std::error_code ignored;
    if (shards.store || &where != &places.front()) std::filesystem::create_directories(where.folder, ignored);
    if (auto ok = check_writable(where.folder); !ok) {
      refused(ok.error());
      continue;
    }
    folder_lock lock(where.folder);
    if (auto found = wait_for_builder(lock, where, shards, told)) return std::move(*found);
    if (auto ok = read_once(); !ok) return tl::unexpected(std::move(ok.error()));
    if (lock.held()) remove_leftovers(where);
    auto kept = keep(where, read);
    if (kept) return kept;
    refused(kept.error());
  }
  if (auto ok = read_once(); !ok) return tl::unexpected(std::move(ok.error()));
  notices.push_back(
      fmt::format("the index of shards could not be saved ({}): set [storage] cache to a writable folder, or "
                  "each start reads the headers of all shards again",
                  refusals));
  return keep_in_memory(read);
}

}  // namespace

result<found_index> find_index(const shard_list& shards, const std::string& cache,
                               const std::function<void(const index_progress&)>& told) {
  std::vector<std::string> notices = shards.notices;
  auto found = find_or_build(shards, places_of(shards, cache), notices, told);
  if (found) found->notices = std::move(notices);
  return found;
}

void add_notices_about(const tar_index& index, std::vector<std::string>& notices) {
  const auto note = [&](bool (*applies)(const indexed_shard&), std::string_view what) {
    std::uint64_t count = 0;
    std::string first;
    for (std::uint64_t i = 0; i < index.shards(); ++i) {
      if (!applies(index.shard(i))) continue;
      if (count++ == 0) first = printable(index.shard(i).name);
    }
    if (count > 0)
      notices.push_back(count == 1
                            ? fmt::format("the shard '{}' {}", first, what)
                            : fmt::format("the shard '{}' and {}: each {}", first, counted(count - 1, "other"), what));
  };
  note([](const indexed_shard& shard) { return !shard.has_end_marker; },
       "has no end marker: it may have been cut short between two members");
  note([](const indexed_shard& shard) { return shard.bytes_after_end > 0; },
       "has data after its end marker, which is not read: was an archive appended to it?");
}

}  // namespace penstock
