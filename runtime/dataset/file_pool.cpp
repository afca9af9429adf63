#include "runtime/dataset/file_pool.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

/// A remote_object holds data that is being fetched, so the pool should have room for every object that a worker
/// expects.
constexpr std::size_t objects_max = 16'384;

std::size_t files_open_max() {
  constexpr std::uint64_t least = 64;
  constexpr std::uint64_t most = 4096;
  ::rlimit limit{};
  const std::uint64_t allowed = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 2 : least;
  return std::clamp(allowed, least, most);
}

}  // namespace

file_pool::file_pool(std::shared_ptr<object_store> store, file_check check)
    : store_(std::move(store)), check_(check), kept_max_(store_ ? objects_max : files_open_max()) {}

std::shared_ptr<readable> file_pool::file(std::uint64_t number, const std::function<pooled_file()>& facts) {
  const std::lock_guard lock(mutex_);
  kept_file& kept = kept_[number];
  kept.used = ++uses_;
  if (kept.file) return kept.file;
  pooled_file known = facts();
  if (store_)
    kept.file = store_->object(known.path, {known.bytes, std::move(known.tag)});
  else
    kept.file = std::make_shared<local_file>(std::move(known.path), known.bytes, known.modified_ns, check_);
  auto made = kept.file;
  if (kept_.size() > kept_max_) drop_older_half();
  return made;
}

void file_pool::drop_older_half() {
  std::vector<std::uint64_t> uses;
  uses.reserve(kept_.size());
  for (const auto& [number, kept] : kept_) uses.push_back(kept.used);
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::ranges::nth_element(uses, middle);
  std::erase_if(kept_, [oldest = *middle](const auto& one) { return one.second.used < oldest; });
}

}  // namespace penstock
