// Objects behind s3:// and http(s):// paths: their sizes and versions, a list of those below a prefix, and ranges of
// their bytes. Used by the datasets that read from there.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/storage/block_cache.hpp"
#include "runtime/storage/credentials.hpp"
#include "runtime/storage/listing_page.hpp"
#include "runtime/storage/readable.hpp"
#include "runtime/storage/transfers.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace penstock {

struct object_facts {
  std::uint64_t bytes = 0;
  std::string tag;  ///< the version: an ETag, or the time of modification; may be empty
  bool exists = true;
};

struct store_options {
  nanoseconds patience = std::chrono::seconds(12);  ///< time limit for one range, with all attempts
  std::string cache;                                ///< folder; empty: no cache
  std::uint64_t cache_bytes = 0;
  /// Expected ranges that are not read within this time are dropped.
  nanoseconds unread_for = std::chrono::minutes(10);
};

class object_store;

enum class missing_objects : std::uint8_t { refused, allowed };
enum class listing_depth : std::uint8_t { folder, everything_below };

/// A remote object. Thread-safe.
class remote_object final : public readable, public std::enable_shared_from_this<remote_object> {
 public:
  remote_object(std::shared_ptr<object_store> store, std::string path, object_facts facts);
  ~remote_object() override;

  [[nodiscard]] std::uint64_t bytes() const noexcept override { return facts_.bytes; }
  result<void> read(std::uint64_t at, std::span<std::byte> into) override;
  /// Adjacent ranges share a request. A range that is not read within store_options::unread_for is dropped, because its
  /// batch was probably abandoned. A later read requests it again.
  void expect(std::vector<byte_range> ranges) override;
  void drop(byte_range range) override;
  void forget_unread(steady_time expected_until);

 private:
  struct piece {
    byte_range range;
    steady_time expected;
    std::vector<byte_range> awaits;  ///< the ranges of the piece that are expected to be read
    transfers::ticket ticket{};
    std::mutex taking{};  ///< guards `contents`: the answer of a ticket can be taken only once
    std::shared_ptr<const std::vector<std::byte>> contents{};  ///< set once the bytes have arrived
  };
  [[nodiscard]] bool is_whole(byte_range range) const noexcept { return range.at == 0 && range.bytes == facts_.bytes; }
  [[nodiscard]] bool may_be_cached() const noexcept;
  [[nodiscard]] std::unique_ptr<cached_object> cached() const;
  [[nodiscard]] byte_range aligned(byte_range range) const noexcept;
  [[nodiscard]] transfers::ticket start(byte_range range) const;
  [[nodiscard]] std::multimap<std::uint64_t, std::shared_ptr<piece>>::iterator piece_with(byte_range range);
  void take_from(std::multimap<std::uint64_t, std::shared_ptr<piece>>::iterator one, byte_range range);
  bool read_expected(std::uint64_t at, std::span<std::byte> into);
  result<std::vector<std::byte>> finish(byte_range range, transfers::ticket ticket);
  result<transfer_answer> answer_to(const transfers::ticket& ticket);

  std::shared_ptr<object_store> store_;
  std::string path_;
  object_facts facts_;
  std::mutex mutex_;
  std::multimap<std::uint64_t, std::shared_ptr<piece>> pieces_;  ///< by the start of their ranges
  std::uint64_t longest_ = 0;                                    ///< length of the longest piece so far
};

/// Thread-safe.
class object_store : public std::enable_shared_from_this<object_store> {
 public:
  /// Refuses what transfers, read_s3_settings and block_cache refuse.
  static result<std::shared_ptr<object_store>> open(const store_options& options);

  /// Gets the size and version of each path, with many concurrent requests. Refuses (errc::io, errc::config)
  /// if this fails for a path, and names the first such path. With missing_objects::allowed, an answer 404
  /// instead means that the object does not exist.
  result<std::vector<object_facts>> examine(std::span<const std::string> paths,
                                            missing_objects missing = missing_objects::refused);
  /// The objects whose paths begin with "s3://bucket/some/beginning" and whose keys `wanted` accepts, in the order of the
  /// store: by the bytes of their keys. Keeps in memory only these objects and one page of the listing.
  /// Refuses (errc::dataset) more than `most` objects.
  result<std::vector<listed_object>> list(const std::string& beginning, listing_depth depth, std::uint64_t most,
                                          const std::function<bool(std::string_view key)>& wanted);
  std::shared_ptr<remote_object> object(const std::string& path, object_facts facts);

  [[nodiscard]] transfer_counts counts() const { return transfers_->counts(); }

 private:
  friend class remote_object;
  object_store() = default;
  result<transfer_request> request_for(const std::string& path) const;
  [[nodiscard]] std::vector<std::string> headers_for(const transfer_request& request) const;
  bool renew_credentials();
  /// Compares the contents of a whole object with the checksums that the store sent, and returns the first
  /// that differs. Also records whether the store's ETags are checksums.
  std::optional<stated_sum> wrong_sum(const transfer_answer& whole);
  void begin_session();
  void will_use(const std::string& path, const object_facts& facts);
  // Keeps track of objects with ranges that are expected but not yet read.
  void add_unread(const remote_object* object, std::weak_ptr<remote_object> itself);
  void remove_unread(const remote_object* object);
  /// Drops expected ranges that have not been read for a long time. Checks only occasionally.
  void forget_unread(steady_time now);

  mutable std::mutex mutex_;
  s3_settings s3_;  ///< guarded by the mutex, because credentials may be renewed
  std::unordered_map<const remote_object*, std::weak_ptr<remote_object>> unread_;  ///< guarded by the mutex
  steady_time looked_{};                                                           ///< likewise
  nanoseconds unread_for_{};
  std::atomic<bool> session_begun_{false};
  std::atomic<bool> tags_are_sums_{false};
  std::atomic<int> tags_tried_{0};
  std::shared_ptr<block_cache> cache_;
  std::unique_ptr<transfers> transfers_;  ///< declared last, because its thread uses the other members
};

/// The identity of an object in block_cache: its address and version.
std::string name_in_cache(const std::string& path, const object_facts& facts);

/// Whether this machine can make requests to this path. Refuses (errc::config) a missing libcurl, AWS files that cannot
/// be used, and an invalid URL. Sends nothing.
result<void> check_remote_path(const std::string& path);

}  // namespace penstock
