// The accounts of a stream: what each epoch delivered, failed and quarantined, its digest, and the state from
// which a later run goes on (semantics 5-7). Pure.
#pragma once

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::schedule {

/// What makes two streams the same; a state of another stream is refused.
struct stream_identity {
  std::uint64_t seed = 0;
  std::uint32_t batch_size = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  bool shuffle = true;
  bool drop_last = false;
  std::string fingerprint;
  bool operator==(const stream_identity&) const = default;
};

struct epoch_account {
  std::uint64_t epoch = 0;
  std::uint64_t from_batch = 0;  ///< first batch that this process delivered
  std::uint64_t expected = 0;    ///< samples
  std::uint64_t delivered = 0;
  std::uint64_t failed = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t batches = 0;
  bool complete = false;
  std::vector<std::uint64_t> batch_digests;  ///< in order; empty if none were made
};

/// Where a stream stands: everything before `next` is delivered.
struct stream_state {
  stream_identity identity;
  std::uint64_t epoch = 0;
  std::uint64_t next_batch = 0;
  std::uint64_t delivered = 0;  // of the open epoch
  std::uint64_t failed = 0;
  std::uint64_t quarantined = 0;
  std::vector<std::uint64_t> batch_digests;
  std::vector<std::uint64_t> quarantined_samples;
  std::vector<std::uint64_t> failed_samples;

  bool operator==(const stream_state&) const = default;
};

/// Binary: about 100 bytes, the fingerprint, 8 bytes a batch of the open epoch and 8 a bad sample, and a
/// checksum.
[[nodiscard]] std::vector<std::byte> serialise(const stream_state& state);
/// Refuses (errc::state_mismatch) what is not a whole state of this version.
result<stream_state> parse_state(std::span<const std::byte> bytes);
/// Refuses a state of another stream, naming each difference.
result<void> check_same_stream(const stream_identity& saved, const stream_identity& now);

class epoch_book {
 public:
  epoch_book(stream_identity identity, std::uint64_t batches_per_epoch, std::uint64_t samples_per_epoch);

  /// Goes on where a state ends.
  void resume(const stream_state& state);
  /// Begins somewhere else: a new account from this batch on.
  void begin_at(stream_position position);

  /// A batch was acknowledged; in order.
  void delivered(stream_position position, std::uint64_t rows, std::uint64_t failed,
                 std::uint64_t quarantined, std::optional<std::uint64_t> digest);

  [[nodiscard]] const std::vector<epoch_account>& epochs() const noexcept { return accounts_; }
  [[nodiscard]] stream_position next() const noexcept { return next_; }
  [[nodiscard]] stream_state state() const;

 private:
  epoch_account& open_account(std::uint64_t epoch, std::uint64_t from_batch);

  stream_identity identity_;
  std::uint64_t batches_per_epoch_;
  std::uint64_t samples_per_epoch_;
  std::vector<epoch_account> accounts_;
  stream_position next_ = 0;
};

}  // namespace penstock::schedule
