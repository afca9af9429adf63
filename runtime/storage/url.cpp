#include "runtime/storage/url.hpp"

#include "runtime/base/text.hpp"

namespace penstock {
namespace {

bool is_letter_or_digit(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

void append_encoded(std::string& to, char c) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(c);
  to += '%';
  to += digits[byte >> 4U];
  to += digits[byte & 15U];
}

}  // namespace

result<url> parse_url(std::string_view text) {
  if (!is_url(text)) return refuse(errc::config, "'{}' is not an s3, http or https URL", printable(text));
  const std::string_view scheme = text.substr(0, text.find("://"));
  const std::string_view rest = text.substr(scheme.size() + 3);
  const std::size_t slash = rest.find('/');
  url parts{std::string(scheme), std::string(rest.substr(0, slash)),
            slash == std::string_view::npos ? "/" : std::string(rest.substr(slash))};
  if (parts.authority.find('@') != std::string::npos)
    return refuse(errc::config, "a URL must not have a user name or password: they would appear in logs");
  if (parts.authority.empty() || parts.authority.front() == ':')
    return refuse(errc::config, "'{}' names no {}", printable(text), scheme == "s3" ? "bucket" : "host");
  if (scheme != "s3" && rest.find_first_of("?#") != std::string_view::npos)
    return refuse(errc::config, "a URL must not have '?' or '#': what follows would appear in names of samples");
  return parts;
}

bool is_same_server(const url& a, const url& b) {
  const auto with_port = [](const url& of) {
    const bool has_port = of.authority.rfind(':') != std::string::npos && of.authority.back() != ']';
    return has_port ? of.authority : of.authority + (of.scheme == "http" ? ":80" : ":443");
  };
  return a.scheme == b.scheme && with_port(a) == with_port(b);
}

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = is_letter_or_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
    if (plain || (c == '/' && keep_slashes)) {
      encoded += c;
    } else {
      append_encoded(encoded, c);
    }
  }
  return encoded;
}

std::string path_as_sent(std::string_view path) {
  std::string sent;
  for (const char c : path) {
    const bool unsafe = c <= ' ' || c >= 0x7f || std::string_view("\"<>\\^`{|}").find(c) != std::string_view::npos;
    if (unsafe) {
      append_encoded(sent, c);
    } else {
      sent += c;
    }
  }
  return sent;
}

}  // namespace penstock
