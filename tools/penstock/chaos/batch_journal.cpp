#include "tools/penstock/chaos/batch_journal.hpp"

#include "runtime/base/mapping.hpp"
#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

struct line_reader {
  journal_reading reading;
  std::map<std::int64_t, std::uint32_t> owners;  // pid -> the newest owner with that pid
  std::uint32_t owners_seen = 0;
  bool torn = false;  // whether the previous line is torn

  /// Returns false for a line that no owner writes at this point.
  bool take(std::string_view line, std::uint64_t end) {
    if (line.empty()) return true;  // only the line feed that ends a torn line
    const json entry = json::parse(line, nullptr, false);
    if (!entry.is_object()) {
      ++reading.torn;
      return !std::exchange(torn, true);
    }
    const bool begins = !entry.contains("batch");
    if (std::exchange(torn, false) && !begins) return false;
    const auto pid = entry.at("owner").get<std::int64_t>();
    if (begins) {
      owners[pid] = ++owners_seen;
      return true;
    }
    const auto owner = owners.find(pid);
    if (owner == owners.end()) return false;
    const auto digest = whole_number<std::uint64_t>(entry.at("digest").get<std::string>(), 16);
    if (!digest) return false;
    reading.batches.push_back({entry.at("epoch").get<std::uint64_t>(), entry.at("batch").get<std::uint64_t>(),
                               entry.at("samples").get<std::vector<std::uint64_t>>(),
                               *digest, owner->second});
    reading.ends.push_back(end);
    return true;
  }
};

}  // namespace

std::size_t journal_reading::batches_within(std::uint64_t bytes) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(ends, bytes) - ends.begin());
}

result<journal_reading> read_journal(std::string_view text) {
  line_reader lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    bool ok = false;
    try {
      ok = lines.take(line, end + 1);
    } catch (const json::exception&) {  // a key is missing, or its value has a different type
    }
    if (!ok) return refuse(errc::io, "the journal of batches is damaged at byte {}: {}", at, printable(shortened(line, 200)));
    at = end + 1;
  }
  return std::move(lines.reading);
}

result<batch_journal> batch_journal::create() {
  auto memory = create_memory_file("penstock-journal", "the journal of batches");
  if (!memory) return tl::unexpected(std::move(memory.error()));
  return batch_journal(std::move(*memory));
}

std::string batch_journal::sink() const {
  // The owner's process opens the journal itself, because O_APPEND belongs to the open file description.
  return fmt::format("journal:/proc/{}/fd/{}", ::getpid(), memory_.get());
}

std::uint64_t batch_journal::bytes() const {
  struct stat facts {};
  return ::fstat(memory_.get(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
}

result<journal_reading> batch_journal::read() const {
  const std::uint64_t written = bytes();
  if (written == 0) return journal_reading();
  const mapping text = map_read_only(memory_.get(), {0, written});
  if (!text) return refuse_os(errc::io, errno, "reading the journal of batches");
  return read_journal({reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()});
}

}  // namespace penstock::cli
