#include "runtime/dataset/order/plan.hpp"

#include "runtime/base/check.hpp"
#include "runtime/dataset/order/philox.hpp"
#include "runtime/dataset/order/shuffle.hpp"
#include "runtime/dataset/order/wide_math.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// A rank's part of an epoch that is divided among the ranks from position `start` on, and its number of batches.
struct portion {
  epoch_share share;
  std::uint64_t batches = 0;
};

portion portion_from(const plan_settings& s, std::uint64_t start) {
  const std::uint64_t left = s.samples - start;
  const std::uint64_t even = left / s.world_size;
  const std::uint64_t over = left % s.world_size;
  // For ranks from `over` on, the last row is past the end of the order.
  const bool ends_with_repeat = s.uneven == uneven_rule::pad && over != 0 && s.rank >= over;
  std::uint64_t rows = even;
  if (s.uneven == uneven_rule::pad) {
    rows = even + (over != 0 ? 1 : 0);
  } else if (s.uneven == uneven_rule::allow && !s.drop_last) {
    rows = even + (s.rank < over ? 1 : 0);
  }
  portion p;
  p.share.start = start;
  if (s.drop_last) {
    p.batches = rows / s.batch_size;
    p.share.expected = p.batches * s.batch_size;
  } else {
    p.batches = rows / s.batch_size + (rows % s.batch_size != 0 ? 1 : 0);
    p.share.expected = rows;
  }
  p.share.padded = ends_with_repeat && p.share.expected == rows ? 1 : 0;
  return p;
}

}  // namespace

result<plan> plan::create(const plan_settings& settings) {
  if (settings.batch_size == 0) return refuse(errc::config, "the batch size is 0, which makes no batches");
  if (settings.world_size == 0)
    return refuse(errc::config, "the world size is 0, which leaves no rank to load for");
  if (settings.rank >= settings.world_size) {
    return refuse(errc::config, "rank {} is not in a world of {} (ranks count from 0)", settings.rank,
                  settings.world_size);
  }
  if (settings.samples >> 63U != 0)
    return refuse(errc::config, "{} samples are too many to plan", settings.samples);
  if (settings.entered_at != 0 && settings.entered_at >= settings.samples) {
    return refuse(errc::state_mismatch,
                  "the saved state is at position {} of epoch {}, but an epoch has {} samples",
                  settings.entered_at, settings.entered_epoch, settings.samples);
  }
  return plan(settings);
}

plan::plan(const plan_settings& settings) noexcept : settings_(settings) {
  const portion whole = portion_from(settings, 0);
  shape_.batches_per_epoch = whole.batches;
  shape_.usual = whole.share;
  if (settings.entered_at == 0) return;
  const portion rest = portion_from(settings, settings.entered_at);
  shape_.entered_epoch = settings.entered_epoch;
  shape_.entered = rest.share;
  shape_.entered.first_batch = whole.batches - rest.batches;
}

plan plan::from_the_beginning() const {
  plan_settings whole = settings_;
  whole.entered_epoch = 0;
  whole.entered_at = 0;
  return plan(whole);
}

std::uint32_t plan::rows(std::uint64_t epoch, std::uint64_t seq) const noexcept {
  const epoch_share& share = shape_.of(epoch);
  const std::uint64_t before = (seq - share.first_batch) * settings_.batch_size;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(settings_.batch_size, share.expected - before));
}

std::uint64_t plan::position(std::uint64_t epoch, std::uint64_t seq, std::uint32_t row) const noexcept {
  const epoch_share& share = shape_.of(epoch);
  const std::uint64_t mine = (seq - share.first_batch) * settings_.batch_size + row;
  const std::uint64_t place = share.start + mine * settings_.world_size + settings_.rank;
  return place < settings_.samples ? place : (place - settings_.samples) % settings_.samples;
}

std::vector<std::uint64_t> plan::batch(std::uint64_t epoch, std::uint64_t seq) const {
  PENSTOCK_CHECK(seq >= shape_.of(epoch).first_batch && seq < shape_.batches_per_epoch,
                 "batch {} of {} to {}", seq, shape_.of(epoch).first_batch, shape_.batches_per_epoch);
  std::vector<std::uint64_t> indices(rows(epoch, seq));
  batch(epoch, seq, indices);
  return indices;
}

void plan::batch(std::uint64_t epoch, std::uint64_t seq, std::span<std::uint64_t> indices) const {
  PENSTOCK_CHECK(seq >= shape_.of(epoch).first_batch && seq < shape_.batches_per_epoch &&
                     indices.size() == rows(epoch, seq),
                 "batch {} of {}, room for {} samples", seq, shape_.batches_per_epoch, indices.size());
  for (std::size_t row = 0; row < indices.size(); ++row) {
    indices[row] = position(epoch, seq, static_cast<std::uint32_t>(row));
  }
  if (settings_.order) return settings_.order->to_samples(settings_.seed, epoch, indices);
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
  // The bias is at most samples / 2^64, too small to detect.
  std::uint64_t sample = scaled_below(bits, settings_.samples);
  if (settings_.order) settings_.order->to_samples(settings_.seed, epoch, {&sample, 1});
  return sample;
}

}  // namespace penstock
