// The running digest of an epoch: XXH3-128 over its batch digests in order. Its state has a bounded size and
// can be saved and continued in another process. Used by epoch_book. Pure.
//
// Why not XXH3's own streaming state: its layout depends on the library's version, and a saved state must be
// readable after an upgrade. The algorithm is frozen since xxHash 0.8.0, so this keeps what the algorithm
// itself needs: the eight accumulators and the words that they have not consumed yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace penstock::schedule {

class digest_chain {
 public:
  /// The maximum number of unconsumed words: XXH3 hashes inputs of up to 240 bytes (30 words) in one piece;
  /// beyond that it keeps the last stripe (8 words) and a partial one. Rounded up to whole stripes.
  static constexpr std::size_t words_kept_max = 32;

  void add(std::uint64_t batch_digest);
  /// The number of digests so far.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// XXH3-128 over all of them (little endian), as 32 hexadecimal digits.
  [[nodiscard]] std::string hex() const;

  /// The state to save together with count(): the accumulators and the unconsumed words.
  [[nodiscard]] const std::array<std::uint64_t, 8>& accumulators() const noexcept { return lanes_; }
  [[nodiscard]] std::span<const std::uint64_t> words_kept() const noexcept { return {kept_.data(), size_}; }
  /// The number of unconsumed words after `count` digests.
  [[nodiscard]] static std::size_t words_kept_after(std::uint64_t count) noexcept;
  /// Empty if the number of words does not match `count`.
  static std::optional<digest_chain> restore(std::uint64_t count, const std::array<std::uint64_t, 8>& lanes,
                                             std::span<const std::uint64_t> words);

  bool operator==(const digest_chain& other) const noexcept;

 private:
  std::uint64_t count_ = 0;
  std::array<std::uint64_t, 8> lanes_ = first_lanes;
  std::array<std::uint64_t, words_kept_max> kept_{};
  std::size_t size_ = 0;

  static const std::array<std::uint64_t, 8> first_lanes;
};

}  // namespace penstock::schedule
