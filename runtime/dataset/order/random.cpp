// penstock::random_source and its block function, on Random123's Philox4x32-10.
#include "runtime/dataset/order/philox.hpp"

#include <penstock/random.hpp>

#include <Random123/philox.h>

namespace penstock {

philox_words philox_block(philox_words counter, philox_key key) noexcept {
  using generator = r123::Philox4x32_R<10>;
  const auto out = generator{}({{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
  return {out[0], out[1], out[2], out[3]};
}

random_source::random_source(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) noexcept {
  const philox_stream stream(random_domain::sample, seed, epoch, sample);
  counter_ = stream.counter;
  key_ = stream.key;
}

random_source::result_type random_source::operator()() noexcept {
  if (used_ == block_.size()) {
    block_ = philox_block(counter_, key_);
    used_ = 0;
    // Like philox_stream::block_at: increments the block number, which has 24 bits, and the key when that
    // wraps.
    counter_[0] = (counter_[0] & 0xff000000U) | ((counter_[0] + 1) & 0xffffffU);
    if ((counter_[0] & 0xffffffU) == 0) ++key_[0];
  }
  return block_[used_++];
}

double random_source::uniform() noexcept {
  const std::uint64_t high = (*this)();
  const std::uint64_t bits = high << 32U | (*this)();
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

std::uint32_t random_source::below(std::uint32_t bound) noexcept {
  // Lemire, "Fast random integer generation in an interval" (2019): one multiplication; a division only when
  // the low half shows that the draw may be one of the few that would cause a bias.
  std::uint64_t product = std::uint64_t{(*this)()} * bound;
  if (static_cast<std::uint32_t>(product) < bound) {
    const std::uint32_t threshold = (0U - bound) % bound;
    while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{(*this)()} * bound;
  }
  return static_cast<std::uint32_t>(product >> 32U);
}

}  // namespace penstock
