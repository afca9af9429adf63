// replay: loads batches of a run again, from its config and dataset alone: as files, as a picture, or compared with a journal.
#include "actors/gpu_owner/npy_sink.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/config/spelling.hpp"
#include "runtime/device/decoder_choice.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/dataset/batch_picture.hpp"
#include "tools/penstock/dataset/planned_stream.hpp"
#include "tools/penstock/dataset/replayed_stream.hpp"
#include "tools/penstock/dataset/verify_journal.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/state_file.hpp"
#include "tools/penstock/verb_table.hpp"

#include <memory>
#include <optional>

namespace penstock::cli {
namespace {

struct replay_options {
  place_options place;
  std::string out{};
  std::string png{};
  std::string journal{};
  std::string state{};
};

result<std::optional<schedule::stream_state>> state_in(const std::string& path) {
  if (path.empty()) return std::optional<schedule::stream_state>();
  const auto bytes = read_state(path);
  if (!bytes) return tl::unexpected(bytes.error());
  if (bytes->empty()) return refuse(errc::usage, "--state: there is no file '{}'", printable(path));
  auto state = schedule::parse_state(*bytes);
  if (!state) return tl::unexpected(std::move(state.error()));
  return std::optional(std::move(*state));
}

// ---- one batch --------------------------------------------------------------------------------------------

struct replayed {
  std::uint64_t rows = 0;
  std::uint64_t digest = 0;
  std::string pixels;  ///< size of the picture, as text
};

result<replayed> replay_batch(const replay_options& o, const config& settings, const planned_stream& stream,
                              const planned_batch& planned) {
  try {
    replayed_stream run(settings, planned, 1, planned.before.epoch);
    const auto batch = run.next();
    if (!batch) return refuse(errc::sample, "the batch could not be loaded");
    replayed found{batch->rows(), batch->digest(), {}};
    if (!o.out.empty()) {
      auto sink = gpu_owner::npy_sink::create(o.out, settings);
      if (!sink) return tl::unexpected(std::move(sink.error()));
      if (auto ok = sink->write(*batch); !ok) return tl::unexpected(std::move(ok.error()));
    }
    if (!o.png.empty()) {
      const auto picture =
          picture_of_batch(*batch, settings, sample_names(settings, stream.prepared()), run.device());
      if (!picture) return tl::unexpected(picture.error());
      if (auto ok = write_png(o.png, picture->sheet); !ok) return tl::unexpected(std::move(ok.error()));
      found.pixels = fmt::format("{} x {} pixels", picture->sheet.width, picture->sheet.height);
    }
    return found;
  } catch (const error& e) {
    return tl::unexpected(e.as_failure());
  }
}

int replay(const replay_options& o, const config& settings, const planned_stream& stream) {
  const place_options& place = o.place;
  const auto planned = stream.batch(place.epoch, place.batch);
  if (!planned) return refuse_with(code_of(planned.error()), planned.error(), place.as_json);
  const std::vector<std::string> names = stream.names_of(planned->samples);
  const auto found = replay_batch(o, settings, stream, *planned);
  if (!found) return refuse_with(exit_failed, found.error(), place.as_json);
  if (place.as_json) {
    auto facts = facts_of(place, settings, *planned, names);
    facts["rows"] = found->rows;
    facts["digest"] = fmt::format("{:016x}", found->digest);
    if (!o.out.empty()) facts["out"] = o.out;
    if (!o.png.empty()) facts["png"] = o.png;
    print_json("penstock.replay/1", facts);
    return exit_ok;
  }
  list_samples(*planned, names);
  const std::string rows = fmt::format("{} of {}", found->rows, counted(planned->samples.size(), "sample"));
  if (!o.out.empty())
    say(fmt::format("{} in {}/e{}-b{:06}.*.npy", rows, printable(o.out), place.epoch, place.batch));
  if (!o.png.empty()) say(fmt::format("{} in {} ({})", rows, printable(o.png), found->pixels));
  return exit_ok;
}

// ---- the decoder ------------------------------------------------------------------------------------------

/// Pixels that a GPU decodes depend on its model and on nvJPEG's version (rule S43). Configs and journals contain
/// neither. A state has both, and planned_stream compares them.
result<void> check_decoder(const config& settings, bool has_state) {
  if (has_state || settings.gpu.device == "host" || !device::may_decode_on_device(settings)) return {};
  return refuse(errc::usage,
                "[image] decoder = \"{}\": the pixels depend on the GPU's model and on nvJPEG's version, which config "
                "and journal do not have. Name a state of that run, which has them (--state FILE); or, if workers "
                "decoded all of its pictures, --set image.decoder=cpu",
                config_file::spelling(settings.image.decoder));
}

// ---- the verb ---------------------------------------------------------------------------------------------

int replay_or_verify(const replay_options& o, const config& settings) {
  const bool as_json = o.place.as_json;
  if (o.out.empty() && o.png.empty() && o.journal.empty()) {
    const failure why{errc::usage, "say what to do with the batch: --out DIR, --png FILE or --verify JOURNAL",
                      0};
    return refuse_with(exit_usage, why, as_json);
  }
  if (auto ok = check_png_name("--png", o.png); !ok) return refuse_with(exit_usage, ok.error(), as_json);
  if (auto ok = check_decoder(settings, !o.state.empty()); !ok) return refuse_with(exit_usage, ok.error(), as_json);
  const auto saved = state_in(o.state);
  if (!saved) return refuse_with(code_of(saved.error()), saved.error(), as_json);
  const auto stream = planned_stream::create(settings, *saved);
  if (!stream) return refuse_with(code_of(stream.error()), stream.error(), as_json);
  return o.journal.empty() ? replay(o, settings, *stream) : verify_journal(o.journal, settings, *stream, as_json);
}

}  // namespace

void add_replay_command(verb_table& verbs) {
  const auto o = std::make_shared<replay_options>();
  CLI::App& verb = verbs.add(
      {"replay",
       verb_group::look,
       "load batches of a run again, byte for byte",
       "Loads one batch again, to show what was in it when a loss jumped. The config and the dataset are "
       "enough; a custom dataset also needs its worker program. It writes the files that `penstock run --sink npy` writes for the batch (--out), or all of "
       "its pictures (--png), and the samples' names to stdout. --verify loads all batches of a journal "
       "(`--sink journal:FILE`) and compares their digests. It names the batches that differ today, and the "
       "samples that are only in such batches. It also names batches that are missing between the first and "
       "the last one, and those that the journal has twice with different contents. The exit code is 1 if there are any of these, else 0. "
       "Batches that are there twice with equal "
       "contents are counted; a run that was killed and resumed repeats some. --state names a saved "
       "state of that run: samples that were quarantined in it are left out again, and an epoch that a group "
       "of a different size started is divided among the ranks as it was then. If the GPU may have decoded pictures "
       "([image] decoder), --state is needed: a GPU model or nvJPEG version other than the run's is refused.",
       {{"penstock replay photos.toml --epoch 3 --batch 17 --out spike", "a batch of the fourth epoch"},
        {"penstock replay photos.toml --epoch 3 --batch 17 --png spike.png", "this batch as a contact sheet"},
        {"penstock replay photos.toml --verify run.journal", "has any batch been lost, repeated or changed since that run?"},
        {"penstock replay photos.toml --batch 17 --rank 1 --world 8 --out spike --json | jq -r '.names[]'",
         "the samples that rank 1 of 8 had in batch 17"}}},
      [o] {
        return with_settings(o->place,
                             [&](const config& settings) { return replay_or_verify(*o, settings); });
      });
  add_place_options(verb, o->place);
  verb.add_option("--out", o->out, "the folder to write to")->type_name("DIR");
  verb.add_option("--png", o->png, "the picture to write: a contact sheet")->type_name("FILE");
  auto* const journal =
      verb.add_option("--verify", o->journal, "load all batches of this journal again and compare their digests")->type_name("JOURNAL");
  for (const char* other : {"--out", "--png", "--epoch", "--batch"})
    journal->excludes(verb.get_option(other));
  verb.add_option("--state", o->state, "a saved state of that run")->type_name("FILE");
}

}  // namespace penstock::cli
