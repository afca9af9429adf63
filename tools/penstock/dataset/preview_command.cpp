// preview: reads one batch back from the device and draws it as a contact sheet.
#include "actors/session/sizing.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/dataset_type.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/dataset/batch_picture.hpp"
#include "tools/penstock/dataset/index_display.hpp"
#include "tools/penstock/dataset/planned_stream.hpp"
#include "tools/penstock/dataset/token_text.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/session.hpp>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <optional>

namespace penstock::cli {
namespace {

struct preview_options {
  config_source source;
  std::uint64_t batch = 0;
  std::string out;
  std::string tokenizer;
  bool as_json = false;
};

/// A batch as a picture; a batch of token ids as text.
struct shown_batch {
  std::optional<batch_picture> picture;
  std::string text;
  nlohmann::ordered_json facts;
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

bool is_of_tokens(const config& settings) {
  return type_of(settings) == dataset_type::tokens;
}

/// A line for each sequence: index, name, and its text or, without a vocabulary, its ids.
shown_batch text_of_batch(const Batch& batch, const sample_names& names, const vocabulary* known) {
  shown_batch made;
  std::vector<std::int64_t> ids;
  for (const tensor_view& t : batch.tensors()) {
    if (t.name != "tokens") continue;
    const auto raw = batch.read_back("tokens");
    ids.resize(raw.size() / size_of(t.type));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::int32_t narrow = 0;
      if (t.type == dtype::int64)
        std::memcpy(&ids[i], raw.data() + i * sizeof ids[i], sizeof ids[i]);
      else
        std::memcpy(&narrow, raw.data() + i * sizeof narrow, sizeof narrow);
      if (t.type != dtype::int64) ids[i] = narrow;
    }
  }
  const std::size_t length = batch.rows() == 0 ? 0 : ids.size() / batch.rows();
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    const auto own = std::span(ids).subspan(row * length, length);
    const std::uint64_t sample = batch.samples()[row];
    const std::string name = names.of_sample(sample).value_or("");
    const std::string text = known != nullptr ? printable(known->text_of(own)) : fmt::format("{}", fmt::join(own, " "));
    made.text += fmt::format("{}\t{}\t{}\n", sample, name, text);
    samples.push_back({{"sample", sample}, {"path", name}, {"text", known != nullptr ? nlohmann::ordered_json(text) : nlohmann::ordered_json(nullptr)}});
  }
  made.facts = {{"epoch", batch.epoch()}, {"seq", batch.sequence()}, {"samples", std::move(samples)}};
  return made;
}

result<shown_batch> make_preview(config settings, std::uint64_t batch, const vocabulary* known) {
  // This is not a real run: no control socket, and one worker is enough for one batch.
  settings.metrics.listen.clear();
  settings.loader.workers = 1;
  settings.loader.limits.min = 1;
  settings.gpu.placement = placement_rule::embedded;
  auto prepared = prepare_by_worker(settings);
  if (!prepared) return tl::unexpected(std::move(prepared.error()));
  const auto state = state_before(settings, *prepared, batch);
  if (!state) return tl::unexpected(state.error());
  if (settings.dataset.type != dataset_type::custom) keep_prepared(settings, *prepared);
  const std::vector<std::byte> begin = schedule::serialise(*state);
  try {
    session_options options;
    options.control_socket = false;
    options.batches = 1;
    options.state = begin;
    Session session(settings, options);
    const auto found = session.next();
    if (!found) return refuse(errc::sample, "batch {} could not be loaded", batch);
    const sample_names names(settings, *prepared);
    if (is_of_tokens(settings)) return text_of_batch(*found, names, known);
    auto picture = picture_of_batch(*found, settings, names, session.status().gpu.name);
    if (!picture) return tl::unexpected(std::move(picture.error()));
    nlohmann::ordered_json facts = std::move(picture->facts);
    return shown_batch{std::move(*picture), "", std::move(facts)};
  } catch (const error& e) {
    return tl::unexpected(e.as_failure());
  }
}

int preview_batch(const preview_options& o) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.as_json);
  if (!o.as_json) tell_warnings(*loaded);
  if (!o.as_json) index_with_bar(loaded->values, notices_told::by_caller);
  if (auto ok = check_png_name("--out", o.out); !is_of_tokens(loaded->values) && !ok)
    return refuse_with(exit_usage, ok.error(), o.as_json);
  if (is_of_tokens(loaded->values) && ends_with_any_case(o.out, ".png"))
    return refuse_with(exit_usage, {errc::usage, fmt::format("--out '{}': token ids are written as text, so name it .txt", printable(o.out)), 0}, o.as_json);
  std::optional<vocabulary> known;
  if (!o.tokenizer.empty()) {
    if (!is_of_tokens(loaded->values))
      return refuse_with(exit_usage, {errc::usage, "--tokenizer: only datasets of type tokens have token ids", 0}, o.as_json);
    auto read = vocabulary::read(o.tokenizer);
    if (!read) return refuse_with(exit_failed, read.error(), o.as_json);
    known.emplace(std::move(*read));
  }
  auto made = make_preview(loaded->values, o.batch, known ? &*known : nullptr);
  if (!made)
    return refuse_with(made.error().code == errc::usage ? exit_usage : exit_failed, made.error(), o.as_json);
  auto written = made->picture ? write_png(o.out, made->picture->sheet)
                               : replace_file(o.out, made->text);
  if (!written) return refuse_with(exit_failed, written.error(), o.as_json);
  const std::size_t count = made->facts.at("samples").size();
  if (o.as_json) {
    made->facts["file"] = o.out;
    print_json("penstock.preview/1", made->facts);
  } else {
    const std::string size =
        made->picture ? fmt::format(" ({} x {} pixels)", made->picture->sheet.width, made->picture->sheet.height) : "";
    say(fmt::format("{} of batch {} in {}{}", counted(count, "sample"), o.batch, o.out, size));
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
       "there are. Token ids become a text file with a line for each sequence: its number, where it begins, and its ids, or its text "
       "with --tokenizer.",
       {{"penstock preview photos.toml --out batch.png", "the first batch"},
        {"penstock preview photos.toml --batch 1000 --set sampler.batch_size=32 --out later.png",
         "32 samples from later in the stream"},
        {"penstock preview tokens.toml --tokenizer tokenizer.json --out batch.txt", "what the model reads"},
        {"penstock preview photos.toml --out batch.png --json | jq -r '.samples[].path'",
         "also list the files in it"}}},
      [o] { return preview_batch(*o); });
  add_stream_options(verb, o->source);
  add_config_shorthands(verb, o->source);
  takes_whole_number(verb.add_option("--batch", o->batch, "which batch of the stream, counted from 0"),
                     {0, count_max})
      ->capture_default_str();
  verb.add_option("--out", o->out, "the output file")->type_name("PNG")->required();
  verb.add_option("--tokenizer", o->tokenizer,
                  "show text instead of token ids: the vocabulary's entries of this tokenizer.json of Hugging Face, unchanged")
      ->type_name("FILE");
  verb.add_flag("--json", o->as_json, "print the picture's contents as JSON");
}

}  // namespace penstock::cli
