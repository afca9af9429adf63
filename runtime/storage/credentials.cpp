#include "runtime/storage/credentials.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/base/read_at.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/storage/sha256.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <map>

namespace penstock {
namespace {

using profile = std::map<std::string, std::string, std::less<>>;

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

/// The entries of [section]; empty if there is no such section.
std::optional<profile> section_of(std::string_view text, std::string_view section) {
  std::optional<profile> found;
  bool inside = false;
  while (!text.empty()) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    const std::string_view line = trimmed(whole);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      inside = trimmed(line.substr(1, line.size() - 2)) == section;
      if (inside && !found) found.emplace();
      continue;
    }
    // Indented lines belong to a nested table of the entry above.
    const std::size_t equals = line.find('=');
    if (!inside || equals == std::string_view::npos || whole.front() == ' ' || whole.front() == '\t') continue;
    (*found)[std::string(trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
  }
  return found;
}

std::string entry(const std::optional<profile>& from, std::string_view name) {
  if (!from) return {};
  const auto found = from->find(name);
  return found == from->end() ? std::string() : found->second;
}

result<std::optional<s3_credentials>> credentials_of(const profile& from, const std::string& name) {
  s3_credentials who{entry(from, "aws_access_key_id"), entry(from, "aws_secret_access_key"),
                     entry(from, "aws_session_token")};
  if (who.access_key.empty() && who.secret_key.empty()) {
    for (const std::string_view way : {"credential_process", "role_arn", "sso_session", "sso_start_url"})
      if (from.contains(way))
        return refuse(errc::config,
                      "the profile '{}' gets its keys through '{}', which is not supported: export them first (aws "
                      "configure export-credentials --format env)",
                      printable(name), way);
    return std::nullopt;
  }
  if (who.access_key.empty() || who.secret_key.empty())
    return refuse(errc::config, "the profile '{}' has {} without {}", printable(name),
                  who.access_key.empty() ? "aws_secret_access_key" : "aws_access_key_id",
                  who.access_key.empty() ? "aws_access_key_id" : "aws_secret_access_key");
  return who;
}

/// Empty if the file does not exist.
result<std::string> text_of_file(const std::string& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return std::string();
  if (!file) return refuse_os(errc::config, errno, fmt::format("opening '{}'", printable(path)));
  std::string text(MiB, '\0');
  const read_part got = read_at(file.get(), 0, std::as_writable_bytes(std::span(text)));
  if (got.error != 0) return refuse_os(errc::config, got.error, fmt::format("reading '{}'", printable(path)));
  text.resize(got.bytes);
  return text;
}

}  // namespace

result<s3_settings> s3_settings_from(const environment_lookup& variable, std::string_view credentials_text,
                                     std::string_view config_text) {
  const auto value = [&](const char* name) -> std::string {
    const char* const text = variable(name);
    return text == nullptr ? "" : text;
  };
  const auto first_of = [](std::initializer_list<std::string> all) {
    for (const std::string& one : all)
      if (!one.empty()) return one;
    return std::string();
  };
  const std::string name = first_of({value("AWS_PROFILE"), "default"});
  const std::optional<profile> keys = section_of(credentials_text, name);
  const std::optional<profile> more =
      section_of(config_text, name == "default" ? name : fmt::format("profile {}", name));
  s3_settings found;
  found.region = first_of({value("AWS_REGION"), value("AWS_DEFAULT_REGION"), entry(more, "region"), "us-east-1"});
  found.endpoint = first_of({value("AWS_ENDPOINT_URL_S3"), value("AWS_ENDPOINT_URL"), entry(more, "endpoint_url")});
  while (found.endpoint.ends_with('/')) found.endpoint.pop_back();
  const std::string access_key = value("AWS_ACCESS_KEY_ID");
  const std::string secret_key = value("AWS_SECRET_ACCESS_KEY");
  if (access_key.empty() != secret_key.empty())
    return refuse(errc::config, "{} is set without {}", access_key.empty() ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID",
                  access_key.empty() ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY");
  if (!access_key.empty()) {
    found.who = s3_credentials{access_key, secret_key, value("AWS_SESSION_TOKEN")};
    return found;
  }
  if (!keys && !more && !value("AWS_PROFILE").empty())
    return refuse(errc::config, "AWS_PROFILE is '{}', but neither credentials nor config has that profile",
                  printable(name));
  for (const auto* const from : {&keys, &more}) {
    if (!*from) continue;
    auto who = credentials_of(**from, name);
    if (!who) return tl::unexpected(std::move(who.error()));
    if (*who) {
      found.who = std::move(*who);
      break;
    }
  }
  return found;
}

result<s3_settings> read_s3_settings() {
  const auto text_of = [](const char* variable, const char* below_home) -> result<std::string> {
    if (const char* const given = std::getenv(variable); given != nullptr && *given != '\0') return text_of_file(given);
    const char* const home = std::getenv("HOME");
    return home == nullptr || *home == '\0' ? std::string() : text_of_file(std::string(home) + below_home);
  };
  const auto credentials = text_of("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
  if (!credentials) return tl::unexpected(credentials.error());
  const auto config = text_of("AWS_CONFIG_FILE", "/.aws/config");
  if (!config) return tl::unexpected(config.error());
  auto found = s3_settings_from([](const char* name) { return std::getenv(name); }, *credentials, *config);
  if (found && found->who) {
    if (auto ok = check_sha256(); !ok) return tl::unexpected(std::move(ok.error()));
  }
  return found;
}

}  // namespace penstock
