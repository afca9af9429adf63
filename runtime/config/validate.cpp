#include "runtime/config/validate.hpp"

#include "runtime/base/text.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/rules.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
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

struct launcher_variables {
  std::string rank;
  std::string size;
};

std::optional<std::string> value_of(const environment_list& environment, const std::string& name) {
  const auto at =
      std::find_if(environment.begin(), environment.end(), [&](const auto& v) { return v.first == name; });
  if (at == environment.end()) return std::nullopt;
  return at->second;
}

tl::expected<std::uint32_t, std::string> number_in(const environment_list& environment,
                                                   const std::string& name, const std::string& partner) {
  const std::optional<std::string> text = value_of(environment, name);
  if (!text) return tl::unexpected(fmt::format("{} is set, but {} is not", partner, name));
  std::uint32_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, status] = std::from_chars(text->data(), end, number);
  if (status != std::errc{} || rest != end) {
    return tl::unexpected(
        fmt::format("{} is '{}', which is not a whole number", name, printable(shortened(*text, 60))));
  }
  return number;
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
    if (is_broken(rule.key) || is_broken(rule.other)) continue;
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
  const std::array<launcher_variables, 3> launchers{{{"RANK", "WORLD_SIZE"},
                                                     {"SLURM_PROCID", "SLURM_NTASKS"},
                                                     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}}};
  const auto launcher = std::find_if(
      launchers.begin(), launchers.end(),
      [&](const launcher_variables& names) { return value_of(environment, names.rank).has_value(); });
  if (launcher == launchers.end())
    return tl::unexpected(std::string("no launcher has set a rank in the environment"));
  const auto rank = number_in(environment, launcher->rank, launcher->size);
  if (!rank) return tl::unexpected(rank.error());
  const auto size = number_in(environment, launcher->size, launcher->rank);
  if (!size) return tl::unexpected(size.error());
  if (*rank >= *size) {
    return tl::unexpected(fmt::format("{} is {}, which is not below {}, which is {}", launcher->rank, *rank,
                                      launcher->size, *size));
  }
  const key_info& world_size = *key_table::get().find("sampler.world_size");
  if (static_cast<double>(*size) > world_size.limits.high) {
    return tl::unexpected(fmt::format("{} is {}; world_size must be {}", launcher->size, *size,
                                      limits_text(world_size.form, world_size.limits)));
  }
  sampler.rank = *rank;
  sampler.world_size = *size;
  return std::vector<std::string>{launcher->rank, launcher->size};
}

}  // namespace penstock::config_file
