// The accounts of a stream: what each epoch delivered, failed and quarantined, its digest, and the state from
// which a later run resumes (rules S17-S29). Pure: time is an argument.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/stream_shape.hpp"
#include "runtime/schedule/delivery_front.hpp"
#include "runtime/schedule/digest_chain.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::schedule {

/// Two streams are the same if these are equal. A state of a different stream is refused.
struct stream_identity {
  std::uint64_t seed = 0;
  std::uint32_t batch_size = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  bool shuffle = true;
  bool drop_last = false;
  std::string fingerprint;  ///< fingerprint of the dataset; empty: not known yet when the state was taken
  /// The other settings that determine the bytes of a batch or the order of samples, one "key=value" per line in a fixed order. Empty if
  /// all of them have no effect or their defaults.
  std::string settings{};
  bool has_settings = true;  ///< false: a state of version 1, which does not say them
  /// How uneven ranks are handled. With one rank it has no effect and stays `allow`, as in states of earlier
  /// versions.
  uneven_rule uneven = uneven_rule::allow;
  /// Whether this is a state of all ranks. Batch size, rank and world size are then those of the run that
  /// wrote it; a later run may use others.
  bool of_group = false;
  bool operator==(const stream_identity&) const = default;
};

/// The report of an epoch, without `seconds`. The digest is also empty while an earlier batch of the plan is
/// missing, or if a group with another number of ranks or batch size delivered a part of the epoch.
struct epoch_account : epoch_report {
  nanoseconds took{0};  ///< from the request for this process's first batch to the delivery of its last one
};

/// The position of a stream. Everything before `next_batch` is delivered. With a relaxed order, some later
/// batches may be delivered, too.
struct stream_state {
  stream_identity identity;
  std::uint64_t epoch = 0;
  /// The position in this epoch's order from which the samples are divided among the ranks.
  std::uint64_t start = 0;
  std::uint64_t next_batch = 0;  ///< counted from `start`
  std::uint64_t early = 0;       ///< which later batches are delivered: delivery_front::early
  /// The digests of the early batches, in the order of the plan. Empty without digests.
  std::vector<std::uint64_t> early_digests;
  std::uint64_t delivered = 0;  // samples of the open epoch, early batches included
  std::uint64_t failed = 0;
  std::uint64_t quarantined = 0;
  digest_chain digests;
  std::vector<std::uint64_t> quarantined_samples;  ///< ascending

  bool operator==(const stream_state&) const = default;
};

/// The maximum size of a state, for any stream in strict order: a few numbers, the identity, the digest's
/// intermediate state, and as many quarantined samples (as ranges) as still fit. Those that do not fit will be
/// quarantined again.
inline constexpr std::size_t strict_state_bytes_max = 1024;
/// The maximum with early batches, which adds their positions and digests.
inline constexpr std::size_t state_bytes_max =
    strict_state_bytes_max + sizeof(std::uint64_t) * (2 + delivery_front::window_max);
/// Limits on the text in an identity, so that it fits into a state.
inline constexpr std::size_t fingerprint_bytes_max = 64;
inline constexpr std::size_t identity_settings_bytes_max = 440;

/// Binary, with a checksum; at most state_bytes_max.
[[nodiscard]] std::vector<std::byte> serialise(const stream_state& state);
/// Accepts this version and earlier ones. Refuses (errc::state_mismatch) anything incomplete, and impossible
/// counts.
result<stream_state> parse_state(std::span<const std::byte> bytes);
/// Refuses a state of a different stream, naming each difference. A group's state matches every layout.
result<void> check_same_stream(const stream_identity& saved, const stream_identity& now);
/// Refuses a state whose position is past the end of an epoch, or that counts more samples than there were.
result<void> check_position(const stream_state& saved, const stream_shape& shape);

/// An acknowledged batch.
struct delivered_batch {
  stream_position position = 0;
  std::uint64_t rows = 0;
  std::uint64_t failed = 0;
  std::uint64_t quarantined = 0;
  std::optional<std::uint64_t> digest;
  /// When the consumer asked for it. Empty if unknown, because the owner's process asks continuously: the
  /// time then counts from the previous delivery.
  std::optional<steady_time> demanded;
  steady_time taken{};
  std::uint64_t replaced = 0;  ///< replaced rows
};

class epoch_book {
 public:
  /// `demanded`: when the stream's first batch was requested.
  epoch_book(stream_identity identity, const stream_shape& shape, steady_time demanded);

  /// Continues from a saved state.
  void resume(const stream_state& state);
  /// Starts a new account at this position, even if it was passed before.
  /// The account of the open epoch stays in the list, as incomplete.
  void begin_at(stream_position position);
  /// The stream may have begun in the middle of an epoch. Sets a shape in which it has not. Call it before
  /// begin_at() with a position before that epoch.
  void reshape(const stream_shape& shape);

  /// Call in the order of delivery. Returns the updated account of the batch's epoch.
  const epoch_account& delivered(const delivered_batch& batch);

  /// All accounts of this process, in the order in which they were started. An epoch that was started twice
  /// appears twice.
  [[nodiscard]] std::vector<epoch_account> epochs() const;
  /// The first batch that has not been delivered.
  [[nodiscard]] stream_position next() const noexcept { return front_.head(); }
  /// Takes the same time for any number of epochs and batches. Leaves the quarantined samples empty,
  /// for the caller to fill in.
  [[nodiscard]] stream_state state() const;

 private:
  void open_account(std::uint64_t epoch, std::uint64_t from_batch);
  void leave_account();
  void add_digest(stream_position position, std::uint64_t digest);
  [[nodiscard]] std::optional<std::string> digest_of_open() const;

  stream_identity identity_;
  stream_shape shape_;
  std::vector<epoch_account> accounts_;
  bool open_ = false;                 // the next batch belongs to the last account
  digest_chain digests_;              // digests of the open account
  std::optional<steady_time> begun_;  // when this process's first batch of the open account was requested
  steady_time last_taken_;            // the previous delivery; at first, the request for the stream
  delivery_front front_;
  std::map<stream_position, std::uint64_t> early_digests_;
};

}  // namespace penstock::schedule
