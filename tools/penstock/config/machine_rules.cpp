#include "tools/penstock/config/machine_rules.hpp"

#include "actors/session/sizing.hpp"
#include "runtime/base/member_choice.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/base/worker_slots.hpp"
#include "runtime/dataset/listing/path_pattern.hpp"
#include "runtime/dataset/mixture/mixture.hpp"
#include "runtime/net/group_secret.hpp"
#include "runtime/process/cores.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/process/spawn.hpp"
#include "runtime/process/worker_cores.hpp"
#include "runtime/storage/object_store.hpp"
#include "tools/penstock/config/first_samples.hpp"
#include "tools/penstock/config/local_data.hpp"

#include <algorithm>
#include <fstream>

namespace penstock::cli {
namespace {

/// The position of a key's value in its line, if it comes from a file.
config_file::excerpt place_of(const config_file::provenance& from, std::string_view key_name,
                              const std::filesystem::path& file) {
  config_file::excerpt where;
  where.origin = from.origin;
  if (from.line == 0) return where;
  // The path in `origin` is relative to the working
  // folder, or to the folder of the main config file.
  std::ifstream text(from.origin);
  if (!text) text.open(file.parent_path() / from.origin);
  std::string line;
  for (std::uint32_t i = 0; i < from.line && std::getline(text, line);) ++i;
  where.line = from.line;
  const std::size_t key = line.find(key_name);
  const std::size_t equals = line.find('=', key == std::string::npos ? 0 : key);
  const std::size_t begin = line.find_first_not_of(" \t", equals == std::string::npos ? 0 : equals + 1);
  if (key == std::string::npos || begin == std::string::npos) return where;
  const char* ends = line[begin] == '"' ? "\"" : line[begin] == '[' ? "]" : " \t#,}";
  const std::size_t end = line.find_first_of(ends, begin + 1);
  where.column = static_cast<std::uint32_t>(begin + 1);
  where.length = static_cast<std::uint32_t>(
      std::min(end == std::string::npos ? line.size() : end + (*ends == ' ' ? 0 : 1), line.size()) - begin);
  where.source_line = line;
  return where;
}

/// A warning at the value of `key`.
config_file::diagnostic warning_at(const std::string& key, const config_file::loaded_config& loaded, const std::filesystem::path& file) {
  config_file::diagnostic doubt;
  doubt.level = config_file::severity::warning;
  doubt.key = key;
  doubt.where = place_of(loaded.source_of(key), std::string_view(key).substr(key.rfind('.') + 1), file);
  return doubt;
}

}  // namespace

std::optional<config_file::diagnostic> slots_beyond_memory(const config_file::loaded_config& loaded,
                                                           const std::filesystem::path& file) {
  const loader_config& l = loaded.values.loader;
  if (!l.slot_bytes) return std::nullopt;
  const std::uint32_t workers =
      std::clamp<std::uint32_t>(l.workers.value_or(process::usable_cores()), 1, l.limits.max);
  // Assumes a pool's number of slots. A session's workers have more only if all slots of a worker fit in 8 MiB.
  const arena::geometry shape{l.slot_bytes->bytes, slots_of_a_pool_worker(l), places_of(l)};
  const auto fits =
      arena::check_memory(session::memory_need_of(loaded.values, shape, workers), arena::memory_limits());
  if (fits) return std::nullopt;
  config_file::diagnostic no;
  no.message = fits.error().message;
  no.key = "loader.slot_bytes";
  no.where = place_of(loaded.source_of(no.key), "slot_bytes", file);
  no.where.label = "does not fit on this machine";
  return no;
}

std::optional<config_file::diagnostic> cores_not_here(const config_file::loaded_config& loaded,
                                                      const std::filesystem::path& file) {
  const auto plan = process::plan_cores(loaded.values.loader.affinity, process::allowed_cores(), std::nullopt);
  if (plan) return std::nullopt;
  config_file::diagnostic doubt = warning_at("loader.affinity", loaded, file);
  doubt.message = plan.error().message;
  doubt.where.label = "not all of these may be used here";
  doubt.help = "no problem if the job runs on another machine";
  return doubt;
}

namespace {

/// Checks that need no contact with a server.
std::optional<config_file::diagnostic> store_not_usable(const dataset_config& dataset, const std::string& key,
                                                        const std::string& table,
                                                        const config_file::loaded_config& loaded,
                                                        const std::filesystem::path& file) {
  if (dataset.type == dataset_type::custom) return std::nullopt;
  const auto usable = check_remote_path(dataset.path);
  if (usable) return std::nullopt;
  config_file::diagnostic doubt = warning_at(key, loaded, file);
  doubt.message = fmt::format("'path' in {}: {}", table, usable.error().message);
  doubt.where.label = "cannot be read on this machine";
  doubt.help = "no problem if another machine reads it; `penstock run` needs it";
  return doubt;
}

/// `key`: the path's key; `table`: for the message.
std::optional<config_file::diagnostic> path_not_here(const dataset_config& dataset, const std::string& key,
                                                     const std::string& table,
                                                     const config_file::loaded_config& loaded,
                                                     const std::filesystem::path& file) {
  const std::string& path = dataset.path;
  if (is_url(path)) return store_not_usable(dataset, key, table, loaded, file);
  std::error_code fault;
  if (path.empty() || std::filesystem::exists(path, fault)) return std::nullopt;
  if (is_pattern(path) && paths_of_pattern(path, "file")) return std::nullopt;
  config_file::diagnostic doubt = warning_at(key, loaded, file);
  doubt.message = fmt::format("'path' in {}: '{}' {} on this machine", table, printable(path),
                              fault ? "cannot be checked (" + fault.message() + ")" : "does not exist");
  doubt.where.label = fault ? "" : "not here";
  doubt.help = "no problem if the data is on another machine, but `penstock run` needs it here";
  return doubt;
}

}  // namespace

std::optional<config_file::diagnostic> data_not_here(const config_file::loaded_config& loaded,
                                                     const std::filesystem::path& file) {
  if (loaded.values.datasets.empty())
    return path_not_here(loaded.values.dataset, "dataset.path", "[dataset]", loaded, file);
  for (std::size_t i = 0; i < loaded.values.datasets.size(); ++i) {
    const mixed_dataset_config& one = loaded.values.datasets[i];
    if (auto doubt = path_not_here(one.dataset, fmt::format("datasets[{}].path", i),
                                   fmt::format("[[datasets]] '{}'", one.name), loaded, file))
      return doubt;
  }
  return std::nullopt;
}

std::optional<config_file::diagnostic> data_not_usable(const config_file::loaded_config& loaded, const std::filesystem::path& file) {
  if (data_not_here(loaded, file)) return std::nullopt;
  const auto warning = [&](const std::string& key, const std::string& table, const std::string& trouble) {
    config_file::diagnostic doubt = warning_at(key, loaded, file);
    doubt.message = fmt::format("'path' in {}: {}", table, trouble);
    doubt.where.label = "not what this type reads";
    doubt.help = "`penstock run` would fail here";
    return doubt;
  };
  const config& values = loaded.values;
  if (values.datasets.empty()) {
    const auto trouble = trouble_with_files(values);
    return trouble ? std::optional(warning("dataset.path", "[dataset]", *trouble)) : std::nullopt;
  }
  for (std::size_t i = 0; i < values.datasets.size(); ++i) {
    if (const auto trouble = trouble_with_files(settings_of_part(values, i)))
      return warning(fmt::format("datasets[{}].path", i), fmt::format("[[datasets]] '{}'", values.datasets[i].name), *trouble);
  }
  return std::nullopt;
}

namespace {

std::string with_commas(const std::vector<std::string>& extensions) {
  std::string text;
  for (const std::string& one : extensions) text += (text.empty() ? "." : ", .") + printable(one);
  return text;
}

/// "'000000', '000001' and '000002' have .jpg, .cls"; "'000000' has .jpg, .cls; '000001' has .jpg"
std::string members_in_words(const first_samples& found) {
  std::string text;
  for (auto first = found.extensions.begin(); first != found.extensions.end();) {
    const auto end = std::find_if(first, found.extensions.end(), [&](const auto& one) { return one.second != first->second; });
    if (!text.empty()) text += "; ";
    for (auto one = first; one != end; ++one)
      text += fmt::format("{}'{}'", one == first ? "" : one + 1 == end ? " and " : ", ", printable(one->first));
    text += fmt::format(" {} {}", first + 1 == end ? "has" : "have", with_commas(first->second));
    first = end;
  }
  return text;
}

/// `table`: for the message and the key: "dataset", "datasets[1]".
std::optional<config_file::diagnostic> members_not_in(const dataset_config& dataset, const std::string& table,
                                                         const config_file::loaded_config& loaded, const std::filesystem::path& file) {
  if (dataset.type != dataset_type::tar) return std::nullopt;
  const auto choices = member_choices(dataset.members);
  const auto found = choices ? look_at_first_samples(dataset.path) : std::nullopt;
  if (!found) return std::nullopt;
  std::vector<std::string> all;
  for (const auto& [key, extensions] : found->extensions) all.insert(all.end(), extensions.begin(), extensions.end());
  for (const member_choice& choice : *choices) {
    if (std::ranges::find_first_of(choice.extensions, all) != choice.extensions.end()) continue;
    const bool named = !dataset.members.empty();
    const std::string_view near = nearest_name(choice.extensions.front(), all);
    config_file::diagnostic doubt = warning_at(named ? fmt::format("{}.members.{}", table, choice.tensor) : table + ".path", loaded, file);
    doubt.message = fmt::format("the first samples of '{}' have no member {} for the tensor '{}': {}", printable(found->shard),
                                with_commas(choice.extensions), choice.tensor, members_in_words(*found));
    doubt.where.label = named ? "in none of them" : "tensors are 'image' and 'label' unless 'members' names others";
    doubt.help = near.empty() ? fmt::format("write one of those, as in {} = \"{}\"", choice.tensor, printable(all.front()))
                              : fmt::format("did you mean \"{}\"?", printable(near));
    return doubt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<config_file::diagnostic> members_not_there(const config_file::loaded_config& loaded, const std::filesystem::path& file) {
  if (loaded.values.datasets.empty()) return members_not_in(loaded.values.dataset, "dataset", loaded, file);
  for (std::size_t i = 0; i < loaded.values.datasets.size(); ++i) {
    if (auto doubt = members_not_in(loaded.values.datasets[i].dataset, fmt::format("datasets[{}]", i), loaded, file)) return doubt;
  }
  return std::nullopt;
}

std::optional<config_file::diagnostic> hosts_without_secret(const config_file::loaded_config& loaded,
                                                            const std::filesystem::path& file) {
  const hosts_config& hosts = loaded.values.loader.hosts;
  if (!has_hosts(loaded.values.loader) || !hosts.secret_file.empty() || hosts.insecure) return std::nullopt;
  const std::string name = hosts.listen.empty() ? "connect" : "listen";
  config_file::diagnostic doubt = warning_at("loader.hosts." + name, loaded, file);
  doubt.level = config_file::severity::error;
  doubt.message = fmt::format("'{}' in [loader.hosts] {} loader hosts, but there is no secret: no host could join, and `penstock run` "
                              "refuses to start",
                              name, hosts.listen.empty() ? "calls" : "admits");
  doubt.where.label = "needs 'secret_file' or 'insecure'";
  doubt.help = "make one with `penstock secret > hosts.secret`, set 'secret_file' to it here and start hosts with --secret-file; or, in a "
               "network where any machine may join, set 'insecure = true' and start hosts with --insecure";
  return doubt;
}

std::optional<config_file::diagnostic> hosts_secret_not_here(const config_file::loaded_config& loaded,
                                                             const std::filesystem::path& file) {
  const hosts_config& hosts = loaded.values.loader.hosts;
  if (!has_hosts(loaded.values.loader) || hosts.secret_file.empty()) return std::nullopt;
  const auto secret = group::read_secret(hosts.secret_file, "the hosts'");
  if (secret) return std::nullopt;
  config_file::diagnostic doubt = warning_at("loader.hosts.secret_file", loaded, file);
  doubt.message = "'secret_file' in [loader.hosts]: " + secret.error().message;
  const bool not_here = secret.error().os_code != 0;  // the config may be for another machine
  if (!not_here) doubt.level = config_file::severity::error;
  doubt.where.label = not_here ? "not readable here" : "not usable";
  if (not_here) doubt.help = "make one with `penstock secret > hosts.secret`, and give hosts a copy (--secret-file)";
  return doubt;
}

std::optional<config_file::diagnostic> program_not_here(const config_file::loaded_config& loaded,
                                                        const std::filesystem::path& file) {
  const auto program = process::find_program(loaded.values.loader.command.front());
  if (program) return std::nullopt;
  config_file::diagnostic doubt = warning_at("loader.command", loaded, file);
  doubt.message = "'command' in [loader]: " + program.error().message;
  doubt.where.label = "not here";
  doubt.help = "a path with a '/' is relative to the config file; `penstock run` needs the program";
  return doubt;
}

std::optional<config_file::diagnostic> nothing_to_deliver(const config_file::loaded_config& loaded,
                                                          const std::filesystem::path& file) {
  const config& c = loaded.values;
  if (c.dataset.type != dataset_type::synthetic || c.sampler.kind == sampler_kind::subset)
    return std::nullopt;
  const auto some = session::check_there_are_batches(c, c.dataset.samples);
  if (some) return std::nullopt;
  const std::string_view word = session::left_out_by_drop(c, c.dataset.samples) ? "uneven" : "drop_last";
  config_file::diagnostic no;
  no.message = some.error().message;
  no.key = fmt::format("sampler.{}", word);
  no.where = place_of(loaded.source_of(no.key), word, file);
  no.where.label = "leaves out all samples";
  return no;
}

}  // namespace penstock::cli
