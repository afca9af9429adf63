// plan: which samples a batch holds, without loading any.
#include "actors/session/sizing.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/factory.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/dataset/index_display.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/session.hpp>

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>

namespace penstock::cli {
namespace {

struct plan_options {
  config_source source;
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> world;
  bool as_json = false;
};

struct planned_batch {
  std::vector<std::uint64_t> samples;
  std::vector<std::string> names;  ///< empty if only a worker program knows them
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
};

result<planned_batch> plan_batch(config settings, const plan_options& o) {
  if (o.world) settings.sampler.world_size = *o.world;
  if (o.rank) settings.sampler.rank = *o.rank;
  if (settings.sampler.rank.value_or(0) >= settings.sampler.world_size) {
    return refuse(errc::usage,
                  "--rank: rank {} is not in a world of {} (ranks count from 0; --world says how many)",
                  settings.sampler.rank.value_or(0), settings.sampler.world_size);
  }
  if (settings.dataset.type == dataset_type::custom) {
    return refuse(
        errc::usage,
        "a plan needs the number of samples, and only the worker program knows that of a custom dataset");
  }
  const auto prepared = prepare_stream(settings);
  if (!prepared) return tl::unexpected(prepared.error());
  const auto order = session::plan_of(settings, prepared->description, prepared->order);
  if (!order) return tl::unexpected(order.error());
  if (o.batch >= order->batches_per_epoch()) {
    return refuse(errc::usage,
                  "--batch: there is no batch {}: an epoch of rank {} of {} has {}, counted from 0", o.batch,
                  order->settings().rank, order->settings().world_size,
                  counted(order->batches_per_epoch(), "batch", "batches"));
  }
  const auto dataset = make_dataset(settings, prepared->index.get());
  if (!dataset) return tl::unexpected(dataset.error());
  planned_batch found{
      order->batch(o.epoch, o.batch), {}, order->settings().rank, order->settings().world_size};
  for (const std::uint64_t sample : found.samples)
    found.names.push_back(printable((*dataset)->name_of(sample)));
  return found;
}

int show_plan(const plan_options& o) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.as_json);
  if (!o.as_json) tell_warnings(*loaded);
  if (!o.as_json) index_with_bar(loaded->values);
  const auto found = plan_batch(loaded->values, o);
  if (!found) {
    return refuse_with(found.error().code == errc::usage ? exit_usage : exit_failed, found.error(),
                       o.as_json);
  }
  if (o.as_json) {
    print_json({{"epoch", o.epoch},
                {"seq", o.batch},
                {"rank", found->rank},
                {"world_size", found->world_size},
                {"samples", found->samples},
                {"names", found->names}});
    return exit_ok;
  }
  for (std::size_t row = 0; row < found->samples.size(); ++row)
    print(fmt::format("{}\t{}", found->samples[row], found->names[row]));
  return exit_ok;
}

}  // namespace

void add_plan_command(verb_table& verbs) {
  const auto o = std::make_shared<plan_options>();
  CLI::App& verb =
      verbs.add({"plan",
                 verb_group::look,
                 "list the samples of a batch without loading them",
                 "Says which samples a run puts into one batch, in the order of its rows, as an index and a "
                 "name on each line. "
                 "Nothing is loaded: the plan is a function of the config and of what the dataset consists "
                 "of. Samples that "
                 "fail in a run are listed like the others. --rank and --world answer for a rank of a group, "
                 "in place of "
                 "[sampler] rank and world_size.",
                 {{"penstock plan photos.toml --epoch 3 --batch 17", "a batch of the fourth epoch"},
                  {"penstock plan photos.toml --batch 17 --rank 1 --world 8 --json | jq .samples",
                   "the indices that rank 1 of 8 has in it"}}},
                [o] { return show_plan(*o); });
  add_config_options(verb, o->source);
  takes_whole_number(verb.add_option("--epoch", o->epoch, "which epoch, counted from 0"), {0, count_max})
      ->capture_default_str();
  takes_whole_number(verb.add_option("--batch", o->batch, "which batch of the epoch, counted from 0"),
                     {0, count_max})
      ->capture_default_str();
  takes_whole_number(verb.add_option("--rank", o->rank, "of which rank"), {0, 1048575});
  takes_whole_number(verb.add_option("--world", o->world, "how many ranks there are"), {1, 1048576});
  verb.add_flag("--json", o->as_json, "print JSON");
}

}  // namespace penstock::cli
