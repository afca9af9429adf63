#include "tools/penstock/launch/rank_progress.hpp"

#include "runtime/schedule/epoch_book.hpp"

#include <algorithm>
#include <utility>

namespace penstock::cli {
namespace {

using nlohmann::ordered_json;

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

result<std::vector<std::byte>> bytes_of(const ordered_json& from) {
  std::vector<std::byte> bytes;
  const auto refused = [] { return refuse(errc::protocol, "a state must be hexadecimal text"); };
  const auto at = from.find("state");
  if (at == from.end()) return bytes;
  if (!at->is_string()) return refused();
  const auto& text = at->get_ref<const std::string&>();
  if (text.size() % 2 != 0 || text.size() > 2 * schedule::state_bytes_max) return refused();
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit_of(text[i]);
    const int low = digit_of(text[i + 1]);
    if (high < 0 || low < 0) return refused();
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return bytes;
}

result<ordered_json> object_in(std::string_view line) {
  ordered_json found = ordered_json::parse(line, nullptr, false);
  if (!found.is_object()) return refuse(errc::protocol, "not a line of JSON with an object");
  return found;
}

std::uint64_t number_of(const ordered_json& entry, const char* field) {
  const auto at = entry.find(field);
  return at != entry.end() && at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
}

std::uint64_t epoch_of(const ordered_json& entry) {
  return number_of(entry, "epoch");
}

double seconds_of(const ordered_json& entry) {
  const auto at = entry.find("seconds");
  return at != entry.end() && at->is_number() ? at->get<double>() : 0;
}

bool is_entry(const ordered_json& entry) {
  return entry.is_object() && entry.contains("epoch") && entry["epoch"].is_number_unsigned();
}

/// Replaces the entry of the same epoch, or adds it.
void put(std::vector<ordered_json>& entries, const ordered_json& entry) {
  const auto at = std::ranges::lower_bound(entries, epoch_of(entry), {}, epoch_of);
  if (at != entries.end() && epoch_of(*at) == epoch_of(entry)) {
    *at = entry;
  } else {
    entries.insert(at, entry);
  }
}

/// Merges the reports of two processes about one epoch. The later counts include the earlier ones.
void merge(std::vector<ordered_json>& entries, ordered_json later) {
  const auto at = std::ranges::lower_bound(entries, epoch_of(later), {}, epoch_of);
  const bool both = at != entries.end() && epoch_of(*at) == epoch_of(later);
  if (both && number_of(*at, "from_position") == number_of(later, "from_position")) {
    later["from_batch"] = std::min(number_of(*at, "from_batch"), number_of(later, "from_batch"));
    later["seconds"] = seconds_of(*at) + seconds_of(later);
  }
  put(entries, later);
}

}  // namespace

namespace {

// Any other word is `none`.
constexpr std::pair<std::string_view, group_end_word> end_words[] = {{"finished", group_end_word::finished},
                                                                     {"stopped", group_end_word::stopped}};

}  // namespace

std::string line_of(const rank_progress& progress) {
  ordered_json line{{"batches", progress.batches}, {"beats", progress.beats}};
  if (!progress.state.empty()) line["state"] = hex_of(progress.state);
  if (!progress.epochs.empty()) line["epochs"] = progress.epochs;
  for (const auto& [word, end] : end_words) {
    if (progress.group == end) line["group"] = word;
  }
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

result<rank_progress> parse_progress(std::string_view line) {
  auto found = object_in(line);
  if (!found) return tl::unexpected(std::move(found.error()));
  rank_progress progress;
  progress.batches = number_of(*found, "batches");
  progress.beats = number_of(*found, "beats");
  auto state = bytes_of(*found);
  if (!state) return tl::unexpected(std::move(state.error()));
  progress.state = std::move(*state);
  if (const auto at = found->find("epochs"); at != found->end()) {
    if (!at->is_array() || at->size() > epochs_in_a_line || !std::ranges::all_of(*at, is_entry))
      return refuse(errc::protocol, "\"epochs\" must be a list of at most {} epochs", epochs_in_a_line);
    progress.epochs = std::move(*at);
  }
  if (const auto at = found->find("group"); at != found->end() && at->is_string()) {
    for (const auto& [word, end] : end_words) {
      if (at->get_ref<const std::string&>() == word) progress.group = end;
    }
  }
  return progress;
}

namespace {

ordered_json json_of(const std::vector<lost_process_report>& lost) {
  ordered_json all = ordered_json::array();
  for (const lost_process_report& one : lost) {
    const auto time = std::chrono::duration_cast<std::chrono::microseconds>(one.time.time_since_epoch());
    all.push_back({{"rank", one.rank}, {"pid", one.pid}, {"end", one.end}, {"time_us", time.count()}});
  }
  return all;
}

std::vector<lost_process_report> lost_in(const ordered_json& line) {
  std::vector<lost_process_report> all;
  for (const ordered_json& one : line.value("lost", ordered_json::array())) {
    if (!one.is_object()) continue;
    const ordered_json pid = one.value("pid", ordered_json());
    const ordered_json end = one.value("end", ordered_json());
    if (!pid.is_number_integer() || !end.is_string()) continue;
    const std::chrono::microseconds time(static_cast<std::int64_t>(number_of(one, "time_us")));
    all.push_back({static_cast<std::uint32_t>(number_of(one, "rank")), pid.get<std::int32_t>(), end.get<std::string>(),
                   std::chrono::system_clock::time_point(std::chrono::duration_cast<std::chrono::system_clock::duration>(time))});
  }
  return all;
}

}  // namespace

std::string line_of_lost(const std::vector<lost_process_report>& lost) {
  return ordered_json{{"lost", json_of(lost)}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

result<std::vector<lost_process_report>> parse_lost(std::string_view line) {
  const auto found = object_in(line);
  if (!found) return tl::unexpected(found.error());
  return lost_in(*found);
}

std::string line_of(const rank_start& start) {
  ordered_json line{{"state", hex_of(start.state)}, {"delivered", start.delivered}};
  if (start.alone) line["alone"] = true;
  if (!start.files.empty()) line["files"] = start.files;
  if (!start.lost.empty()) line["lost"] = json_of(start.lost);
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

result<rank_start> parse_start(std::string_view line) {
  const auto found = object_in(line);
  if (!found) return tl::unexpected(found.error());
  auto state = bytes_of(*found);
  if (!state) return tl::unexpected(std::move(state.error()));
  const auto alone = found->find("alone");
  rank_start start{std::move(*state), number_of(*found, "delivered"), alone != found->end() && *alone == true};
  const auto files = found->value("files", ordered_json::object());
  for (const auto& [kind, path] : files.items()) {
    if (path.is_string()) start.files[kind] = path.get<std::string>();
  }
  start.lost = lost_in(*found);
  return start;
}

void rank_history::heard(const rank_progress& progress) {
  if (!progress.state.empty()) state_ = progress.state;
  for (const ordered_json& entry : progress.epochs) put(now_, entry);
}

void rank_history::begin_again() {
  for (ordered_json& entry : std::exchange(now_, {})) merge(before_, std::move(entry));
  const auto at = schedule::parse_state(state_);
  std::erase_if(before_, [&at](const ordered_json& entry) { return !at || epoch_of(entry) > at->epoch; });
}

void rank_history::begin_from(std::vector<std::byte> state) {
  state_ = std::move(state);
  begin_again();
}

std::uint64_t rank_history::delivered() const {
  const auto at = schedule::parse_state(state_);
  if (!at) return 0;
  std::uint64_t batches = at->next_batch;
  for (const ordered_json& entry : before_) {
    if (epoch_of(entry) < at->epoch) batches += number_of(entry, "batches");
  }
  return batches;
}

void rank_history::complete(ordered_json& report) const {
  if (before_.empty()) return;
  std::vector<ordered_json> all = before_;
  const auto at = report.find("epochs");
  const bool says = at != report.end() && at->is_array() && !at->empty();
  if (says) {
    for (const ordered_json& entry : *at) {
      if (is_entry(entry)) merge(all, entry);
    }
  } else {
    for (const ordered_json& entry : now_) merge(all, entry);
  }
  report["epochs"] = all;
}

}  // namespace penstock::cli
