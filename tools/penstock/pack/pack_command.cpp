// pack: WebDataset shards from an image folder.
#include "runtime/base/counted.hpp"
#include "runtime/base/output_lock.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/pack/pack_run.hpp"
#include "tools/penstock/pack/repack.hpp"
#include "tools/penstock/run/progress.hpp"
#include "tools/penstock/verb_table.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <filesystem>
#include <optional>
#include <vector>

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
  std::string compress = "none";
  std::string frame_size = "64KiB";
  bool json = false;
  bool quiet = false;
};

/// Writes the classes in the order of their labels, one per line.
result<void> write_classes(const std::string& out, const listing& list) {
  std::string text;
  for (const std::string& name : list.classes) text += printable(name) + "\n";
  return replace_file(out + "/classes.txt", text);
}

/// Creates the folder, and keeps other runs from writing to it while the lock is held.
result<output_lock> lock_folder(const std::string& path) {
  std::error_code fault;
  std::filesystem::create_directories(path, fault);
  if (fault) return refuse(errc::io, "creating the folder '{}': {}", printable(path), fault.message());
  auto lock = output_lock::of_folder(path, fmt::format("shards to '{}'", printable(path)));
  if (!lock) return lock;
  for (const char* const name : {"classes.txt", "pack.json"}) remove_leftovers(path + "/" + name);
  return lock;
}

/// How much a frame holds; 0: shards are not compressed.
result<std::uint64_t> frame_size_of(const pack_options& o) {
  const auto size = parse_bytes(o.frame_size);
  if (!size || *size < 4 * KiB || *size > 16 * MiB)
    return refuse(errc::usage, "--frame-size '{}' must be a size with its unit, from 4KiB to 16MiB, such as 64KiB", printable(o.frame_size));
  return o.compress == "zstd" ? *size : 0;
}

result<pack::pack_state> begin_or_continue(const pack_options& o, const listing& list,
                                           std::uint64_t shard_size, std::uint64_t frame_size) {
  const std::uint32_t quality = o.quality != 0 ? o.quality : o.resize != 0 ? usual_quality : 0;
  const pack::pack_settings settings{list.fingerprint, shard_size, o.resize, quality, o.restart_markers, frame_size};
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

int tell_repacked(const pack_options& o, const std::vector<pack::repacked_shard>& shards) {
  std::uint64_t bytes = 0;
  std::uint64_t archive_bytes = 0;
  std::size_t were_there = 0;
  for (const pack::repacked_shard& shard : shards) {
    bytes += shard.bytes;
    archive_bytes += shard.archive_bytes;
    if (shard.was_there) ++were_there;
  }
  if (o.json) {
    nlohmann::ordered_json report{{"schema", "penstock.repack/1"}, {"compress", o.compress}, {"shards", nlohmann::json::array()}};
    for (const pack::repacked_shard& shard : shards)
      report["shards"].push_back({{"name", shard.name}, {"was_there", shard.was_there}, {"bytes", shard.bytes}});
    print_json(report);
    return exit_ok;
  }
  print(fmt::format("{} of {} in {}{}", counted(shards.size(), "shard"), bytes_for_people(bytes), printable(o.out),
                    were_there > 0 ? fmt::format("; {} of them {} there already", were_there, were_there == 1 ? "was" : "were")
                                   : fmt::format(", from {} of archives", bytes_for_people(archive_bytes))));
  return exit_ok;
}

/// Archives are copied as they are, so the options for pictures do not apply.
int pack_shards(const pack_options& o, std::uint64_t frame_size) {
  if (o.resize != 0 || o.quality != 0 || o.restart_markers)
    return refuse_with(exit_usage,
                       {errc::usage,
                        fmt::format("'{}' names tar shards, which are copied member by member: --resize, --quality and --restart-markers "
                                    "are for image folders",
                                    printable(o.folder)),
                        0},
                       o.json);
  const auto shards = list_shards(o.folder);
  if (!shards) return refuse_with(exit_failed, shards.error(), o.json);
  if (shards->store)
    return refuse_with(exit_usage,
                       {errc::usage, fmt::format("'{}' is not on this machine: pack reads shards only from files; copy them first",
                                                 printable(o.folder)), 0},
                       o.json);
  const auto lock = lock_folder(o.out);
  if (!lock) return refuse_with(exit_failed, lock.error(), o.json);
  std::atomic<std::uint64_t> passed{0};
  std::optional<progress_display> display;
  if (!o.quiet && !o.json)
    display.emplace(compared<std::uint64_t>([&] { return passed.load(); },
                                            [](std::uint64_t now, std::uint64_t before, double seconds, std::size_t width, bool) {
                                              const double rate = seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
                                              return fmt::format("packing  {}  {}/s", bytes_for_people(now), bytes_for_people(static_cast<std::uint64_t>(rate)))
                                                  .substr(0, width);
                                            }));
  const auto made = pack::repack(*shards, o.out, frame_size, o.threads != 0 ? o.threads : process::usable_cores(), passed);
  display.reset();
  if (!made) return refuse_with(made.error().code == errc::usage ? exit_usage : exit_failed, made.error(), o.json);
  return tell_repacked(o, *made);
}

int pack_folder(const pack_options& o) {
  const auto frame_size = frame_size_of(o);
  if (!frame_size) return refuse_with(exit_usage, frame_size.error(), o.json);
  if (pack::names_shards(o.folder, o.out)) return pack_shards(o, *frame_size);
  const auto shard_size = parse_bytes(o.shard_size);
  if (!shard_size || *shard_size < 1 * MiB)
    return refuse_with(exit_usage,
                       {errc::usage,
                        fmt::format("--shard-size '{}' must be a size with its unit, at least 1MiB, such as 1GiB",
                                    printable(o.shard_size)),
                        0},
                       o.json);
  const auto list = list_image_folder(o.folder);
  if (!list) return refuse_with(exit_failed, list.error(), o.json);
  if (!o.json && !o.quiet)
    for (const std::string& notice : list->notices) say("notice: " + notice);
  const auto lock = lock_folder(o.out);
  if (!lock) return refuse_with(exit_failed, lock.error(), o.json);
  auto state = begin_or_continue(o, *list, *shard_size, *frame_size);
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
       "write an image folder as WebDataset shards, or compress shards",
       "Writes the pictures of an image folder, in the order of its sample indices, into tar "
       "shards that type = "
       "\"tar\" and WebDataset read: KEY.jpg (or .jpeg, .png, .webp) and KEY.cls, the class as a number. "
       "KEY is the picture's path "
       "without its extension, with '_' for other dots in its name. classes.txt has the names of "
       "the classes.\n\n"
       "Files are copied unchanged. With --resize or --quality each picture is encoded again instead: it is "
       "turned as its EXIF orientation says, reduced, and written as a JPEG without metadata.\n\n"
       "With --restart-markers, JPEGs are rewritten without loss: their pixels and metadata stay. A crop "
       "then reads only "
       "the parts of a file that it needs, which takes workers less time. Progressive files become "
       "sequential. "
       "Bytes after the end of a picture are left out.\n\n"
       "With --compress zstd, shards become .tar.zst files of frames that are read one by one. Texts and "
       "arrays become smaller, JPEGs do not. FOLDER may also be tar shards (a shard, a folder of them, a "
       "pattern): they are compressed as they are, or decompressed without --compress.\n\n"
       "A shard gets its name when it is complete. After an interruption, run the same command again: it "
       "continues after the last complete shard, and the result is the same. One run at a time may write to a "
       "folder. The report is in pack.json. "
       "Exit code 1 means that some pictures could not be read and were left out.",
       {{"penstock pack photos --out shards", "shards of 1 GiB, with unchanged files"},
        {"penstock pack photos --out small --resize 256 --quality 90 --shard-size 256MiB",
         "reduced to 256 pixels on the shorter side"},
        {"penstock pack photos --out shards --restart-markers", "for training with random crops"},
        {"penstock pack shards --out compressed --compress zstd", "make the shards of a folder smaller"},
        {"penstock pack photos --out shards --json | jq '.failed[].path'",
         "print the pictures that were left out"}}},
      [o] { return pack_folder(*o); });
  verb.add_option("FOLDER", o->folder, "the image folder: one folder for each class; or tar shards")
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
  verb.add_option("--compress", o->compress, "none or zstd")->type_name("HOW")->check(CLI::IsMember({"none", "zstd"}))->capture_default_str();
  verb.add_option("--frame-size", o->frame_size,
                  "with zstd: how much is compressed, and read, at once; smaller frames suit random access, larger ones compress better")
      ->type_name("SIZE")
      ->capture_default_str();
  takes_whole_number(
      verb.add_option("--threads", o->threads, "threads that read and encode; default: one per core"),
      {1, 1024})
      ->type_name("N");
  verb.add_flag("--quiet", o->quiet, "show no progress and no notices");
  verb.add_flag("--json", o->json, "print the report as JSON");
}

}  // namespace penstock::cli
