#include "actors/session/sizing.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/worker_slots.hpp"
#include "runtime/config/spelling.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/device/decoder_choice.hpp"

#include <algorithm>

namespace penstock::session {
namespace {

/// The settings that determine how a picture reaches the device, as schedule::stream_identity stores them.
/// Contains only settings that have an effect: changing another one does not change the stream.
std::string settings_of_pictures(const config& c) {
  std::string lines;
  const auto add = [&lines]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    if (!lines.empty()) lines += '\n';
    lines += fmt::format(format, std::forward<Args>(args)...);
  };
  using config_file::spelling;
  add("image.size={}x{}", c.image.size[0], c.image.size[1]);
  add("image.augment={}", spelling(c.image.augment));
  if (c.image.augment == augment_kind::random_resized_crop) {
    add("image.scale={:.9g}..{:.9g}", c.image.scale[0], c.image.scale[1]);
    add("image.ratio={:.9g}..{:.9g}", c.image.ratio[0], c.image.ratio[1]);
    add("image.flip={:.9g}", c.image.flip);
  }
  if (c.image.augment == augment_kind::centre_crop) add("image.crop_fraction={:.9g}", c.image.crop_fraction);
  add("image.orientation={}", spelling(c.image.orientation));
  if (const auto decoder = device::choose_decoder(c); decoder && decoder->by != decoder_rule::cpu) {
    const std::string share =
        decoder->by == decoder_rule::hybrid ? fmt::format(" {:.9g}", c.image.gpu_share) : "";
    add("image.decoder={}{}, {}", spelling(decoder->by), share, decoder->decoder);
  }
  add("gpu.layout={}", spelling(c.gpu.layout));
  add("gpu.dtype={}", name_of(c.gpu.dtype));
  if (c.gpu.dtype != dtype::uint8) {
    add("gpu.mean={:.9g},{:.9g},{:.9g}", c.gpu.mean[0], c.gpu.mean[1], c.gpu.mean[2]);
    add("gpu.std={:.9g},{:.9g},{:.9g}", c.gpu.std[0], c.gpu.std[1], c.gpu.std[2]);
  }
  return lines;
}

plan_settings order_of(const config& settings, std::uint64_t samples) {
  const sampler_config& s = settings.sampler;
  return {
      samples, s.seed, is_shuffled(s), s.batch_size, s.drop_last, s.rank.value_or(0), s.world_size, s.uneven,
      0,       0};
}

}  // namespace

result<plan> plan_of(const config& settings, const dataset_description& dataset, const sampling& by,
                     const schedule::stream_state* resumed) {
  const std::uint64_t positions = by.order && dataset.samples > 0 ? by.order->positions() : dataset.samples;
  if (auto ok = check_there_are_batches(settings, positions); !ok)
    return tl::unexpected(std::move(ok.error()));
  plan_settings order = order_of(settings, positions);
  order.order = by.order;
  if (resumed != nullptr) {
    const schedule::stream_identity now = identity_of(settings, &dataset, by);
    if (auto ok = schedule::check_same_stream(resumed->identity, now); !ok) {
      // A state does not contain the number of samples, but the operator may remember it.
      if (!resumed->identity.fingerprint.empty() && resumed->identity.fingerprint != now.fingerprint)
        ok.error().message += fmt::format("; the dataset now has {}", counted(dataset.samples, "sample"));
      return tl::unexpected(std::move(ok.error()));
    }
    order.entered_epoch = resumed->epoch;
    order.entered_at = resumed->start;
  }
  return plan::create(order);
}

/// Checks rank 0, which never has fewer rows than another rank.
result<void> check_there_are_batches(const config& settings, std::uint64_t samples) {
  if (samples == 0) return refuse(errc::dataset, "the dataset has no samples");
  plan_settings order = order_of(settings, samples);
  order.rank = 0;
  const auto of_first = plan::create(order);
  if (!of_first) return tl::unexpected(of_first.error());
  if (of_first->batches_per_epoch() > 0) return {};
  std::string all = counted(samples, "sample");
  if (order.world_size > 1) all += " for " + counted(order.world_size, "rank");
  if (left_out_by_drop(settings, samples)) {
    return refuse(errc::config,
                  "no epoch has a batch: there are {}, and [sampler] uneven = \"drop\" leaves out the "
                  "samples that do not divide evenly; set uneven = \"pad\", or start fewer ranks",
                  all);
  }
  return refuse(errc::config,
                "no epoch has a batch: {} do not fill a batch of {}, and [sampler] drop_last leaves out all "
                "smaller batches; "
                "lower batch_size, or set drop_last = false",
                all, order.batch_size);
}

bool left_out_by_drop(const config& settings, std::uint64_t samples) {
  const sampler_config& s = settings.sampler;
  return s.uneven == uneven_rule::drop && samples < s.world_size;
}

std::uint32_t rows_max_of(const plan& order) {
  const stream_shape& shape = order.shape();
  const std::uint64_t most = std::max(shape.usual.expected, shape.entered.expected);
  // A rank without a batch still lays out its slots.
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most, 1, order.settings().batch_size));
}

result<arena::geometry> geometry_of(const config& settings, const batch_layout& layout,
                                    std::uint32_t partitions) {
  const std::uint64_t given = settings.loader.slot_bytes ? settings.loader.slot_bytes->bytes : layout.bytes;
  if (given < layout.bytes) {
    return refuse(
        errc::config,
        "a batch of {} samples needs a slot of {}, but [loader] slot_bytes is {}: raise it (or leave it at "
        "\"auto\"), or lower [sampler] batch_size",
        layout.rows_max, bytes_for_people(layout.bytes), bytes_for_people(given));
  }
  return arena::geometry{given, slots_of_a_worker(settings.loader, given), partitions};
}

arena::memory_need memory_need_of(const config& settings, const arena::geometry& shape,
                                  std::uint32_t workers) {
  arena::memory_need need;
  const std::uint32_t sacrificial = 1;
  need.reserved_bytes = shape.partition_bytes() * (workers + sacrificial);
  need.file_bytes = shape.bytes();
  need.mapped_bytes = need.reserved_bytes;
  need.explanation = fmt::format("{} + {} sacrificial, each {} x {}", counted(workers, "worker"), sacrificial,
                                 counted(shape.slots, "slot"), bytes_for_people(shape.slot_bytes));
  need.remedy = fmt::format("lower [loader] workers ({}), slots_per_worker ({}) or [sampler] batch_size ({})",
                            workers, shape.slots - (settings.loader.hedge ? 1U : 0U), settings.sampler.batch_size);
  return need;
}

std::string fingerprint_of_custom(const dataset_description& described) {
  fingerprint_hash hash("custom");
  hash.add_text(described.type);
  hash.add_number(described.samples);
  hash.add_number(described.tensors.size());
  for (const tensor_spec& t : described.tensors) {
    hash.add_text(t.name);
    hash.add_text(name_of(t.type));
    hash.add_number(t.shape.size());
    for (const std::uint32_t side : t.shape) hash.add_number(side);
    hash.add_number(static_cast<std::uint64_t>(t.role));
    hash.add_number(static_cast<std::uint64_t>(t.length));
  }
  hash.add_text(described.fingerprint);
  return hash.hex();
}

schedule::stream_identity identity_of(const config& settings, const dataset_description* dataset,
                                      const sampling& order) {
  const sampler_config& s = settings.sampler;
  schedule::stream_identity identity{
      s.seed, s.batch_size, s.rank.value_or(0), s.world_size, is_shuffled(s), s.drop_last, {}, {}};
  if (s.world_size > 1) identity.uneven = s.uneven;
  if (dataset == nullptr) return identity;
  identity.fingerprint = dataset->fingerprint;
  if (std::ranges::find(dataset->tensors, tensor_role::image, &tensor_spec::role) != dataset->tensors.end())
    identity.settings = settings_of_pictures(settings);
  if (!order.identity.empty())
    identity.settings += fmt::format("{}order={}", identity.settings.empty() ? "" : "\n", order.identity);
  return identity;
}

result<schedule::stream_range> range_of(const config& settings, const stream_request& request,
                                        const plan& order) {
  const std::uint64_t per_epoch = order.batches_per_epoch();
  schedule::stream_range range{0, settings.sampler.epochs * per_epoch};
  if (request.resumed) {
    const schedule::stream_state& saved = *request.resumed;
    if (auto ok = schedule::check_position(saved, order.shape()); !ok)
      return tl::unexpected(std::move(ok.error()));
    range.first = saved.epoch * per_epoch + order.shape().of(saved.epoch).first_batch + saved.next_batch;
    range.early = saved.early;
  }
  range.end = std::max(range.end, range.first);
  if (request.batches) range.end = range.first + std::min(range.end - range.first, *request.batches);
  return range;
}

std::uint64_t samples_in(const plan& order, schedule::stream_range range) {
  const stream_shape& shape = order.shape();
  const std::uint64_t per_epoch = shape.batches_per_epoch;
  if (per_epoch == 0) return 0;
  const auto before = [&](stream_position p) {
    const std::uint64_t epoch = p / per_epoch;
    const std::uint64_t batch = p % per_epoch;
    std::uint64_t samples = epoch * shape.usual.expected;
    if (shape.has_entered() && shape.entered_epoch < epoch)
      samples -= shape.usual.expected - shape.entered.expected;
    const std::uint64_t first = shape.of(epoch).first_batch;
    return samples + (batch - std::min(batch, first)) * order.settings().batch_size;
  };
  const std::uint64_t whole = before(range.end) - before(range.first);
  const schedule::delivery_front delivered(range.first, range.early);
  std::uint64_t early = 0;
  for (std::uint32_t i = 1; i <= schedule::delivery_front::window_max && range.first + i < range.end; ++i) {
    const stream_position p = range.first + i;
    if (delivered.has(p)) early += before(p + 1) - before(p);
  }
  return whole - early;
}

}  // namespace penstock::session
