#include "actors/remote/agreement.hpp"

#include "actors/protocol/tensors.hpp"
#include "runtime/base/file_text.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

namespace penstock::hosts {
namespace {

constexpr std::size_t shown_bytes_max = 200;
constexpr std::size_t lists_max = 64;  // lists of arguments

bool is_below(const std::string& path, const std::string& folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || folder.ends_with('/') || path[folder.size()] == '/');
}

std::string mapped(const std::string& path, const string_map& folders) {
  const std::pair<const std::string, std::string>* best = nullptr;
  for (const auto& one : folders) {
    if (is_below(path, one.first) && (best == nullptr || one.first.size() > best->first.size())) best = &one;
  }
  return best == nullptr ? path : best->second + path.substr(best->first.size());
}

/// Whether a URL, or an expansion of a pattern's braces, may contain "..". Ranges such as {000..127} do not
/// count.
bool may_lead_up(std::string_view path) {
  const auto is_plain = [&](std::size_t at) { return at < path.size() && std::isalnum(static_cast<unsigned char>(path[at])) != 0; };
  for (std::size_t at = path.find(".."); at != std::string_view::npos; at = path.find("..", at + 1)) {
    if (at == 0 || !is_plain(at - 1) || !is_plain(at + 2)) return true;
  }
  if (path.find('{') == std::string_view::npos) return false;
  constexpr std::array joints{"{.", ",.", ".}", ".,", "{,", ",}", ",,", "{}"};  // where two dots can meet when the braces are expanded
  return std::ranges::any_of(joints, [&](const char* joint) { return path.find(joint) != std::string_view::npos; });
}

bool is_below_any(const std::string& path, const string_map& own) {
  const bool literal = !is_url(path) && path.find('{') == std::string::npos;
  if (!literal && may_lead_up(path)) return false;
  const std::string plain = literal ? std::filesystem::path(path).lexically_normal().string() : path;
  return std::ranges::any_of(own, [&](const auto& one) { return is_below(plain, one.second); });
}

std::string on_host(const std::string& path, const string_map& of_session, const string_map& own) {
  const std::string there = mapped(path, own);
  return there == path ? mapped(path, of_session) : there;
}

/// Every path that the two maps turn into `argument`, or `argument` itself if there is none.
std::vector<std::string> names_of_session(const std::string& argument, const string_map& of_session, const string_map& own) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& before, const std::string& path) {
    for (const string_map* folders : {&own, &of_session}) {
      for (const auto& [from, to] : *folders) {
        if (!is_below(path, to)) continue;
        const std::string name = from + path.substr(to.size());
        if (on_host(name, of_session, own) == path && std::ranges::find(names, before + name) == names.end()) names.push_back(before + name);
      }
    }
  };
  add("", argument);
  if (const std::size_t end = argument.find('='); end != std::string::npos) add(argument.substr(0, end + 1), argument.substr(end + 1));
  if (names.empty()) names.push_back(argument);
  return names;
}

result<void> move(std::string& path, const config& settings, const string_map& own) {
  if (path.empty()) return {};
  const std::string there = on_host(path, settings.loader.hosts.path_map, own);
  if (!own.empty() && !is_below_any(there, own))
    return refuse(errc::config, "the session reads '{}', which is '{}' here and not below a folder of --data", path, there);
  path = there;
  return {};
}

}  // namespace

std::string difference_of_versions(const std::string& penstock_there, std::uint32_t protocol_there,
                                   const std::string& penstock_here) {
  if (penstock_there != penstock_here)
    return fmt::format("the host runs penstock {}, but the session runs penstock {}", penstock_there, penstock_here);
  if (protocol_there != protocol::version)
    return fmt::format("the host speaks protocol {}, but the session speaks {}", protocol_there, protocol::version);
  return {};
}

std::string difference_of_datasets(const dataset_description& here, const protocol::dataset_described& there) {
  if (there.type != here.type) return fmt::format("the host's dataset is of type {}, but the session's is {}", there.type, here.type);
  if (there.samples != here.samples)
    return fmt::format("the host's dataset has {} samples, but the session's has {}", there.samples, here.samples);
  if (there.fingerprint != here.fingerprint)
    return fmt::format("the host's dataset has the fingerprint {}, but the session's has {}", there.fingerprint, here.fingerprint);
  const auto tensors = protocol::from_wire(there.tensors);
  if (!tensors || *tensors != here.tensors) return "the host's dataset has different tensors than the session's";
  return {};
}

std::string difference_of_facts(const string_map& here, const std::vector<wire_fact>& there) {
  for (const auto& [name, value] : here) {
    const auto found = std::ranges::find(there, name, &wire_fact::name);
    if (found == there.end()) return fmt::format("the host has no {}, but the session has {} {}", name, name, value);
    const bool equal = std::ranges::any_of(there, [&](const wire_fact& one) { return one.name == name && one.value == value; });
    if (!equal)
      return fmt::format("the host has {} {}, but the session has {} {}", name, found->value, name, value);
  }
  return {};
}

std::vector<wire_fact> as_wire(const string_map& facts) {
  std::vector<wire_fact> all;
  for (const auto& [name, value] : facts) all.push_back({name, value});
  return all;
}

result<config> config_on_host(config settings, const string_map& own) {
  if (auto ok = move(settings.dataset.path, settings, own); !ok) return tl::unexpected(std::move(ok.error()));
  for (mixed_dataset_config& one : settings.datasets) {
    if (auto ok = move(one.dataset.path, settings, own); !ok) return tl::unexpected(std::move(ok.error()));
  }
  settings.storage.cache.clear();  // the session's cache is a folder on its own machine
  return settings;
}

std::vector<std::vector<std::string>> arguments_of_session(const std::vector<std::string>& arguments, const config& here, const string_map& own) {
  std::vector<std::vector<std::string>> lists{{}};
  for (const std::string& argument : arguments) {
    std::vector<std::vector<std::string>> longer;
    for (const std::string& name : names_of_session(argument, here.loader.hosts.path_map, own)) {
      for (const auto& list : lists) {
        if (longer.size() == lists_max) break;
        longer.emplace_back(list).push_back(name);
      }
    }
    lists = std::move(longer);
  }
  return lists;
}

result<void> check_list(const std::string& list, std::string_view text, const string_map& own) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const bool relative = line.front() != '/' && !is_url(line);
    const std::string path = relative ? (std::filesystem::path(list).parent_path() / line).string() : std::string(line);
    if (is_below_any(path, own)) continue;
    return refuse(errc::config, "line {} of '{}' is '{}', which is not below a folder of --data", number, list,
                  printable(shortened(line, shown_bytes_max)));
  }
  return {};
}

result<void> check_lists(const config& here, const string_map& own) {
  std::vector<std::string> paths{here.dataset.path};
  for (const mixed_dataset_config& one : here.datasets) paths.push_back(one.dataset.path);
  for (const std::string& path : paths) {
    if (own.empty() || !ends_with_any_case(path, ".txt")) continue;
    if (is_url(path)) return refuse(errc::config, "the list '{}' is in object storage, where --data cannot be checked", path);
    if (auto ok = check_list(path, text_of_file(path), own); !ok) return ok;  // if it cannot be read, the listing reports that later
  }
  return {};
}

}  // namespace penstock::hosts
