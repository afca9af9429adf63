#include "runtime/control/quarantine_file.hpp"

#include "runtime/base/line_file.hpp"
#include "runtime/base/text.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace penstock::control {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* schema = "penstock.quarantine/1";
// Room for a million entries of the usual length. A larger file is not a quarantine.
constexpr std::size_t entries_max = 1U << 20U;
constexpr std::size_t usual_entry_bytes = 256;
constexpr std::size_t file_bytes_max = entries_max * usual_entry_bytes;

std::string as_line(const quarantine_entry& entry) {
  json j{{"schema", schema}, {"fingerprint", entry.fingerprint}, {"sample", entry.sample.sample}};
  if (entry.sample.path) j["path"] = *entry.sample.path;
  if (entry.released) {
    j["released"] = true;
  } else {
    j["attempts"] = entry.sample.attempts;
    j["causes"] = entry.sample.causes;
  }
  j["session"] = entry.session;
  j["time"] = static_cast<double>(entry.unix_ms) / 1000;
  return j.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<quarantine_entry> entry_of(const json& j) {
  if (!j.is_object() || j.value("schema", json()) != schema) return std::nullopt;
  const json fingerprint = j.value("fingerprint", json());
  const json sample = j.value("sample", json());
  if (!fingerprint.is_string() || !sample.is_number_unsigned()) return std::nullopt;
  quarantine_entry entry;
  entry.fingerprint = fingerprint.get<std::string>();
  entry.sample.sample = sample.get<std::uint64_t>();
  entry.sample.known = true;
  if (const json path = j.value("path", json()); path.is_string())
    entry.sample.path = path.get<std::string>();
  if (const json n = j.value("attempts", json()); n.is_number_unsigned())
    entry.sample.attempts = n.get<std::uint32_t>();
  if (const json causes = j.value("causes", json()); causes.is_array()) {
    for (const json& cause : causes) {
      if (cause.is_string()) entry.sample.causes.push_back(cause.get<std::string>());
    }
  }
  if (const json who = j.value("session", json()); who.is_string()) entry.session = who.get<std::string>();
  if (const json time = j.value("time", json()); time.is_number())
    entry.unix_ms = static_cast<std::int64_t>(time.get<double>() * 1000);
  entry.released = j.value("released", json()) == true;
  return entry;
}

result<void> check_regular(int fd, const std::filesystem::path& file) {
  struct stat facts {};
  if (::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode)) return {};
  return refuse(errc::io, "the quarantine file '{}' is not a regular file", printable(file.string()));
}

result<std::string> content_of(const std::filesystem::path& file) {
  unique_fd in(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // does not wait for a FIFO
  const auto no = [&] {
    return refuse_os(errc::io, errno,
                     fmt::format("reading the quarantine file '{}'", printable(file.string())));
  };
  if (!in && errno == ENOENT) return std::string();
  if (!in) return no();
  if (auto ok = check_regular(in.get(), file); !ok) return tl::unexpected(std::move(ok.error()));
  std::string text;
  char piece[64 * 1024];
  while (true) {
    const ssize_t bytes = ::read(in.get(), piece, sizeof piece);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return no();
    if (bytes == 0) return text;
    text.append(piece, static_cast<std::size_t>(bytes));
    if (text.size() > file_bytes_max)
      return refuse(errc::io, "the quarantine file '{}' is larger than {} bytes", printable(file.string()),
                    file_bytes_max);
  }
}

/// A data loader's entry for a sample whose index is not a number. Only the loader uses it.
bool is_entry_of_loader(const json& j) {
  return j.is_object() && j.contains("index") && j.contains("dataset");
}

}  // namespace

result<quarantine_list> read_quarantine(const std::filesystem::path& file) {
  auto text = content_of(file);
  if (!text) return tl::unexpected(std::move(text.error()));
  quarantine_list list;
  bool is_quarantine = false;
  std::string_view rest = *text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.empty()) continue;
    const json parsed = json::parse(line, nullptr, false);
    auto entry = entry_of(parsed);
    is_quarantine |= entry || is_entry_of_loader(parsed);
    if (!entry) {
      list.notices.push_back(
          fmt::format("{}:{}: not a quarantine entry; skipping it", printable(file.string()), number));
      continue;
    }
    std::erase_if(list.entries, [&](const quarantine_entry& earlier) {
      return earlier.fingerprint == entry->fingerprint && earlier.sample.sample == entry->sample.sample;
    });
    if (!entry->released) list.entries.push_back(std::move(*entry));
  }
  if (!list.notices.empty() && !is_quarantine)
    return refuse(errc::io, "'{}' is not a quarantine file: none of its lines is an entry", printable(file.string()));
  return list;
}

result<void> append_quarantine(const std::filesystem::path& file, const quarantine_entry& entry) {
  const auto no = [&] {
    return refuse_os(errc::io, errno,
                     fmt::format("writing the quarantine file '{}'", printable(file.string())));
  };
  const bool is_new = ::access(file.c_str(), F_OK) != 0;
  unique_fd out(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!out) return no();
  if (auto ok = check_regular(out.get(), file); !ok) return ok;
  int locked = 0;
  do locked = ::flock(out.get(), LOCK_EX);
  while (locked != 0 && errno == EINTR);
  if (locked != 0) return no();
  line_file lines(std::move(out));
  if (const int why = lines.append(as_line(entry)); why != 0) {
    errno = why;
    return no();
  }
  if (::fsync(lines.fd()) != 0) return no();
  if (is_new) {
    const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
    const unique_fd place(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!place || ::fsync(place.get()) != 0) return no();
  }
  return {};
}

}  // namespace penstock::control
