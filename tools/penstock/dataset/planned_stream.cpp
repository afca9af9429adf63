#include "tools/penstock/dataset/planned_stream.hpp"

#include "actors/session/sizing.hpp"
#include "actors/supervisor/lone_worker.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/dataset/index_display.hpp"
#include "tools/penstock/number_option.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock::cli {
namespace {

result<config> settings_of(config settings, const place_options& o) {
  if (o.world) settings.sampler.world_size = *o.world;
  if (o.rank) settings.sampler.rank = *o.rank;
  if (settings.sampler.rank.value_or(0) >= settings.sampler.world_size) {
    return refuse(errc::usage,
                  "--rank: rank {} is not in a world of {} (ranks count from 0; --world says how many)",
                  settings.sampler.rank.value_or(0), settings.sampler.world_size);
  }
  return settings;
}

}  // namespace

/// The worker of a custom dataset, which describes the dataset and names its samples.
class sample_namer {
 public:
  static result<std::shared_ptr<sample_namer>> start(const config& settings) {
    auto worker = supervisor::lone_worker::start({settings.loader.command, supervisor::worker_environment(settings.loader.env), {},
                                                  settings.loader.hang.start_deadline});
    if (!worker) return tl::unexpected(std::move(worker.error()));
    auto described = (*worker)->open(settings);
    if (!described) return tl::unexpected(std::move(described.error()));
    return std::shared_ptr<sample_namer>(new sample_namer(std::move(*worker), std::move(*described)));
  }

  [[nodiscard]] const dataset_description& described() const noexcept { return described_; }

  std::vector<std::string> names_of(std::span<const std::uint64_t> samples) {
    if (worker_) {
      auto names = ask(samples);
      if (names) return std::move(*names);
      say(fmt::format("the samples have no names here: {}", names.error().message));
      worker_.reset();
    }
    std::vector<std::string> numbered;
    for (const std::uint64_t sample : samples) numbered.push_back(default_sample_name(sample));
    return numbered;
  }

 private:
  sample_namer(std::unique_ptr<supervisor::lone_worker> worker, dataset_description described)
      : worker_(std::move(worker)), described_(std::move(described)) {}

  /// Sets up the dataset first, because it may not know the names before that.
  result<std::vector<std::string>> ask(std::span<const std::uint64_t> samples) {
    if (!std::exchange(is_set_up_, true)) {
      if (auto ok = worker_->set_up(described_, 1); !ok) return tl::unexpected(std::move(ok.error()));
    }
    return worker_->name(samples);
  }

  std::unique_ptr<supervisor::lone_worker> worker_;
  dataset_description described_;
  bool is_set_up_ = false;
};

namespace {

/// `custom`: receives the worker of a custom dataset.
result<prepared_dataset> prepare(const config& settings, std::shared_ptr<sample_namer>& custom) {
  if (settings.dataset.type != dataset_type::custom) return prepare_stream(settings);
  auto asked = sample_namer::start(settings);
  if (!asked) {
    asked.error().message = fmt::format("asking the worker program ([loader] command) for the dataset: {}", asked.error().message);
    return tl::unexpected(std::move(asked.error()));
  }
  custom = std::move(*asked);
  prepared_dataset prepared;
  prepared.description = custom->described();
  prepared.description.fingerprint = session::fingerprint_of_custom(prepared.description);
  auto order = read_sampling(settings, prepared.description, -1);
  if (!order) return tl::unexpected(std::move(order.error()));
  prepared.order = std::move(*order);
  return prepared;
}

}  // namespace

result<prepared_dataset> prepare_by_worker(const config& settings) {
  std::shared_ptr<sample_namer> ends;
  return prepare(settings, ends);
}

result<planned_stream> planned_stream::create(const config& settings,
                                              const std::optional<schedule::stream_state>& saved) {
  std::shared_ptr<sample_namer> custom;
  auto prepared = prepare(settings, custom);
  if (!prepared) return tl::unexpected(std::move(prepared.error()));
  auto order = session::plan_of(settings, prepared->description, prepared->order, saved ? &*saved : nullptr);
  if (!order) return tl::unexpected(std::move(order.error()));
  std::unique_ptr<Dataset> dataset;
  if (settings.dataset.type != dataset_type::custom) {
    auto opened = make_dataset(settings, prepared->descriptors());
    if (!opened) return tl::unexpected(std::move(opened.error()));
    dataset = std::move(*opened);
    keep_prepared(settings, *prepared);  // for a session that may load the planned batches
  }
  planned_stream made(std::move(*prepared), std::move(*order), std::move(dataset), std::move(custom));
  made.begin_.identity = session::identity_of(settings, &made.prepared_.description, made.prepared_.order);
  if (saved) made.begin_.quarantined_samples = saved->quarantined_samples;
  return made;
}

result<planned_batch> planned_stream::batch(std::uint64_t epoch, std::uint64_t batch) const {
  const epoch_share& share = order_.shape().of(epoch);
  if (const epoch_extent has = batches_of(epoch); batch < has.first || batch >= has.end) {
    return refuse(errc::usage,
                  "--batch: there is no batch {}: epoch {} of rank {} of {} has {}, counted from {}", batch,
                  epoch, order_.settings().rank, order_.settings().world_size,
                  counted(has.end - has.first, "batch", "batches"), has.first);
  }
  planned_batch found;
  found.samples = order_.batch(epoch, batch);
  found.before = begin_;
  found.before.epoch = epoch;
  found.before.start = share.start;
  found.before.next_batch = batch - share.first_batch;
  return found;
}

epoch_extent planned_stream::batches_of(std::uint64_t epoch) const {
  const epoch_share& share = order_.shape().of(epoch);
  return {share.first_batch, order_.batches_per_epoch(), share.start != 0};
}

std::vector<std::string> planned_stream::names_of(std::span<const std::uint64_t> samples) const {
  std::vector<std::uint64_t> known;
  std::ranges::copy_if(samples, std::back_inserter(known), [&](std::uint64_t sample) { return sample < prepared_.description.samples; });
  std::vector<std::string> names;
  if (custom_ && !known.empty()) names = custom_->names_of(known);
  auto next = names.begin();
  std::vector<std::string> all;
  for (const std::uint64_t sample : samples) {
    if (sample >= prepared_.description.samples)
      all.push_back(default_sample_name(sample));
    else
      all.push_back(printable(custom_ ? *next++ : dataset_->name_of(sample)));
  }
  return all;
}

std::string planned_stream::name_of(std::uint64_t sample) const {
  return names_of(std::span(&sample, 1)).front();
}

exit_code code_of(const failure& why) {
  return why.code == errc::usage ? exit_usage : exit_failed;
}

nlohmann::ordered_json facts_of(const place_options& o, const config& settings, const planned_batch& batch,
                                const std::vector<std::string>& names) {
  return {{"epoch", o.epoch},
          {"seq", o.batch},
          {"rank", settings.sampler.rank.value_or(0)},
          {"world_size", settings.sampler.world_size},
          {"samples", batch.samples},
          {"names", names}};
}

void list_samples(const planned_batch& batch, const std::vector<std::string>& names) {
  for (std::size_t row = 0; row < batch.samples.size(); ++row)
    print(fmt::format("{}\t{}", batch.samples[row], names[row]));
}

int with_settings(const place_options& o, const std::function<int(const config&)>& act) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.as_json);
  if (!o.as_json) tell_warnings(*loaded);
  const auto settings = settings_of(loaded->values, o);
  if (!settings) return refuse_with(exit_usage, settings.error(), o.as_json);
  if (!o.as_json) index_with_bar(*settings);
  return act(*settings);
}

void add_place_options(CLI::App& verb, place_options& o) {
  add_stream_options(verb, o.source);
  takes_whole_number(verb.add_option("--epoch", o.epoch, "which epoch, counted from 0"), {0, count_max})
      ->capture_default_str();
  takes_whole_number(verb.add_option("--batch", o.batch, "which batch of the epoch, counted from 0"),
                     {0, count_max})
      ->capture_default_str();
  takes_whole_number(verb.add_option("--rank", o.rank, "the rank whose batch is meant"), {0, 1048575});
  takes_whole_number(verb.add_option("--world", o.world, "how many ranks there are"), {1, 1048576});
  verb.add_flag("--json", o.as_json, "print JSON");
}

}  // namespace penstock::cli
