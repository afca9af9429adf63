#include "runtime/schedule/digest_chain.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace penstock::schedule {
namespace {

static_assert(std::endian::native == std::endian::little, "digests hash the bytes in memory as they are");

// Names from the XXH3 specification; sizes in 8-byte words.
constexpr std::size_t stripe = 8;   // words consumed at a time
constexpr std::size_t secret = 24;  // words of the default secret, which has 192 bytes
// Up to this size, XXH3 hashes the whole input with another algorithm.
constexpr std::size_t short_input = 240 / 8;
constexpr std::uint64_t stripes_a_block = secret - stripe;
// Distance from the end of the last stripe's secret to the end of the whole secret.
constexpr std::size_t last_secret_bytes = 7;
constexpr std::size_t merge_secret_bytes = 11;  // offset of the merge's secret

using lanes = std::array<std::uint64_t, stripe>;

std::uint64_t secret_word(std::size_t byte) {
  std::uint64_t word = 0;
  std::memcpy(&word, &XXH3_kSecret[byte], sizeof word);
  return word;
}

void take_in(lanes& acc, const std::uint64_t* words, std::size_t secret_byte) {
  for (std::size_t i = 0; i < stripe; ++i) {
    const std::uint64_t key = words[i] ^ secret_word(secret_byte + 8 * i);
    acc[i ^ 1U] += words[i];
    acc[i] += (key & 0xFFFF'FFFFU) * (key >> 32U);
  }
}

void scramble(lanes& acc) {
  for (std::size_t i = 0; i < stripe; ++i) {
    const std::uint64_t folded = acc[i] ^ (acc[i] >> 47U) ^ secret_word(8 * (secret - stripe + i));
    acc[i] = folded * XXH_PRIME32_1;
  }
}

std::uint64_t merge(const lanes& acc, std::size_t secret_byte, std::uint64_t start) {
  std::uint64_t sum = start;
  for (std::size_t i = 0; i < stripe; i += 2) {
    __extension__ using wide = unsigned __int128;
    const wide product = static_cast<wide>(acc[i] ^ secret_word(secret_byte + 8 * i)) *
                         (acc[i + 1] ^ secret_word(secret_byte + 8 * i + 8));
    sum += static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  }
  sum ^= sum >> 37U;
  sum *= 0x1656'6791'9E37'79F9U;
  return sum ^ (sum >> 32U);
}

/// Call only when more input is known to follow the stripe: XXH3 handles the last stripe, and the last
/// block's scrambling, differently.
void consume_stripe(lanes& acc, const std::uint64_t* words, std::uint64_t stripes_before) {
  const std::uint64_t in_block = stripes_before % stripes_a_block;
  take_in(acc, words, 8 * in_block);
  if (in_block + 1 == stripes_a_block) scramble(acc);
}

}  // namespace

const std::array<std::uint64_t, 8> digest_chain::first_lanes{XXH_PRIME32_3, XXH_PRIME64_1, XXH_PRIME64_2,
                                                             XXH_PRIME64_3, XXH_PRIME64_4, XXH_PRIME32_2,
                                                             XXH_PRIME64_5, XXH_PRIME32_1};

void digest_chain::add(std::uint64_t batch_digest) {
  if (size_ == words_kept_max) {
    // Consume everything except the last stripe, which the final step needs.
    constexpr std::size_t taken = words_kept_max - stripe;
    const std::uint64_t stripes_before = (count_ - size_) / stripe;
    for (std::size_t i = 0; i < taken / stripe; ++i)
      consume_stripe(lanes_, kept_.data() + i * stripe, stripes_before + i);
    std::copy(kept_.begin() + taken, kept_.end(), kept_.begin());
    size_ -= taken;
  }
  kept_.at(size_++) = batch_digest;
  ++count_;
}

std::string digest_chain::hex() const {
  if (count_ <= short_input) {
    const XXH128_hash_t hash = XXH3_128bits(kept_.data(), size_ * sizeof(std::uint64_t));
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }
  lanes acc = lanes_;
  const std::uint64_t stripes_before = (count_ - size_) / stripe;
  for (std::size_t i = 0; (i + 1) * stripe < size_; ++i)
    consume_stripe(acc, kept_.data() + i * stripe, stripes_before + i);
  take_in(acc, kept_.data() + size_ - stripe, 8 * (secret - stripe) - last_secret_bytes);
  const std::uint64_t length = count_ * sizeof(std::uint64_t);
  const std::uint64_t low = merge(acc, merge_secret_bytes, length * XXH_PRIME64_1);
  const std::uint64_t high =
      merge(acc, 8 * (secret - stripe) - merge_secret_bytes, ~(length * XXH_PRIME64_2));
  return fmt::format("{:016x}{:016x}", high, low);
}

std::size_t digest_chain::words_kept_after(std::uint64_t count) noexcept {
  if (count <= words_kept_max) return static_cast<std::size_t>(count);
  constexpr std::size_t period = words_kept_max - stripe;
  return stripe + 1 + static_cast<std::size_t>((count - words_kept_max - 1) % period);
}

std::optional<digest_chain> digest_chain::restore(std::uint64_t count,
                                                  const std::array<std::uint64_t, 8>& lanes,
                                                  std::span<const std::uint64_t> words) {
  if (words.size() != words_kept_after(count)) return std::nullopt;
  digest_chain chain;
  chain.count_ = count;
  chain.lanes_ = lanes;
  chain.size_ = words.size();
  std::ranges::copy(words, chain.kept_.begin());
  return chain;
}

bool digest_chain::operator==(const digest_chain& other) const noexcept {
  return count_ == other.count_ && lanes_ == other.lanes_ &&
         std::ranges::equal(words_kept(), other.words_kept());
}

}  // namespace penstock::schedule
