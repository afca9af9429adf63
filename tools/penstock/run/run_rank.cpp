#include "tools/penstock/run/run_rank.hpp"

#include "runtime/base/sink_choice.hpp"
#include "runtime/base/text.hpp"
#include "runtime/group/rank_files.hpp"
#include "runtime/group/this_process.hpp"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace penstock::cli {

result<bool> joins_group(const config_file::loaded_config& loaded) {
  if (loaded.values.group.join != join_rule::automatic) return false;
  const variable_lookup variable = group::variable_of_this_process;
  auto place = launcher_place_in(variable);
  if (!place) return tl::unexpected(std::move(place.error()));
  const bool named = variable("PENSTOCK_GROUP").has_value();
  if (!*place && named) {
    auto missing = required_launcher_place(variable);
    return tl::unexpected(std::move(missing.error()));
  }
  if (!*place || ((*place)->world_size == 1 && !named)) return false;
  if (!(*place)->runs_in_each_rank && !named) return false;
  // A session made in code cannot distinguish defaults from settings written in a file.
  const sampler_config& s = loaded.values.sampler;
  const bool written =
      loaded.sources.contains("sampler.rank") || loaded.sources.contains("sampler.world_size");
  if (written && s.rank && (*s.rank != (*place)->rank || s.world_size != (*place)->world_size)) {
    return refuse(errc::config,
                  "the config says rank {} of {} ([sampler]), but this process is rank {} of {} according to "
                  "{}: leave 'rank' and 'world_size' out, or set [group] join = \"never\"",
                  *s.rank, s.world_size, (*place)->rank, (*place)->world_size, (*place)->launcher);
  }
  return true;
}

namespace {

constexpr std::size_t journal_bytes_looked_at = 65'536;

bool is_one_of_several(const std::optional<launcher_place>& place) {
  return place && place->world_size > 1 && place->runs_in_each_rank;
}

}  // namespace

std::optional<launcher_place> rank_of_files(const config_file::loaded_config& loaded, bool joins) {
  auto place = launcher_place_in(group::variable_of_this_process).value_or(std::nullopt);
  const bool has_part = joins || loaded.values.sampler.world_size > 1;
  return has_part && place && place->world_size > 1 ? std::move(place) : std::nullopt;
}

std::optional<launcher_place> rank_of_files() {
  auto place = launcher_place_in(group::variable_of_this_process).value_or(std::nullopt);
  return is_one_of_several(place) ? std::move(place) : std::nullopt;
}

run_files files_of_rank(run_files given, const launcher_place& place) {
  return {group::sink_of_rank(given.sink, place.rank), group::folder_of_rank(given.out, place.rank),
          group::file_of_rank(given.report, place.rank)};
}

result<void> check_state_path(const std::string& path, const launcher_place& place) {
  const auto other = group::other_rank_named(path, place.rank, place.world_size);
  if (!other) return {};
  return refuse(errc::usage,
                "--state '{}' names rank {}, but this is rank {} of {}: give all ranks one path that does not end in a rank's number, or each "
                "rank a path that ends in its own",
                printable(path), *other, place.rank, place.world_size);
}

std::string whole_path(const std::string& path) {
  std::error_code unknown;  // set if the current folder is unknown: the path then stays as given
  const auto whole = std::filesystem::absolute(path, unknown);
  return unknown ? path : whole.string();
}

std::string notice_of_journal(const std::string& sink) {
  const auto [kind, path] = sink_choice_in(sink);
  // Reading a FIFO would wait for a writer.
  if (std::error_code unknown; kind != sink_kind::journal || !std::filesystem::is_regular_file(path, unknown)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string begin(journal_bytes_looked_at, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  if (begin.find("\"batch\":") == std::string::npos) return {};
  return fmt::format("the journal '{}' already has batches: this run starts at the beginning of the stream and appends its batches",
                     printable(path));
}

std::map<std::string, std::string> files_by_kind(const run_files& files, const std::vector<std::string>& states) {
  std::map<std::string, std::string> all;
  if (!files.report.empty()) all["report"] = whole_path(files.report);
  if (!states.empty()) all["state"] = whole_path(states.front());
  const auto [kind, path] = sink_choice_in(files.sink);
  if (kind == sink_kind::journal) all["journal"] = whole_path(path);
  if (kind == sink_kind::npy) all["batches"] = whole_path(files.out);
  return all;
}

}  // namespace penstock::cli
