// The digest of an epoch while it grows: XXH3-128 over its batch digests in order, in a state of bounded size
// that can be saved and gone on with in another process. Used by the accounts of a stream. Pure.
//
// Why not XXH3's own streaming state: its layout is a matter of the library's version, and a saved state has
// to be readable after an upgrade. The algorithm is frozen since xxHash 0.8.0, so what is kept here is what
// the algorithm itself needs: the eight accumulators and the words that they have not taken in yet.
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
  /// Words that wait are at most so many: XXH3 treats inputs of up to 240 bytes (30 words) in one piece, and
  /// beyond that keeps the last stripe (8 words) and what does not fill another.
  static constexpr std::size_t words_kept_max = 32;

  void add(std::uint64_t batch_digest);
  /// How many digests are in it.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// XXH3-128 over all of them (little endian), as 32 hexadecimal digits.
  [[nodiscard]] std::string hex() const;

  /// What has to be saved, beside count(): the accumulators and the words kept.
  [[nodiscard]] const std::array<std::uint64_t, 8>& accumulators() const noexcept { return lanes_; }
  [[nodiscard]] std::span<const std::uint64_t> words_kept() const noexcept { return {kept_.data(), size_}; }
  /// How many words are kept after so many digests.
  [[nodiscard]] static std::size_t words_kept_after(std::uint64_t count) noexcept;
  /// Nothing if as many words cannot be kept after so many digests.
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
