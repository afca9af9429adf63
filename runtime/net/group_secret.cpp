#include "runtime/net/group_secret.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/net/tls/stretched_secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace penstock::group {
namespace {

constexpr std::string_view of_the_group = "the group's";

result<group_secret> checked(std::string_view text, std::string_view whose, const std::string& where) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (text.size() < secret_bytes_min || text.size() > secret_bytes_max) {
    return refuse(errc::config,
                  "{} secret in {} has {} bytes; it needs {} to {}, preferably the output of "
                  "'penstock secret'",
                  whose, where, text.size(), secret_bytes_min, secret_bytes_max);
  }
  return group_secret{std::string(text)};
}

}  // namespace

result<group_secret> read_secret(const std::string& file, std::string_view whose) {
  const std::string what = fmt::format("reading {} secret from '{}'", whose, file);
  // Opened without blocking, because it may be a pipe without a writer.
  const unique_fd from(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (!from || ::fstat(from.get(), &facts) != 0) return refuse_os(errc::config, errno, what);
  if (!S_ISREG(facts.st_mode)) return refuse(errc::config, "{}: it is not a regular file", what);
  if ((facts.st_mode & 077U) != 0) {
    return refuse(
        errc::config,
        "{}: users other than its owner may use it (mode {:04o}); allow only the owner: chmod 600 '{}'", what,
        facts.st_mode & 07777U, file);
  }
  // Files of the superuser are accepted, because containers mount secrets that way.
  if (facts.st_uid != ::geteuid() && facts.st_uid != 0) {
    return refuse(errc::config, "{}: it belongs to user {}, but this process runs as user {}", what,
                  facts.st_uid, ::geteuid());
  }
  std::string text;
  std::array<char, secret_bytes_max> some{};
  while (text.size() <= secret_bytes_max) {
    const ssize_t got = ::read(from.get(), some.data(), some.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse_os(errc::config, errno, what);
    if (got == 0) break;
    text.append(some.data(), static_cast<std::size_t>(got));
  }
  return checked(text, whose, "'" + file + "'");
}

result<std::optional<group_secret>> find_secret(const std::string& file, const variable_lookup& variables) {
  const auto given = file.empty() ? variables("PENSTOCK_GROUP_SECRET") : std::nullopt;
  if (file.empty() && !given) return std::optional<group_secret>();
  auto secret = file.empty() ? checked(*given, of_the_group, "PENSTOCK_GROUP_SECRET") : read_secret(file, of_the_group);
  if (!secret) return tl::unexpected(std::move(secret.error()));
  return std::optional(std::move(*secret));
}

result<void> check_secret(const group_address& address, bool has_secret, bool insecure) {
  if (address.what == group_address::kind::abstract_socket || has_secret || insecure) return {};
  return refuse(errc::config,
                "the group meets at {}, over the network, and has no secret: set [group] secret_file or "
                "PENSTOCK_GROUP_SECRET to the same secret for all ranks, or [group] insecure = true to admit "
                "anyone who can reach that port",
                text_of(address));
}

bool is_drawn(const group_secret& secret) {
  constexpr std::size_t digits_of_32_bytes = 64;
  return secret.bytes.size() >= digits_of_32_bytes &&
         secret.bytes.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

result<std::optional<group_secret>> secret_of_links(const group_address& address, const std::string& group,
                                                    const std::string& file, bool insecure,
                                                    const variable_lookup& variables) {
  auto secret = find_secret(file, variables);
  if (!secret) return secret;
  if (auto ok = check_secret(address, secret->has_value(), insecure); !ok)
    return tl::unexpected(std::move(ok.error()));
  if (address.what != group_address::kind::tcp || !*secret || is_drawn(**secret)) return secret;
  auto key = stretched((*secret)->bytes, "penstock group secret 1: " + group);
  if (!key) return tl::unexpected(std::move(key.error()));
  (*secret)->bytes = std::move(*key);
  return secret;
}

}  // namespace penstock::group
