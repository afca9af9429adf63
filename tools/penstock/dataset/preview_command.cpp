// preview: reads one batch back from the device and draws it as a contact sheet.
#include "actors/session/sizing.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/dataset/factory.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/dataset/batch_picture.hpp"
#include "tools/penstock/dataset/index_display.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/session.hpp>

#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

struct preview_options {
  config_source source;
  std::uint64_t batch = 0;
  std::string out;
  bool as_json = false;
};

// ---- the verb

/// The state of a stream that has delivered everything before this batch, so that a session begins there.
result<schedule::stream_state> state_before(const config& settings, const prepared_dataset& dataset,
                                            std::uint64_t batch) {
  const auto order = session::plan_of(settings, dataset.description, dataset.order);
  if (!order) return tl::unexpected(order.error());
  const std::uint64_t per_epoch = order->batches_per_epoch();
  if (per_epoch == 0) return refuse(errc::sample, "the dataset has no batch");
  const std::uint64_t epochs = settings.sampler.epochs;
  if (batch / per_epoch >= epochs) {
    return refuse(errc::usage,
                  "--batch: there is no batch {}: the stream has {}, counted from 0 ({} of {}{})", batch,
                  counted(per_epoch * epochs, "batch", "batches"), counted(epochs, "epoch"), per_epoch,
                  epochs == 1 ? "" : " each");
  }
  schedule::stream_state state;
  state.identity = session::identity_of(settings, &dataset.description, dataset.order);
  state.epoch = batch / per_epoch;
  state.next_batch = batch % per_epoch;
  return state;
}

result<batch_picture> make_preview(config settings, std::uint64_t batch) {
  // This is not a real run: no control socket, and one worker is enough for one batch.
  settings.metrics.listen.clear();
  settings.loader.workers = 1;
  settings.loader.limits.min = 1;
  settings.gpu.placement = placement_rule::embedded;
  auto prepared = prepare_stream(settings);
  if (!prepared) return tl::unexpected(std::move(prepared.error()));
  const auto state = state_before(settings, *prepared, batch);
  if (!state) return tl::unexpected(state.error());
  const std::vector<std::byte> begin = schedule::serialise(*state);
  try {
    session_options options;
    options.control_socket = false;
    options.batches = 1;
    options.state = begin;
    Session session(settings, options);
    const auto found = session.next();
    if (!found) return refuse(errc::sample, "batch {} could not be loaded", batch);
    return picture_of_batch(*found, settings, sample_names(settings, *prepared), session.status().gpu.name);
  } catch (const error& e) {
    return tl::unexpected(e.as_failure());
  }
}

int preview_batch(const preview_options& o) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.as_json);
  if (!o.as_json) tell_warnings(*loaded);
  if (!o.as_json) index_with_bar(loaded->values);
  auto made = make_preview(loaded->values, o.batch);
  if (!made)
    return refuse_with(made.error().code == errc::usage ? exit_usage : exit_failed, made.error(), o.as_json);
  if (auto ok = write_png(o.out, made->sheet); !ok) return refuse_with(exit_failed, ok.error(), o.as_json);
  const std::size_t count = made->facts.at("samples").size();
  if (o.as_json) {
    made->facts["file"] = o.out;
    print_json("penstock.preview/1", made->facts);
  } else {
    say(fmt::format("{} of batch {} in {} ({} x {} pixels)", counted(count, "sample"), o.batch, o.out,
                    made->sheet.width, made->sheet.height));
  }
  return exit_ok;
}

}  // namespace

void add_preview_command(verb_table& verbs) {
  const auto o = std::make_shared<preview_options>();
  CLI::App& verb = verbs.add(
      {"preview",
       verb_group::look,
       "save a batch as a contact sheet",
       "Loads one batch as a run would, copies it to the device, reads it back, undoes the normalisation and "
       "writes all of it as one PNG, pixel for pixel, with class names and sample numbers. The picture shows "
       "what the network gets: crops, flips, colours. --batch counts through all epochs; [sampler] epochs "
       "says how many "
       "there are.",
       {{"penstock preview photos.toml --out batch.png", "the first batch"},
        {"penstock preview photos.toml --batch 1000 --set sampler.batch_size=32 --out later.png",
         "32 samples from later in the stream"},
        {"penstock preview photos.toml --out batch.png --json | jq -r '.samples[].path'",
         "also list the files in it"}}},
      [o] { return preview_batch(*o); });
  add_config_options(verb, o->source);
  add_config_shorthands(verb, o->source);
  takes_whole_number(verb.add_option("--batch", o->batch, "which batch of the stream, counted from 0"),
                     {0, count_max})
      ->capture_default_str();
  verb.add_option("--out", o->out, "the output file")->type_name("PNG")->required();
  verb.add_flag("--json", o->as_json, "print the picture's contents as JSON");
}

}  // namespace penstock::cli
