#include "runtime/dataset/order/plan.hpp"

#include "runtime/base/check.hpp"
#include "runtime/dataset/order/philox.hpp"
#include "runtime/dataset/order/shuffle.hpp"
#include "runtime/dataset/order/wide_math.hpp"

#include <algorithm>

namespace penstock {

result<plan> plan::create(const plan_settings& settings) {
  if (settings.batch_size == 0) return refuse(errc::config, "a batch size of 0 makes no batches");
  if (settings.world_size == 0) return refuse(errc::config, "a world size of 0 leaves no rank to load for");
  if (settings.rank >= settings.world_size) {
    return refuse(errc::config, "rank {} is not in a world of {} (ranks count from 0)", settings.rank,
                  settings.world_size);
  }
  if (settings.samples >> 63U != 0)
    return refuse(errc::config, "{} samples cannot be planned", settings.samples);
  return plan(settings);
}

plan::plan(const plan_settings& settings) noexcept : settings_(settings) {
  const std::uint64_t share = settings.samples / settings.world_size;
  if (settings.drop_last) {
    batches_ = share / settings.batch_size;
    expected_ = batches_ * settings.batch_size;
  } else {
    expected_ = share + (settings.rank < settings.samples % settings.world_size ? 1 : 0);
    batches_ = expected_ / settings.batch_size + (expected_ % settings.batch_size != 0 ? 1 : 0);
  }
}

std::uint32_t plan::rows(std::uint64_t seq) const noexcept {
  const std::uint64_t before = seq * settings_.batch_size;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(settings_.batch_size, expected_ - before));
}

std::vector<std::uint64_t> plan::batch(std::uint64_t epoch, std::uint64_t seq) const {
  PENSTOCK_CHECK(seq < batches_, "batch {} of {}", seq, batches_);
  std::vector<std::uint64_t> indices(rows(seq));
  batch(epoch, seq, indices);
  return indices;
}

void plan::batch(std::uint64_t epoch, std::uint64_t seq, std::span<std::uint64_t> indices) const {
  PENSTOCK_CHECK(seq < batches_ && indices.size() == rows(seq), "batch {} of {}, room for {} samples", seq,
                 batches_, indices.size());
  for (std::size_t row = 0; row < indices.size(); ++row) {
    indices[row] = position(seq, static_cast<std::uint32_t>(row));
  }
  if (!settings_.shuffle) return;
  const permutation order(settings_.samples, settings_.seed, epoch);
  for (std::uint64_t& index : indices) index = order(index);
}

std::uint64_t plan::replacement(std::uint64_t epoch, std::uint64_t position_in_epoch,
                                std::uint32_t try_number) const {
  PENSTOCK_CHECK(settings_.samples > 0 && try_number >= 1 && try_number <= replacement_tries,
                 "try {} among {} samples", try_number, settings_.samples);
  const philox_stream stream(random_domain::replacement, settings_.seed, epoch, position_in_epoch);
  const std::uint64_t bits = philox_stream::as_u64(stream.block_at(try_number), 0);
  // A bias of at most samples / 2^64: far below what any number of draws could show.
  return scaled_below(bits, settings_.samples);
}

}  // namespace penstock
