// plan: which samples a batch holds, without loading any. replay: the batch itself, as files.
#include "actors/session/sizing.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/factory.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/dataset/index_display.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/state_file.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/session.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
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
  std::string out{};    ///< of replay
  std::string state{};  ///< of replay
};

struct planned_batch {
  std::vector<std::uint64_t> samples;
  std::vector<std::string> names;
  schedule::stream_state before;  ///< of the stream that has delivered everything before this batch
};

result<config> settings_of(config settings, const plan_options& o) {
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
  return settings;
}

result<std::optional<schedule::stream_state>> state_in(const std::string& path) {
  if (path.empty()) return std::optional<schedule::stream_state>();
  const auto bytes = read_state(path);
  if (!bytes) return tl::unexpected(bytes.error());
  if (bytes->empty()) return refuse(errc::usage, "--state: there is no file '{}'", printable(path));
  auto state = schedule::parse_state(*bytes);
  if (!state) return tl::unexpected(std::move(state.error()));
  return std::optional(std::move(*state));
}

/// `saved`: a state of the run, if it matters: it knows the run's quarantined samples, and at which position a group
/// of another size entered an epoch.
result<planned_batch> plan_batch(const config& settings, const plan_options& o,
                                 const std::optional<schedule::stream_state>& saved) {
  const auto prepared = prepare_stream(settings);
  if (!prepared) return tl::unexpected(prepared.error());
  const auto order =
      session::plan_of(settings, prepared->description, prepared->order, saved ? &*saved : nullptr);
  if (!order) return tl::unexpected(order.error());
  const epoch_share& share = order->shape().of(o.epoch);
  if (o.batch < share.first_batch || o.batch >= order->batches_per_epoch()) {
    return refuse(
        errc::usage, "--batch: there is no batch {}: epoch {} of rank {} of {} has {}, counted from {}",
        o.batch, o.epoch, order->settings().rank, order->settings().world_size,
        counted(order->batches_per_epoch() - share.first_batch, "batch", "batches"), share.first_batch);
  }
  const auto dataset = make_dataset(settings, prepared->descriptors());
  if (!dataset) return tl::unexpected(dataset.error());
  planned_batch found;
  found.samples = order->batch(o.epoch, o.batch);
  for (const std::uint64_t sample : found.samples)
    found.names.push_back(printable((*dataset)->name_of(sample)));
  found.before.identity = session::identity_of(settings, &prepared->description, prepared->order);
  found.before.epoch = o.epoch;
  found.before.start = share.start;
  found.before.next_batch = o.batch - share.first_batch;
  if (saved) found.before.quarantined_samples = saved->quarantined_samples;
  return found;
}

exit_code code_of(const failure& why) {
  return why.code == errc::usage ? exit_usage : exit_failed;
}

nlohmann::ordered_json facts_of(const plan_options& o, const config& settings, const planned_batch& batch) {
  return {{"epoch", o.epoch},
          {"seq", o.batch},
          {"rank", settings.sampler.rank.value_or(0)},
          {"world_size", settings.sampler.world_size},
          {"samples", batch.samples},
          {"names", batch.names}};
}

void list_samples(const planned_batch& batch) {
  for (std::size_t row = 0; row < batch.samples.size(); ++row)
    print(fmt::format("{}\t{}", batch.samples[row], batch.names[row]));
}

/// Calls `act` with the settings for the rank that was asked for, after warnings and a progress bar for people.
template <typename Act>
int with_settings(const plan_options& o, Act act) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.as_json);
  if (!o.as_json) {
    tell_warnings(*loaded);
    index_with_bar(loaded->values);
  }
  const auto settings = settings_of(loaded->values, o);
  if (!settings) return refuse_with(exit_usage, settings.error(), o.as_json);
  return act(*settings);
}

int show_plan(const plan_options& o, const config& settings) {
  const auto found = plan_batch(settings, o, std::nullopt);
  if (!found) return refuse_with(code_of(found.error()), found.error(), o.as_json);
  if (o.as_json) {
    print_json(facts_of(o, settings, *found));
  } else {
    list_samples(*found);
  }
  return exit_ok;
}

/// The run's own loading and its own sink, for one batch.
result<run_report> load_into(const std::string& folder, config settings, const planned_batch& batch) {
  settings.metrics.listen.clear();
  settings.loader.workers = 1;
  settings.loader.limits.min = 1;
  settings.gpu.placement = placement_rule::embedded;
  settings.group.communicator = communicator_kind::none;
  const std::vector<std::byte> begin = schedule::serialise(batch.before);
  try {
    session_options options;
    options.control_socket = false;
    options.batches = 1;
    options.state = begin;
    options.sink = "npy";
    options.sink_out = folder;
    Session session(std::move(settings), options);
    static_cast<void>(session.run_for(std::chrono::milliseconds::max()));
    return session.report();
  } catch (const error& e) {
    return tl::unexpected(e.as_failure());
  }
}

int replay(const plan_options& o, const config& settings) {
  const auto saved = state_in(o.state);
  if (!saved) return refuse_with(code_of(saved.error()), saved.error(), o.as_json);
  const auto found = plan_batch(settings, o, *saved);
  if (!found) return refuse_with(code_of(found.error()), found.error(), o.as_json);
  const auto report = load_into(o.out, settings, *found);
  if (!report) return refuse_with(exit_failed, report.error(), o.as_json);
  const std::uint64_t rows = report->samples;
  if (o.as_json) {
    auto facts = facts_of(o, settings, *found);
    facts["rows"] = rows;
    facts["out"] = o.out;
    print_json(facts);
    return exit_ok;
  }
  list_samples(*found);
  say(fmt::format("{} of {} in {}/e{}-b{:06}.*.npy", rows, counted(found->samples.size(), "sample"),
                  printable(o.out), o.epoch, o.batch));
  return exit_ok;
}

/// The options that both verbs have.
void add_place_options(CLI::App& verb, plan_options& o) {
  add_config_options(verb, o.source);
  takes_whole_number(verb.add_option("--epoch", o.epoch, "which epoch, counted from 0"), {0, count_max})
      ->capture_default_str();
  takes_whole_number(verb.add_option("--batch", o.batch, "which batch of the epoch, counted from 0"),
                     {0, count_max})
      ->capture_default_str();
  takes_whole_number(verb.add_option("--rank", o.rank, "of which rank"), {0, 1048575});
  takes_whole_number(verb.add_option("--world", o.world, "how many ranks there are"), {1, 1048576});
  verb.add_flag("--json", o.as_json, "print JSON");
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
                [o] { return with_settings(*o, [&](const config& settings) { return show_plan(*o, settings); }); });
  add_place_options(verb, *o);
}

void add_replay_command(verb_table& verbs) {
  const auto o = std::make_shared<plan_options>();
  CLI::App& verb = verbs.add(
      {"replay",
       verb_group::look,
       "write one batch of a run again, byte for byte",
       "Loads one batch from config and dataset alone and writes the files that `penstock run --sink npy` "
       "writes "
       "for it, with the samples' names on stdout: to see what was in the batch where a loss jumped. "
       "--state "
       "names a state of that run: its quarantined samples are left out again, and an epoch that a group of "
       "another "
       "size had begun is divided as it was.",
       {{"penstock replay photos.toml --epoch 3 --batch 17 --out spike", "a batch of the fourth epoch"},
        {"penstock replay photos.toml --batch 17 --rank 1 --world 8 --out spike --json | jq -r '.names[]'",
         "what rank 1 of 8 had in it"}}},
      [o] { return with_settings(*o, [&](const config& settings) { return replay(*o, settings); }); });
  add_place_options(verb, *o);
  verb.add_option("--out", o->out, "the folder to write to")->type_name("DIR")->required();
  verb.add_option("--state", o->state, "a state of the run")->type_name("FILE");
}

}  // namespace penstock::cli
