#include "runtime/control/session_record.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/control/socket_place.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>

namespace penstock::control {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::string_view record_suffix = ".record";
constexpr int names_tried = 100;  // sessions that start in the same millisecond

/// The path of a record that is not yet ready to be found. Readers do not look there.
fs::path unfinished(const fs::path& record) {
  return record.native() + ".new";
}

tl::unexpected<failure> no(int code, const fs::path& path) {
  return refuse_os(errc::io, code,
                   fmt::format("writing the session's record '{}'", printable(path.native())));
}

/// A new file, created exclusively and locked by this process.
result<unique_fd> new_file(const fs::path& path) {
  unique_fd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return no(errno, path);
  return file;
}

/// The part of an id that orders records by time.
std::string_view time_in(const found_record& r) {
  return std::string_view(r.id).substr(r.session.size());
}

}  // namespace

std::string session_id(const std::string& session, int pid, std::chrono::system_clock::time_point started) {
  const auto since = std::chrono::floor<milliseconds>(started.time_since_epoch()).count();
  const std::time_t seconds = since / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{}@{:04}{:02}{:02}T{:02}{:02}{:02}.{:03}-{}", session, parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, since % 1000,
                     pid);
}

result<session_record> session_record::create(const std::string& session, int pid,
                                              std::chrono::system_clock::time_point started) {
  const auto folder = make_socket_folder();
  if (!folder) return tl::unexpected(folder.error());
  for (int tries = 0;; ++tries) {
    fs::path path =
        *folder / (session_id(session, pid, started + milliseconds(tries)) + std::string(record_suffix));
    // The record must be locked before a reader finds it, because an unlocked record belongs to a session that has ended.
    const fs::path beside = unfinished(path);
    auto file = new_file(beside);
    int code = file ? 0 : file.error().os_code;
    if (file) {
      code = ::link(beside.c_str(), path.c_str()) == 0 ? 0 : errno;
      ::unlink(beside.c_str());
      if (code == 0) return session_record(std::move(path), std::move(*file));
    }
    // Another process has the name, or is just removing unfinished records.
    if ((code != EEXIST && code != ENOENT && code != EWOULDBLOCK) || tries == names_tried) return no(code, path);
  }
}

result<void> session_record::append(std::string_view lines) {
  if (const int code = file_.append(lines)) return no(code, path_);
  bytes_ += lines.size();
  return {};
}

result<void> session_record::rewrite(std::string_view lines) {
  const fs::path beside = unfinished(path_);
  ::unlink(beside.c_str());
  auto file = new_file(beside);
  if (!file) return tl::unexpected(std::move(file.error()));
  int code = write_all(file->get(), lines);
  if (code == 0 && ::rename(beside.c_str(), path_.c_str()) != 0) code = errno;
  if (code != 0) {
    ::unlink(beside.c_str());
    return no(code, path_);
  }
  file_ = line_file(std::move(*file));
  bytes_ = lines.size();
  return {};
}

void session_record::touch() noexcept {
  static_cast<void>(::futimens(file_.fd(), nullptr));
}

void session_record::finish() noexcept {
  ::flock(file_.fd(), LOCK_UN);
}

bool is_record(const fs::path& path) {
  return path.native().ends_with(record_suffix);
}

/// Whether a process holds the writer's lock.
bool is_written(const fs::path& record) {
  const unique_fd file(::open(record.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  return file && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::vector<found_record> find_records() {
  std::vector<found_record> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(socket_folder(), ignored)) {
    const std::string file = entry.path().filename().string();
    const std::size_t at = file.rfind('@');
    if (!file.ends_with(record_suffix) || at == std::string::npos) continue;
    std::error_code gone;
    const std::uint64_t bytes = fs::file_size(entry.path(), gone);
    if (gone) continue;
    found.push_back({file.substr(0, file.size() - record_suffix.size()), file.substr(0, at), entry.path(),
                     bytes, is_written(entry.path())});
  }
  std::ranges::sort(found,
                    [](const found_record& a, const found_record& b) { return time_in(a) > time_in(b); });
  return found;
}

result<std::vector<std::string>> read_record(const fs::path& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  const auto refused = [&](int code) {
    return refuse_os(errc::io, code,
                     fmt::format("reading the session's record '{}'", printable(path.native())));
  };
  if (!file) return refused(errno);
  std::string text;
  std::string piece(64 * 1024, '\0');
  while (true) {
    const ssize_t bytes = ::read(file.get(), piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return refused(errno);
    if (bytes == 0) break;
    text.append(piece, 0, static_cast<std::size_t>(bytes));
  }
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

void note_process_end(int pid, std::chrono::system_clock::time_point begun, std::string_view how) {
  using namespace std::chrono;
  const std::string of_process = fmt::format("-{}", pid);
  for (const found_record& r : find_records()) {
    if (r.live || !r.id.ends_with(of_process)) continue;
    const unique_fd file(::open(r.path.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
    struct stat facts {};
    if (!file || ::fstat(file.get(), &facts) != 0) continue;
    if (seconds(facts.st_mtim.tv_sec) + nanoseconds(facts.st_mtim.tv_nsec) < begun.time_since_epoch()) continue;
    // A line break first: the process may have been killed while it wrote a line.
    if (write_all(file.get(), fmt::format("\n{{\"process_ended\":{{\"how\":\"{}\"}}}}\n", how)) != 0) continue;
    const timespec times[] = {facts.st_atim, facts.st_mtim};
    ::futimens(file.get(), times);
  }
}

std::size_t prune_records() {
  struct same_name {
    std::vector<found_record> records;  // newest first
    std::uint64_t bytes = 0;
  };
  std::size_t removed = 0;
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  std::map<std::string, same_name> names;
  for (found_record& r : find_records()) {
    if (r.live) continue;
    ++count;
    bytes += r.bytes;
    same_name& of = names[r.session];
    of.bytes += r.bytes;
    of.records.push_back(std::move(r));
  }
  while (count > records_kept || bytes > records_bytes_kept) {
    const bool too_many = count > records_kept;
    const auto most = std::ranges::max_element(names, [too_many](const auto& one, const auto& other) {
      const auto amount = [too_many](const same_name& of) { return too_many ? of.records.size() : of.bytes; };
      const std::uint64_t a = amount(one.second);
      const std::uint64_t b = amount(other.second);
      return a != b ? a < b : time_in(one.second.records.back()) > time_in(other.second.records.back());
    });
    same_name& of = most->second;
    const found_record& oldest = of.records.back();
    if (::unlink(oldest.path.c_str()) == 0) ++removed;
    --count;
    bytes -= oldest.bytes;
    of.bytes -= oldest.bytes;
    of.records.pop_back();
    if (of.records.empty()) names.erase(most);
  }
  // Processes that were killed while creating a record leave these files.
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(socket_folder(), ignored)) {
    if (entry.path().native().ends_with(unfinished(record_suffix).native()) && !is_written(entry.path()))
      ::unlink(entry.path().c_str());
  }
  return removed;
}

}  // namespace penstock::control
