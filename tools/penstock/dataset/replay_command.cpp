// replay: loads batches of a run again, from its config and dataset alone: as files, as a picture, or compared with a journal.
#include "actors/gpu_owner/npy_sink.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/config/spelling.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/device/decoder_choice.hpp"
#include "tools/penstock/chaos/batch_journal.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/dataset/batch_picture.hpp"
#include "tools/penstock/dataset/journal_check.hpp"
#include "tools/penstock/dataset/planned_stream.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/state_file.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/session.hpp>

#include <algorithm>
#include <memory>
#include <optional>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::uint64_t journal_bytes_max = std::uint64_t{1} << 36U;

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

/// Loads consecutive batches as the run did, and hands them to this program.
class replayed_stream {
 public:
  /// Throws error, as its members do.
  replayed_stream(config settings, const planned_batch& first, std::uint64_t batches)
      : begin_(schedule::serialise(first.before)),
        session_(within(std::move(settings), first, batches), options_of(begin_, batches)) {}

  std::optional<Batch> next() { return session_.next(); }
  [[nodiscard]] std::string device() const { return session_.status().gpu.name; }

 private:
  static config within(config settings, const planned_batch& first, std::uint64_t batches) {
    settings.metrics.listen.clear();
    if (batches == 1) settings.loader.workers = 1;
    settings.loader.limits.min = 1;
    settings.gpu.placement = placement_rule::embedded;
    settings.scheduler.order = order_rule::strict;
    settings.group.communicator = communicator_kind::none;
    // A run may have had more epochs (--epochs) than the file says.
    settings.sampler.epochs = std::max(settings.sampler.epochs, first.before.epoch + 1);
    return settings;
  }
  static session_options options_of(const std::vector<std::byte>& begin, std::uint64_t batches) {
    session_options options;
    options.control_socket = false;
    options.batches = batches;
    options.state = begin;
    return options;
  }

  std::vector<std::byte> begin_;
  Session session_;
};

// ---- one batch --------------------------------------------------------------------------------------------

struct replayed {
  std::uint64_t rows = 0;
  std::uint64_t digest = 0;
  std::string pixels;  ///< size of the picture, as text
};

result<replayed> replay_batch(const replay_options& o, const config& settings, const planned_stream& stream,
                              const planned_batch& planned) {
  try {
    replayed_stream run(settings, planned, 1);
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

// ---- a journal --------------------------------------------------------------------------------------------

result<planned_batch> batch_of_journal(const planned_stream& stream, const delivered_batch& one) {
  if (auto found = stream.batch(one.epoch, one.sequence)) return found;
  const epoch_extent has = stream.batches_of(one.epoch);
  return refuse(errc::dataset,
                "the journal has batch {} of epoch {}, but this config and dataset do not: that epoch has {}, "
                "counted from {}. The journal belongs to another dataset, batch size or number of ranks",
                one.sequence, one.epoch, counted(has.end - has.first, "batch", "batches"), has.first);
}

/// Loads all batches of the journal, with one session for each run of consecutive batches.
result<void> compare(journal_check& check, const config& settings, const planned_stream& stream) {
  const auto& batches = check.batches();
  for (std::size_t at = 0; at < batches.size();) {
    const auto first = batch_of_journal(stream, batches[at]);
    if (!first) return tl::unexpected(first.error());
    std::size_t end = at + 1;
    while (end < batches.size() && batches[end].epoch == batches[at].epoch &&
           batches[end].sequence == batches[end - 1].sequence + 1)
      ++end;
    // If the last batch of a run exists, the batches before it do, too.
    if (const auto last = batch_of_journal(stream, batches[end - 1]); !last)
      return tl::unexpected(last.error());
    try {
      replayed_stream run(settings, *first, end - at);
      for (; at < end; ++at) {
        const auto batch = run.next();
        if (!batch)
          return refuse(errc::sample, "batch {} of epoch {} could not be loaded", batches[at].sequence,
                        batches[at].epoch);
        check.take(at, {{batch->samples().begin(), batch->samples().end()}, batch->digest()});
      }
    } catch (const error& e) {
      return tl::unexpected(e.as_failure());
    }
  }
  return {};
}

json facts_of(const journal_check& check, const std::vector<missing_batches>& gaps, const planned_stream& stream) {
  const auto named = [&](const auto& samples) {
    json list = json::array();
    for (const std::uint64_t sample : samples)
      list.push_back({{"sample", sample}, {"name", stream.name_of(sample)}});
    return list;
  };
  json changed = json::array();
  for (const changed_batch& one : check.changed()) {
    changed.push_back({{"epoch", one.epoch},
                       {"seq", one.sequence},
                       {"was", fmt::format("{:016x}", one.was)},
                       {"is", fmt::format("{:016x}", one.is)},
                       {"samples", one.samples},
                       {"gone", named(one.gone)},
                       {"come", named(one.come)}});
  }
  json contradictory = json::array();
  for (const delivered_batch& one : check.contradictory())
    contradictory.push_back({{"epoch", one.epoch}, {"seq", one.sequence}});
  json missing = json::array();
  for (const missing_batches& gap : gaps)
    missing.push_back({{"epoch", gap.epoch}, {"first", gap.first}, {"last", gap.last}});
  return {{"batches", check.batches().size()},
          {"changed", std::move(changed)},
          {"suspects", named(check.suspects())},
          {"repeated", check.repeated()},
          {"contradictory", check.contradictory().size()},
          {"contradictory_batches", std::move(contradictory)},
          {"missing", std::move(missing)}};
}

void tell_gaps(const journal_check& check, const std::vector<missing_batches>& gaps) {
  for (const missing_batches& gap : gaps)
    print(gap.first == gap.last
              ? fmt::format("batch {} of epoch {} is missing", gap.first, gap.epoch)
              : fmt::format("batches {} to {} of epoch {} are missing", gap.first, gap.last, gap.epoch));
  if (!gaps.empty() || check.batches().empty()) return;
  const delivered_batch& first = check.batches().front();
  const delivered_batch& last = check.batches().back();
  say(fmt::format("no batch is missing from batch {} of epoch {} to batch {} of epoch {}", first.sequence,
                  first.epoch, last.sequence, last.epoch));
}

void tell(const journal_check& check, const std::vector<missing_batches>& gaps, const planned_stream& stream) {
  const auto list = [&](std::string_view what, const auto& samples) {
    for (const std::uint64_t sample : samples)
      print(fmt::format("  {}: {}\t{}", what, sample, stream.name_of(sample)));
  };
  const std::set<std::uint64_t> suspects = check.suspects();
  for (const changed_batch& one : check.changed()) {
    print(fmt::format("epoch {}, batch {}: {:016x} in the journal, {:016x} today", one.epoch, one.sequence,
                      one.was, one.is));
    list("gone", one.gone);
    list("come", one.come);
    std::vector<std::uint64_t> here;
    for (const std::uint64_t sample : one.samples)
      if (suspects.contains(sample)) here.push_back(sample);
    list("may have changed", here);
  }
  for (const delivered_batch& one : check.contradictory())
    print(fmt::format("epoch {}, batch {}: the journal has it twice, with different samples or digests",
                      one.epoch, one.sequence));
  tell_gaps(check, gaps);
  say(fmt::format("{} of {} as in the journal", check.batches().size() - check.changed().size(),
                  counted(check.batches().size(), "batch", "batches")));
  if (check.changed().size() == check.batches().size() && check.changed().size() > 1)
    say("none is: the journal may belong to another dataset or seed");
  const std::uint64_t equal = check.repeated() - check.contradictory().size();
  if (equal > 0)
    say(fmt::format("{} in the journal more than once, with equal samples and digests; a run that was killed and resumed repeats some",
                    counted(equal, "batch is", "batches are")));
}

int verify(const replay_options& o, const config& settings, const planned_stream& stream) {
  const bool as_json = o.place.as_json;
  file_reader file;
  const auto refused = [&](const failure& why) {
    return refuse_with(exit_failed,
                       {why.code, fmt::format("'{}' {}", printable(o.journal), why.message), why.os_code},
                       as_json);
  };
  const auto bytes = file.read(o.journal, journal_bytes_max);
  if (!bytes) return refused(bytes.error());
  auto journal = read_journal({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  if (!journal) {
    journal.error().message = "cannot be used: " + journal.error().message;
    return refused(journal.error());
  }
  if (journal->batches.empty())
    return refused({errc::io, "has no batches to compare; `penstock run --sink journal:FILE` writes them", 0});
  journal_check check(journal->batches);
  if (auto ok = compare(check, settings, stream); !ok) return refuse_with(exit_failed, ok.error(), as_json);
  const std::vector<missing_batches> gaps = check.missing([&](std::uint64_t epoch) { return stream.batches_of(epoch); });
  if (as_json)
    print_json("penstock.replay-verify/1", facts_of(check, gaps, stream));
  else
    tell(check, gaps, stream);
  return check.changed().empty() && check.contradictory().empty() && gaps.empty() ? exit_ok : exit_failed;
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
  return o.journal.empty() ? replay(o, settings, *stream) : verify(o, settings, *stream);
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
        {"penstock replay photos.toml --epoch 3 --batch 17 --png spike.png", "the same as a contact sheet"},
        {"penstock replay photos.toml --verify run.journal", "has any batch been lost, repeated or changed since that run?"},
        {"penstock replay photos.toml --batch 17 --rank 1 --world 8 --out spike --json | jq -r '.names[]'",
         "what rank 1 of 8 had in it"}}},
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
