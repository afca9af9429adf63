// Objects behind s3:// and http(s):// paths: how large they are and which version, a list of those below a prefix, and ranges
// of their bytes. Used by the datasets that read from there.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/storage/block_cache.hpp"
#include "runtime/storage/credentials.hpp"
#include "runtime/storage/listing_page.hpp"
#include "runtime/storage/readable.hpp"
#include "runtime/storage/transfers.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace penstock {

struct object_facts {
  std::uint64_t bytes = 0;
  std::string tag;  ///< the version: an ETag, or the time of modification; may be empty
  bool exists = true;
};

struct store_options {
  nanoseconds patience = std::chrono::seconds(12);  ///< time limit for one range, with all attempts
  std::string cache;                                ///< folder; empty: nothing is kept
  std::uint64_t cache_bytes = 0;
};

class object_store;

enum class missing_objects : std::uint8_t { refused, allowed };
enum class listing_depth : std::uint8_t { folder, everything_below };

/// One object. Thread-safe.
class remote_object final : public readable {
 public:
  remote_object(std::shared_ptr<object_store> store, std::string path, object_facts facts);

  [[nodiscard]] std::uint64_t bytes() const noexcept override { return facts_.bytes; }
  result<void> read(std::uint64_t at, std::span<std::byte> into) override;
  /// Neighbouring ranges share a request.
  void expect(std::vector<byte_range> ranges) override;

 private:
  struct piece {
    byte_range range;
    std::size_t users = 1;  ///< reads that it is expected to serve
    transfers::ticket ticket{};
    std::mutex taking{};  ///< guards `contents`: a ticket's answer is taken once
    std::shared_ptr<const std::vector<std::byte>> contents{};  ///< once it has come
  };
  [[nodiscard]] bool may_be_cached() const noexcept;
  [[nodiscard]] std::unique_ptr<cached_object> cached() const;
  [[nodiscard]] byte_range aligned(byte_range range) const noexcept;
  [[nodiscard]] transfers::ticket start(byte_range range) const;
  bool read_expected(std::uint64_t at, std::span<std::byte> into);
  result<std::vector<std::byte>> finish(byte_range range, const transfers::ticket& ticket);

  std::shared_ptr<object_store> store_;
  std::string path_;
  object_facts facts_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<piece>> pieces_;
};

/// Thread-safe.
class object_store : public std::enable_shared_from_this<object_store> {
 public:
  /// Refuses what transfers, read_s3_settings and block_cache refuse.
  static result<std::shared_ptr<object_store>> open(const store_options& options);

  /// Size and version of each path, many at a time. Refuses (errc::io, errc::config), by name, the first that has none;
  /// where missing ones are allowed, an answer 404 means that the object does not exist.
  result<std::vector<object_facts>> examine(std::span<const std::string> paths,
                                            missing_objects missing = missing_objects::refused);
  /// The objects whose paths begin with "s3://bucket/some/beginning" and whose keys `wanted` takes, in the order of the
  /// store, which is that of their bytes. Holds those alone, and one page. Refuses (errc::dataset) more than `most`.
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

  mutable std::mutex mutex_;
  s3_settings s3_;  ///< guarded by the mutex: credentials may be renewed
  std::shared_ptr<block_cache> cache_;
  std::unique_ptr<transfers> transfers_;  ///< last: its thread uses the others
};

/// Whether requests to this path can be made here at all: refuses (errc::config) a missing libcurl, AWS files that cannot be
/// used, and a URL that cannot be read. Contacts nobody.
result<void> check_remote_path(const std::string& path);

}  // namespace penstock
