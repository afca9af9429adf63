#include "runtime/config/conclude.hpp"

#include "runtime/config/validate.hpp"

#include <fmt/core.h>

#include <optional>

namespace penstock::config_file {
namespace {

/// Whether the value of a key, or of a table or array that contains it, is wrong.
bool is_broken(const applied& made, const std::string& path) {
  for (const std::string& broken : made.broken) {
    const bool within =
        path.starts_with(broken) &&
        (path.size() == broken.size() || path[broken.size()] == '.' || path[broken.size()] == '[');
    if (within) return true;
  }
  return false;
}

/// Whether a mistake in [[datasets]] has left the config without its datasets. The rules would then ask for a
/// [dataset], although the user has given datasets.
bool lacks_mixture(const applied& made) {
  return made.broken.contains("datasets");
}

bool is_of_dataset(const std::string& key) {
  return key.starts_with("dataset.");
}

std::optional<value_place> place_of(const applied& made, const std::string& path) {
  const auto at = made.places.find(path);
  if (at == made.places.end()) return std::nullopt;
  return at->second;
}

std::string parent_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

/// The place to show for a missing key: the value that requires
/// it, else its table, else the beginning of the file.
span place_of_missing(const applied& made, const contradiction& rule, const source& main) {
  if (const auto asking = place_of(made, rule.other)) return asking->value;
  const std::string parent = parent_of(rule.key);
  if (const auto element = place_of(made, parent)) return element->value;
  const auto table = made.tables.find(parent);
  return table != made.tables.end() ? table->second : span{&main, 0, 0};
}

}  // namespace

config_purpose purpose_of(const applied& made) {
  const auto mentions = [&made](const std::string& table) {
    const auto key = made.places.lower_bound(table + ".");
    return made.tables.contains(table) || (key != made.places.end() && key->first.starts_with(table + "."));
  };
  const bool has_data = mentions("dataset") || made.places.contains("datasets");
  return mentions("jobs") && !has_data ? config_purpose::jobs : config_purpose::stream;
}

void complain_of_pool(const applied& made, const source& main, complaints& found) {
  const auto table = made.tables.find("jobs");
  const bool here = table != made.tables.end();
  found.add({.key = "jobs",
             .at = here ? table->second : span{&main, 0, 0},
             .message = "this configures a pool of jobs: it has [jobs], but no [dataset]",
             .label = here ? "this makes it a pool" : "",
             .help = "`penstock map` runs jobs in a pool; a stream of batches needs [dataset]"});
}

void adopt_rank(applied& made, const environment_list& environment, severity level_of_warnings,
                std::map<std::string, provenance>& sources, complaints& found) {
  constexpr const char* rank_key = "sampler.rank";
  constexpr const char* size_key = "sampler.world_size";
  const auto asked = place_of(made, rank_key);
  if (made.values.sampler.rank || !asked || is_broken(made, rank_key)) return;
  const auto adopted = adopt_launcher_rank(made.values.sampler, environment);
  if (!adopted) {
    found.add(
        {.key = rank_key,
         .at = asked->value,
         .message = fmt::format("'rank' in [sampler] cannot be \"auto\": {}", adopted.error()),
         .help = "start it with a launcher (penstock launch, torchrun, mpirun, srun), or write the number of "
                 "the rank"});
    made.broken.insert(rank_key);
    return;
  }
  if (const auto size = place_of(made, size_key)) {
    found.add({.level = level_of_warnings,
               .key = size_key,
               .at = size->value,
               .message = "'world_size' in [sampler] has no effect with rank = \"auto\"",
               .label = fmt::format("{} counts", adopted->back())});
  }
  const provenance from{provenance_kind::derived, fmt::format("{} and {}", adopted->front(), adopted->back()),
                        0};
  sources[rank_key] = from;
  sources[size_key] = from;
}

void complain_of_contradictions(const applied& made, const source& main, config_purpose purpose,
                                bool complete, severity level_of_warnings, complaints& found) {
  for (const contradiction& rule : contradictions_of(made.values, purpose)) {
    if (rule.until_complete && !complete) continue;
    if (lacks_mixture(made) && (is_of_dataset(rule.key) || is_of_dataset(rule.other))) continue;
    if (is_broken(made, rule.key) || (!rule.other.empty() && is_broken(made, rule.other))) continue;
    const auto key = place_of(made, rule.key);
    const auto other = rule.other.empty() ? std::nullopt : place_of(made, rule.other);
    complaint one{.key = rule.key, .message = rule.message, .label = rule.label, .help = rule.help};
    if (rule.doubtful) one.level = level_of_warnings;
    if (rule.missing) {
      one.at = key ? key->value : place_of_missing(made, rule, main);
      // The beginning of the file gets no label: there is nothing to describe.
      if (one.at.begin == one.at.end) one.label.clear();
    } else if (key) {
      one.at = key->value;
      if (other) one.related.push_back(excerpt_of(other->value, "contradicts this"));
    } else {
      // Only the other key was set, and it contradicts a default.
      const key_info* const by_default = key_table::get().find(rule.key);
      one.at = other ? other->value : span{&main, 0, 0};
      if (by_default != nullptr) {
        one.label = fmt::format("'{}' is {} by default", by_default->name, by_default->default_text);
      }
    }
    found.add(std::move(one));
  }
}

void complain_of_unused(const applied& made, severity level_of_warnings, complaints& found) {
  if (lacks_mixture(made)) return;  // it is unknown which keys the datasets would have used
  for (const key_info& key : key_table::get().keys()) {
    if (in_array(key) || key.is_default(&made.values)) continue;
    const std::optional<unused_because> because = unused(key.use, made.values);
    if (!because) continue;
    span at;
    if (const auto place = place_of(made, key.path)) at = place->key;
    if (const auto table = made.tables.find(key.path); table != made.tables.end()) at = table->second;
    const std::string decided_by(because->decided_by);
    if (at.in == nullptr || is_broken(made, key.path) || is_broken(made, decided_by)) continue;
    const key_info& deciding = *key_table::get().find(decided_by);
    const auto decided = place_of(made, decided_by);
    complaint one{.level = level_of_warnings,
                  .key = key.path,
                  .at = at,
                  .message = fmt::format("{} has no effect with {} = {} in [{}]", key.subject(),
                                         deciding.name, deciding.text_of(&made.values), deciding.table),
                  .label = fmt::format("used only when {} is {}", deciding.name, because->wanted)};
    if (decided) one.related.push_back(excerpt_of(decided->value, "because of this"));
    found.add(std::move(one));
  }
}

}  // namespace penstock::config_file
