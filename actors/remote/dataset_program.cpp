#include "actors/remote/dataset_program.hpp"

#include "actors/remote/agreement.hpp"
#include "actors/supervisor/lone_worker.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/dataset_type.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/read_at.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/spawn.hpp"
#include "runtime/storage/sha256.hpp"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <cerrno>
#include <span>
#include <utility>

namespace penstock::hosts {
namespace {

constexpr std::int64_t ns_a_second = 1'000'000'000;

std::int64_t as_ns(const timespec& time) {
  return time.tv_sec * ns_a_second + time.tv_nsec;
}

std::string text_of(const program_file& file) {
  const auto seconds = [](std::int64_t ns) { return fmt::format("{}.{:09}", ns / ns_a_second, ns % ns_a_second); };
  return fmt::format("inode {} of device {}, {} bytes, modified at {}, changed at {}", file.inode, file.device, file.bytes,
                     seconds(file.modified_ns), seconds(file.changed_ns));
}

/// Covers the file alone, not the libraries and scripts that it loads.
result<std::string> digest_of(const program_file& program) {
  if (auto ok = check_sha256(); !ok) return tl::unexpected(std::move(ok.error()));
  const std::string what = fmt::format("reading the worker program '{}'", printable(program.path));
  const unique_fd file(::open(program.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return refuse_os(errc::worker_program, errno, what);
  std::string bytes(program.bytes, '\0');
  const read_part got = read_at(file.get(), 0, std::as_writable_bytes(std::span(bytes)));
  if (got.error != 0) return refuse_os(errc::worker_program, got.error, what);
  if (got.bytes != bytes.size()) return refuse(errc::worker_program, "{}: it ends at byte {}, but had {} bytes", what, got.bytes, program.bytes);
  return hex_of(sha256(bytes));
}

/// `arguments`: the lists that the session may have in its config.
result<described_program> describe(const config& settings, std::vector<std::string> command, const std::vector<std::vector<std::string>>& arguments,
                                   const string_map& environment, const std::atomic<bool>* given_up) {
  auto path = process::find_program(command.front());
  if (!path) return tl::unexpected(std::move(path.error()));
  command.front() = std::move(*path);
  auto file = look_at_program(command.front());  // before reading it, so that check_unchanged() notices a later change
  if (!file) return tl::unexpected(std::move(file.error()));
  auto digest = digest_of(*file);
  if (!digest) return tl::unexpected(std::move(digest.error()));
  const auto failed = [&](failure why) -> result<described_program> {
    why.message = fmt::format("having '{}' describe the dataset: {}", printable(command.front()), why.message);
    return tl::unexpected(std::move(why));
  };
  auto worker = supervisor::lone_worker::start(
      {command, supervisor::worker_environment(environment), {}, settings.loader.hang.start_deadline, given_up});
  if (!worker) return failed(std::move(worker.error()));
  auto described = (*worker)->open(settings);
  if (!described) return failed(std::move(described.error()));
  std::vector<wire_fact> facts{{"a worker program with SHA-256", std::move(*digest)}};
  for (const auto& one : arguments) facts.push_back({"worker arguments", fmt::format("{}", one)});
  return described_program{std::move(*described), std::move(*file), std::move(facts)};
}

}  // namespace

bool is_custom(const config& settings) noexcept {
  return type_of(settings) == dataset_type::custom;
}

result<program_file> look_at_program(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return refuse_os(errc::worker_program, errno, fmt::format("the worker program '{}'", printable(path)));
  return program_file{path, facts.st_dev, facts.st_ino, static_cast<std::uint64_t>(facts.st_size), as_ns(facts.st_mtim), as_ns(facts.st_ctim)};
}

result<void> check_unchanged(const program_file& before) {
  const auto here = look_at_program(before.path);
  if (!here) return tl::unexpected(here.error());
  if (*here == before) return {};
  return refuse(errc::worker_program,
                "the worker program '{}' has changed since it was compared with the session's: it was {}, but is {}; start this host again",
                printable(before.path), text_of(before), text_of(*here));
}

result<described_program> describe_custom(const config& settings, const std::atomic<bool>* given_up) {
  const std::vector<std::string>& command = settings.loader.command;
  return describe(settings, command, {{command.begin() + 1, command.end()}}, settings.loader.env, given_up);
}

result<described_program> describe_custom_on_host(const config& here, const std::vector<std::string>& command, const string_map& own,
                                                  const std::atomic<bool>* given_up) {
  if (command.empty())
    return refuse(errc::config, "the session's dataset is \"custom\": only its worker program can read it, and no session can make a host "
                                "run one; give --program FILE, this machine's copy of that program");
  return describe(here, command, arguments_of_session({command.begin() + 1, command.end()}, here, own), {{"PENSTOCK_ON_HOST", "1"}}, given_up);
}

}  // namespace penstock::hosts
