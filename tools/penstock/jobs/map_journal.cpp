#include "tools/penstock/jobs/map_journal.hpp"

#include "runtime/base/output_lock.hpp"
#include "runtime/base/read_at.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/jobs/job_outcome.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <span>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view schema = "penstock.map-journal/1";
constexpr std::string_view before_hash = R"({"line":")";
constexpr std::size_t hash_digits = 16;
constexpr std::string_view behind_hash = R"(",)";
constexpr std::string_view before_exit = R"("result":{"exit":)";
constexpr std::size_t journal_read_bytes = MiB;

std::string header_of(const std::string& work) {
  return fmt::format(R"({{"schema":"{}","work":{}}})", schema, work) + "\n";
}

/// Removes a prefix; false if it is missing.
bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

template <int base = 10>
bool take_number(std::string_view& text, std::uint64_t& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (status != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// Ensures that the file's name is on disk as well.
int sync_folder_of(const std::string& path) {
  const std::filesystem::path file(path);
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const unique_fd place(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return place && ::fsync(place.get()) == 0 ? 0 : errno;
}

/// Consumes the beginning of a line, up to the hash; false if the line has none.
bool take_hash(std::string_view& line, std::uint64_t& hash) {
  if (!skip(line, before_hash) || line.size() < hash_digits) return false;
  std::string_view digits = line.substr(0, hash_digits);
  line.remove_prefix(hash_digits);
  return take_number<16>(digits, hash) && digits.empty() && skip(line, behind_hash);
}

}  // namespace

std::string journal_line(std::uint64_t hash, std::string_view output) {
  return fmt::format("{}{:016x}{}", before_hash, hash, behind_hash).append(output.substr(1));
}

std::string difference_of_work(const std::string& of_journal, const std::string& of_run) {
  const json theirs = json::parse(of_journal, nullptr, false);
  const json ours = json::parse(of_run, nullptr, false);
  const auto text_in = [](const json& work, const char* key) {
    const json found = work.is_object() ? work.value(key, json()) : json();
    return found.is_string() ? printable(found.get<std::string>()) : std::string();
  };
  const auto is_command = [&](const json& work) { return !text_in(work, "command").empty(); };
  const auto with_option = [&](const json& work) {
    return is_command(work) ? fmt::format("--command '{}'", text_in(work, "command")) : fmt::format("--function '{}'", text_in(work, "function"));
  };
  std::string text;
  const auto add = [&text](std::string_view part) { text.append(text.empty() ? "" : ", and ").append(part); };
  if (with_option(theirs) != with_option(ours)) add(fmt::format("written for {}, but this run has {}", with_option(theirs), with_option(ours)));
  if (is_command(theirs) != is_command(ours)) return text;
  const auto without = [](const std::string& program) { return program.empty() ? "without --program" : fmt::format("with --program '{}'", program); };
  const auto written = [&add](std::string_view how, std::string_view now) { add(fmt::format("written {}, but this run is {}", how, now)); };
  const std::string program = text_in(theirs, "program");
  if (program != text_in(ours, "program")) written(without(program), without(text_in(ours, "program")));
  const auto exits = [](const json& work) { return work.is_object() && work.value("fail_on_exit", json()) == true ? "with --fail-on-exit" : "without --fail-on-exit"; };
  if (std::string_view(exits(theirs)) != exits(ours)) written(exits(theirs), exits(ours));
  return text.empty() ? "written by another version of penstock" : text;
}

std::optional<journal_entry> parse_journal_line(std::string_view line) {
  journal_entry entry;
  std::string_view rest = line;
  if (!take_hash(rest, entry.hash)) return std::nullopt;
  entry.output = fmt::format("{{{}\n", rest);
  if (!skip(rest, R"("index":)") || !take_number(rest, entry.index) || !skip(rest, R"(,"status":")"))
    return std::nullopt;
  const auto status = status_named(rest.substr(0, rest.find('"')));
  if (!status || !json::accept(line)) return std::nullopt;
  entry.status = *status;
  if (const std::size_t at = rest.find(before_exit); at != std::string_view::npos && at < rest.find('{') + 1) {
    rest.remove_prefix(at + before_exit.size());
    std::uint64_t code = 0;
    if (take_number(rest, code)) entry.exit_code = static_cast<std::int64_t>(code);
  }
  return entry;
}

result<std::unique_ptr<map_journal>> map_journal::open(const std::string& path, const std::string& work) {
  // Nonblocking, so that opening a pipe does not wait; a pipe is refused below.
  unique_fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file) return refuse_os(errc::io, errno, fmt::format("opening the journal '{}'", printable(path)));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return refuse(errc::io, "the journal '{}' is not a regular file", printable(path));
  if (auto ok = lock_output(file.get(), fmt::format("the journal '{}'", printable(path))); !ok) return tl::unexpected(std::move(ok.error()));
  std::FILE* const places = std::tmpfile();
  if (places == nullptr) return refuse_os(errc::io, errno, "making a temporary file");
  auto journal = std::unique_ptr<map_journal>(new map_journal(path, std::move(file), places));
  if (auto ok = journal->read_all(header_of(work)); !ok) return tl::unexpected(std::move(ok.error()));
  return journal;
}

map_journal::map_journal(std::string path, unique_fd file, std::FILE* places)
    : path_(std::move(path)), file_(std::move(file)), places_(places) {}

tl::unexpected<failure> map_journal::failed(std::string_view doing, int os_code) const {
  return refuse_os(errc::io, os_code, fmt::format("{} the journal '{}'", doing, printable(path_)));
}

// ---- reading ----------------------------------------------------------------------------------------------

result<void> map_journal::read_all(const std::string& header) {
  const auto no_journal = [&] {
    return refuse(errc::io, "'{}' is not a journal of penstock map; it is unchanged", printable(path_));
  };
  std::string piece(journal_read_bytes, '\0');
  std::string line;
  std::uint64_t at = 0;          // offset of the next piece
  std::uint64_t line_begin = 0;  // of `line`
  while (true) {
    const read_part got = read_at(file_.fd(), at, std::as_writable_bytes(std::span(piece)));
    if (got.error != 0) return failed("reading", got.error);
    if (got.bytes == 0) break;
    at += got.bytes;
    std::string_view rest(piece.data(), got.bytes);
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      line.append(rest.substr(0, end));
      if (line_begin == 0 && line.size() > header.size() && !line.starts_with(R"({"schema":")"))
        return no_journal();
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
      if (line_begin == 0) {
        const json found = json::parse(line, nullptr, false);
        if (!found.is_object() || found.value("schema", json()) != schema) return no_journal();
        if (found.value("work", json()) != json::parse(header).at("work")) {
          return refuse(errc::state_mismatch, "the journal '{}' belongs to other work: it was {}; give another --journal, or remove it",
                        printable(path_), difference_of_work(found.value("work", json()).dump(), json::parse(header).at("work").dump()));
        }
      } else if (const auto entry = parse_journal_line(line)) {
        if (auto ok = note_place(entry->index, line_begin); !ok) return ok;
        end_ = std::max(end_, entry->index + 1);
      } else {
        ++unreadable_;
      }
      line_begin += line.size() + 1;
      line.clear();
    }
  }
  if (line_begin == 0) {
    if (!header.starts_with(line)) return no_journal();
    return begin(header);
  }
  torn_ = at - line_begin;
  if (torn_ == 0) return {};
  if (const int why = file_.cut(line_begin); why != 0) return failed("shortening", why);
  return {};
}

/// Starts a new journal: the file is empty, or has only a torn first line.
result<void> map_journal::begin(const std::string& header) {
  if (const int why = file_.cut(0); why != 0) return failed("beginning", why);
  if (const int why = file_.append(header); why != 0) return failed("beginning", why);
  if (::fsync(file_.fd()) != 0) return failed("beginning", errno);
  if (const int why = sync_folder_of(path_); why != 0) return failed("beginning", why);
  return {};
}

// ---- offsets ----------------------------------------------------------------------------------------------

result<void> map_journal::note_place(std::uint64_t index, std::uint64_t offset) {
  if (index > std::uint64_t{std::numeric_limits<off_t>::max()} / 16)
    return refuse(errc::io, "the journal '{}' contains a job {}", printable(path_), index);
  const auto before = place_of(index);
  if (!before) return tl::unexpected(before.error());
  if (!*before) ++jobs_;
  const ssize_t done =
      ::pwrite(::fileno(places_.get()), &offset, sizeof offset, static_cast<off_t>(index * sizeof offset));
  if (done != sizeof offset)
    return refuse_os(errc::io, done < 0 ? errno : ENOSPC, "writing a temporary file (in /tmp)");
  return {};
}

result<std::optional<std::uint64_t>> map_journal::place_of(std::uint64_t index) const {
  std::uint64_t offset = 0;
  const read_part got = read_at(::fileno(places_.get()), index * sizeof offset,
                                std::as_writable_bytes(std::span(&offset, 1)));
  if (got.error != 0) return refuse_os(errc::io, got.error, "reading a temporary file (in /tmp)");
  if (got.bytes != sizeof offset || offset == 0) return std::nullopt;
  return offset;
}

result<std::optional<journal_entry>> map_journal::find(std::uint64_t index) const {
  if (index >= end_) return std::nullopt;
  const auto place = place_of(index);
  if (!place) return tl::unexpected(place.error());
  if (!*place) return std::nullopt;
  std::string line;
  std::array<char, 4096> piece;
  for (std::uint64_t at = **place; true;) {
    const read_part got = read_at(file_.fd(), at, std::as_writable_bytes(std::span(piece)));
    if (got.error != 0) return failed("reading", got.error);
    const std::string_view read(piece.data(), got.bytes);
    const std::size_t end = read.find('\n');
    line.append(read.substr(0, end));
    if (end != std::string_view::npos) break;
    if (read.empty()) return refuse(errc::io, "the journal '{}' was shortened during the run", printable(path_));
    at += read.size();
  }
  auto entry = parse_journal_line(line);
  if (!entry || entry->index != index)
    return refuse(errc::io, "the journal '{}' was changed during the run", printable(path_));
  return entry;
}

result<std::optional<std::uint64_t>> map_journal::hash_of(std::uint64_t index) const {
  if (index >= end_) return std::nullopt;
  const auto place = place_of(index);
  if (!place || !*place) return place;
  std::array<char, before_hash.size() + hash_digits + behind_hash.size()> piece;
  const read_part got = read_at(file_.fd(), **place, std::as_writable_bytes(std::span(piece)));
  if (got.error != 0) return failed("reading", got.error);
  std::string_view line(piece.data(), got.bytes);
  std::uint64_t hash = 0;
  if (!take_hash(line, hash))
    return refuse(errc::io, "the journal '{}' was changed during the run", printable(path_));
  return hash;
}

// ---- writing ----------------------------------------------------------------------------------------------

result<void> map_journal::append(std::uint64_t hash, std::string_view output) {
  const std::string line = journal_line(hash, output);
  const std::lock_guard hold(mutex_);
  if (const int why = file_.append(line); why != 0) return failed("writing", why);
  unsynced_ = true;
  return {};
}

result<void> map_journal::sync() {
  {
    const std::lock_guard hold(mutex_);
    if (!std::exchange(unsynced_, false)) return {};
  }
  if (::fdatasync(file_.fd()) != 0) return failed("writing", errno);
  return {};
}

}  // namespace penstock::cli
