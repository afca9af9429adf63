#include "actors/remote/dataset_program.hpp"

#include "actors/remote/agreement.hpp"
#include "actors/supervisor/lone_worker.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/spawn.hpp"
#include "runtime/storage/sha256.hpp"

#include <fmt/ranges.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

namespace penstock::hosts {
namespace {

/// Digest of the program's file. Libraries and scripts that it loads are not in it.
result<std::string> digest_of(const std::string& program) {
  if (auto ok = check_sha256(); !ok) return tl::unexpected(std::move(ok.error()));
  auto path = process::find_program(program);
  if (!path) return tl::unexpected(std::move(path.error()));
  std::ifstream file(*path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file || bytes.empty()) return refuse_os(errc::worker_program, errno, fmt::format("reading the worker program '{}'", *path));
  return hex_of(sha256(bytes));
}

/// `arguments`: as the session would write them.
result<described_program> describe(const config& settings, const std::vector<std::string>& command, const std::vector<std::string>& arguments,
                                   const string_map& environment, const std::atomic<bool>* given_up) {
  auto digest = digest_of(command.front());
  if (!digest) return tl::unexpected(std::move(digest.error()));
  const auto failed = [&](failure why) -> result<described_program> {
    why.message = fmt::format("having '{}' describe the dataset: {}", printable(command.front()), why.message);
    return tl::unexpected(std::move(why));
  };
  auto worker = supervisor::lone_worker::start(
      {command, supervisor::worker_environment(environment), {}, settings.loader.hang.start_deadline, given_up});
  if (!worker) return failed(std::move(worker.error()));
  if (auto ok = (*worker)->greet(); !ok) return failed(std::move(ok.error()));
  auto described = (*worker)->open(settings);
  if (!described) return failed(std::move(described.error()));
  return described_program{std::move(*described),
                           {{"a worker program with SHA-256", std::move(*digest)},
                            {"worker arguments", fmt::format("[{}]", fmt::join(arguments, ", "))}}};
}

}  // namespace

result<described_program> describe_custom(const config& settings) {
  const std::vector<std::string>& command = settings.loader.command;
  return describe(settings, command, {command.begin() + 1, command.end()}, settings.loader.env, nullptr);
}

result<described_program> describe_custom_on_host(const config& here, const std::vector<std::string>& command, const string_map& own,
                                                  const std::atomic<bool>* given_up) {
  if (command.empty())
    return refuse(errc::config, "the session's dataset is \"custom\": only its worker program can read it, and no session can make a host "
                                "run one; give --program FILE, this machine's copy of that program");
  std::vector<std::string> arguments;
  for (auto one = command.begin() + 1; one != command.end(); ++one) arguments.push_back(path_of_session(*one, here, own));
  return describe(here, command, arguments, {{"PENSTOCK_ON_HOST", "1"}}, given_up);
}

}  // namespace penstock::hosts
