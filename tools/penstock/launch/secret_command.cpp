// secret: generates the secret that a group's ranks on several hosts share.
#include "runtime/base/write_all.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/launch/launch_machine.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace penstock::cli {
namespace {

constexpr std::size_t secret_bytes = 32;
constexpr ::mode_t of_others = 077;

/// With `>`, a shell creates a file that all users can read, and [group] secret_file refuses such a file.
result<void> make_private(int file) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || (facts.st_mode & of_others) == 0) return {};
  if (::fchmod(file, facts.st_mode & 07700U) == 0) return {};
  return refuse_os(
      errc::io, errno,
      fmt::format("making the file on stdout (mode {:04o}) accessible only to its owner; nothing was written",
                  facts.st_mode & 07777U));
}

int secret(bool json) {
  const auto drawn = random_text(secret_bytes);
  if (!drawn) return refuse_with(exit_failed, drawn.error(), json);
  if (auto ok = make_private(STDOUT_FILENO); !ok) return refuse_with(exit_failed, ok.error(), false);
  const std::string line = json ? nlohmann::ordered_json{{"schema", "penstock.secret/1"}, {"secret", *drawn}}.dump() : *drawn;
  if (const int why = write_all(STDOUT_FILENO, line + "\n"); why != 0)
    return refuse_with(exit_failed, os_failure(errc::io, why, "writing the secret to stdout"), false);
  return exit_ok;
}

}  // namespace

void add_secret_command(verb_table& verbs) {
  const auto json = std::make_shared<bool>(false);
  CLI::App& verb = verbs.add(
      {"secret",
       verb_group::run,
       "generate a secret for ranks on several hosts",
       "Writes 32 random bytes as 64 hexadecimal digits to stdout. If stdout is a file, it becomes "
       "accessible only to its owner. "
       "The ranks of a group on several hosts prove to each other that they have the same secret: [group] "
       "secret_file, or the variable PENSTOCK_GROUP_SECRET. A passphrase of at least 16 bytes works as well, "
       "but is easier to guess.",
       {{"penstock secret > photos.secret", "for secret_file = \"photos.secret\" in [group]"},
        {"export PENSTOCK_GROUP_SECRET=$(penstock secret)",
         "in a job script, for all ranks that it starts"}}},
      [json] { return secret(*json); });
  verb.add_flag("--json", *json, "as one JSON object");
}

}  // namespace penstock::cli
