#include "runtime/config/validate.hpp"

#include "runtime/base/launcher_environment.hpp"
#include "runtime/config/key_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>

namespace penstock::config_file {
namespace {

diagnostic about(const std::string& key, std::string message, std::string label, std::string help) {
  diagnostic made;
  made.message = std::move(message);
  made.key = key;
  made.where.origin = key;
  made.where.label = std::move(label);
  made.help = std::move(help);
  return made;
}

}  // namespace

std::vector<diagnostic> validate(const penstock::config& values, config_purpose purpose) {
  std::vector<diagnostic> found;
  std::set<std::string> broken;
  for (const key_info& key : key_table::get().keys()) {
    if (in_array(key)) continue;
    std::vector<breach> breaches;
    key.value->check(key.locate_in(&values), key.form, key.limits, breaches);
    for (const breach& one : breaches) {
      const char* const which = one.element == breach::whole ? "" : "an element of ";
      found.push_back(
          about(key.path, fmt::format("{}{} {}", which, key.subject(), one.predicate), one.label, one.help));
      broken.insert(key.path);
    }
  }
  const auto is_broken = [&broken](const std::string& path) {
    return broken.contains(path.substr(0, path.find('[')));
  };
  for (const contradiction& rule : contradictions_of(values, purpose)) {
    if (rule.doubtful || is_broken(rule.key) || is_broken(rule.other)) continue;
    found.push_back(about(rule.key, rule.message, rule.label, rule.help));
    if (rule.other.empty()) continue;
    excerpt other;
    other.origin = rule.other;
    found.back().related.push_back(std::move(other));
  }
  return found;
}

tl::expected<penstock::config, failure> accept(penstock::config values, const environment_list& environment,
                                               config_purpose purpose) {
  const std::vector<diagnostic> found = validate(values, purpose);
  std::string message;
  for (const diagnostic& one : found) {
    message += fmt::format("{}{}: {}", message.empty() ? "" : "\n", one.key, one.message);
    if (!one.where.label.empty()) message += ": " + one.where.label;
  }
  if (!message.empty()) return tl::unexpected(failure{errc::config, std::move(message), 0});
  if (!values.sampler.rank && purpose == config_purpose::stream) {
    const auto adopted = adopt_launcher_rank(values.sampler, environment);
    if (!adopted) {
      return tl::unexpected(
          failure{errc::config, "sampler.rank: it cannot be \"auto\": " + adopted.error(), 0});
    }
  }
  return values;
}

tl::expected<std::vector<std::string>, std::string> adopt_launcher_rank(sampler_config& sampler,
                                                                        const environment_list& environment) {
  const auto place = required_launcher_place([&](const std::string& name) -> std::optional<std::string> {
    const auto at =
        std::find_if(environment.begin(), environment.end(), [&](const auto& v) { return v.first == name; });
    if (at == environment.end()) return std::nullopt;
    return at->second;
  });
  if (!place) return tl::unexpected(place.error().message);
  sampler.rank = place->rank;
  sampler.world_size = place->world_size;
  return std::vector<std::string>{place->rank_variable, place->size_variable};
}

}  // namespace penstock::config_file
