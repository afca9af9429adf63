// pack: WebDataset shards from an image folder.
#include "runtime/base/counted.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/pack/pack_run.hpp"
#include "tools/penstock/run/progress.hpp"
#include "tools/penstock/verb_table.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace penstock::cli {
namespace {

constexpr std::uint32_t usual_quality = 90;

struct pack_options {
  std::string folder;
  std::string out;
  std::string shard_size = "1GiB";
  std::uint32_t resize = 0;
  std::uint32_t quality = 0;
  std::uint32_t threads = 0;
  bool restart_markers = false;
  bool json = false;
  bool quiet = false;
};

/// The classes in the order of their labels, one a line.
result<void> write_classes(const std::string& out, const listing& list) {
  std::string text;
  for (const std::string& name : list.classes) text += printable(name) + "\n";
  return replace_file(out + "/classes.txt", text);
}

result<pack::pack_state> begin_or_continue(const pack_options& o, const listing& list,
                                           std::uint64_t shard_size) {
  const std::uint32_t quality = o.quality != 0 ? o.quality : o.resize != 0 ? usual_quality : 0;
  const pack::pack_settings settings{list.fingerprint, shard_size, o.resize, quality, o.restart_markers};
  std::error_code fault;
  std::filesystem::create_directories(o.out, fault);
  if (fault) return refuse(errc::io, "creating the folder '{}': {}", printable(o.out), fault.message());
  auto found = pack::read_state(o.out, settings);
  if (!found) return tl::unexpected(std::move(found.error()));
  pack::pack_state state = *found ? std::move(**found) : pack::pack_state{};
  state.settings = settings;
  state.folder = o.folder;
  state.samples_all = list.files.size();
  return state;
}

result<void> write_all_shards(const pack_options& o, const listing& list, pack::pack_state& state) {
  const unsigned threads = o.threads != 0 ? o.threads : process::usable_cores();
  pack::pack_progress progress;
  std::optional<progress_display> display;
  struct position {
    std::uint64_t samples;
    std::uint64_t bytes;
  };
  if (!o.quiet && !o.json) {
    display.emplace(compared<position>(
        [&] {
          return position{progress.samples, progress.bytes};
        },
        [all = state.samples_all](const position& now, const position& before, double seconds,
                                  std::size_t width, bool with_bar) {
          const double rate = seconds > 0 ? static_cast<double>(now.samples - before.samples) / seconds : 0;
          const double share = static_cast<double>(now.samples) / static_cast<double>(all);
          return fmt::format("packing  {}{:.0f} %  {}  {}{}", with_bar ? progress_bar(share) + " " : "",
                             100 * share, rate_for_people(rate, "picture"), bytes_for_people(now.bytes),
                             time_left(static_cast<double>(all - now.samples), rate))
              .substr(0, width);
        }));
  }
  return pack::write_shards(list, o.out, threads, state, progress);
}

/// "; with restart markers 41.0 MiB instead of 42.1 MiB, 200 were progressive, 3 unchanged"
std::string marker_text(const pack::pack_state& state) {
  if (!state.settings.restart_markers) return {};
  const pack::marker_counts& counts = state.markers;
  std::string text = fmt::format("; with restart markers {} instead of {}",
                                 bytes_for_people(counts.bytes_after), bytes_for_people(counts.bytes_before));
  if (counts.were_progressive > 0) text += fmt::format(", {} were progressive", counts.were_progressive);
  if (counts.unchanged > 0) text += fmt::format(", {} unchanged", counts.unchanged);
  return text;
}

int tell_result(const pack_options& o, const pack::pack_state& state) {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  for (const pack::packed_shard& shard : state.shards) {
    samples += shard.samples;
    bytes += shard.bytes;
  }
  const int code = state.failed.empty() ? exit_ok : exit_failed;
  if (o.json) {
    auto report = pack::as_json(state);
    report["packed"] = samples;
    report["bytes"] = bytes;
    print_json(report);
    return code;
  }
  constexpr std::size_t shown = 10;
  for (std::size_t i = 0; i < std::min(shown, state.failed.size()); ++i)
    say(fmt::format("left out: {}: {}", printable(state.failed[i].path), printable(state.failed[i].reason)));
  if (state.failed.size() > shown)
    say(fmt::format("... and {} more, in {}/pack.json", state.failed.size() - shown, printable(o.out)));
  print(fmt::format("{} in {}, {}, in {}{}{}", counted(samples, "picture"),
                    counted(state.shards.size(), "shard"), bytes_for_people(bytes), printable(o.out),
                    marker_text(state),
                    state.failed.empty() ? "" : fmt::format("; {} left out", state.failed.size())));
  return code;
}

int pack_folder(const pack_options& o) {
  const auto shard_size = parse_bytes(o.shard_size);
  if (!shard_size || *shard_size < 1 * MiB)
    return refuse_with(exit_usage,
                       {errc::usage,
                        fmt::format("--shard-size '{}': a size with its unit, at least 1MiB, such as 1GiB",
                                    printable(o.shard_size)),
                        0},
                       o.json);
  const auto list = list_image_folder(o.folder);
  if (!list) return refuse_with(exit_failed, list.error(), o.json);
  if (!o.json && !o.quiet)
    for (const std::string& notice : list->notices) say("notice: " + notice);
  auto state = begin_or_continue(o, *list, *shard_size);
  if (!state)
    return refuse_with(state.error().code == errc::usage ? exit_usage : exit_failed, state.error(), o.json);
  if (!o.json && !o.quiet && state->next_sample > 0)
    say(fmt::format("continuing after {}: {} of {} pictures are packed",
                    counted(state->shards.size(), "shard"), state->next_sample, state->samples_all));
  if (!state->complete()) {
    if (auto ok = write_classes(o.out, *list); !ok) return refuse_with(exit_failed, ok.error(), o.json);
    if (auto ok = write_all_shards(o, *list, *state); !ok)
      return refuse_with(exit_failed, ok.error(), o.json);
  }
  return tell_result(o, *state);
}

}  // namespace

void add_pack_command(verb_table& verbs) {
  const auto o = std::make_shared<pack_options>();
  CLI::App& verb = verbs.add(
      {"pack",
       verb_group::run,
       "write an image folder as WebDataset shards",
       "Writes the pictures of an image folder, in the order of its sample indices, into tar "
       "shards that type = "
       "\"tar\" and WebDataset read: KEY.jpg (or .jpeg, .png) and KEY.cls, the class as a number. "
       "KEY is the picture's path "
       "without its extension, with '_' for other dots in its name. classes.txt has the names of "
       "the classes.\n\n"
       "Files are copied unchanged. With --resize or --quality each picture is encoded again instead: it is "
       "turned as its EXIF orientation says, reduced, and written as a JPEG without metadata.\n\n"
       "With --restart-markers, JPEGs are rewritten without loss: their pixels and metadata stay. A crop "
       "then reads only "
       "the parts of a file that it needs, which takes workers less time. Progressive files become "
       "sequential. "
       "What is behind the end of a picture is left out.\n\n"
       "A shard gets its name when it is complete. After an interruption, run the same command again: it "
       "continues after the last complete shard, and the result is the same. The report is in pack.json. "
       "Exit code 1 means that some pictures could not be read and were left out.",
       {{"penstock pack photos --out shards", "shards of 1 GiB, with unchanged files"},
        {"penstock pack photos --out small --resize 256 --quality 90 --shard-size 256MiB",
         "reduced to 256 pixels on the shorter side"},
        {"penstock pack photos --out shards --restart-markers", "for training with random crops"},
        {"penstock pack photos --out shards --json | jq '.failed[].path'",
         "print the pictures that were left out"}}},
      [o] { return pack_folder(*o); });
  verb.add_option("folder", o->folder, "the image folder: one folder for each class")
      ->type_name("FOLDER")
      ->required();
  verb.add_option("--out", o->out, "folder for the shards; created if it is missing")
      ->type_name("DIR")
      ->required();
  verb.add_option("--shard-size", o->shard_size, "size of a shard; a larger picture has its own shard")
      ->type_name("SIZE")
      ->capture_default_str();
  takes_whole_number(verb.add_option("--resize", o->resize,
                                     "reduce the shorter side to this many pixels; smaller "
                                     "pictures keep their size"),
                     {1, 65500})
      ->type_name("N");
  takes_whole_number(verb.add_option("--quality", o->quality,
                                     "JPEG quality of pictures that are encoded again (with --resize: 90)"),
                     {1, 100})
      ->type_name("Q");
  verb.add_flag("--restart-markers", o->restart_markers,
                "rewrite JPEGs without loss, so that crops decode faster");
  takes_whole_number(
      verb.add_option("--threads", o->threads, "threads that read and encode; default: one per core"),
      {1, 1024})
      ->type_name("N");
  verb.add_flag("--quiet", o->quiet, "show no progress and no notices");
  verb.add_flag("--json", o->json, "print the report as JSON");
}

}  // namespace penstock::cli
