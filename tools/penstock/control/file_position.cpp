#include "tools/penstock/control/file_position.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/file_text.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <span>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

constexpr std::uintmax_t report_bytes_max = 64 << 20;

/// Empty for a FIFO, whose end may never come, and for a file of more than `bytes_max` bytes.
std::optional<std::string> contents_of(const std::string& path, std::uintmax_t bytes_max) {
  std::error_code fault;
  if (!std::filesystem::is_regular_file(path, fault) || std::filesystem::file_size(path, fault) > bytes_max || fault) return std::nullopt;
  return text_of_file(path);
}

json position_in_state(const std::string& path) {
  const auto bytes = contents_of(path, schedule::state_bytes_max);
  if (!bytes) return {};
  const auto state = schedule::parse_state(std::as_bytes(std::span(*bytes)));
  if (!state) return {};
  return {{"epoch", state->epoch}, {"samples", state->delivered}, {"text", position_in_words(*state)}};
}

json position_in_report(const std::string& path) {
  const auto text = contents_of(path, report_bytes_max);
  const json report = text ? json::parse(*text, nullptr, false) : json();
  const json epochs = report.is_object() ? report.value("epochs", json()) : json();
  if (!epochs.is_array() || epochs.empty()) return {};  // a launcher's report, or a run that never began
  const json& last = epochs.back();
  const auto number = last.at("epoch").get<std::uint64_t>();
  const auto delivered = last.at("delivered").get<std::uint64_t>();
  return {{"epoch", number},
          {"samples", delivered},
          {"text", last.value("complete", false)
                       ? fmt::format("epoch {} was complete", number)
                       : fmt::format("epoch {}, {} of {} delivered", number, delivered, counted(last.at("expected").get<std::uint64_t>(), "sample"))}};
}

}  // namespace

std::string position_in_words(const schedule::stream_state& s) {
  if (s.epoch > 0 && s.next_batch == 0 && s.start == 0 && s.early == 0) return fmt::format("epoch {} was complete", s.epoch - 1);
  if (s.start == 0) return fmt::format("epoch {}, {} delivered", s.epoch, counted(s.delivered, "sample"));
  // The ranks share the samples after `start`, and each counts only its own.
  return fmt::format("epoch {}, {} delivered by all ranks{}", s.epoch, counted(s.start, "sample"), s.delivered == 0 ? "" : fmt::format(", then {} by this one", s.delivered));
}

json position_in_file(const std::string& kind, const std::string& path) {
  try {
    return kind == "state" ? position_in_state(path) : kind == "report" ? position_in_report(path) : json();
  } catch (const json::exception&) {  // not a report of ours
    return {};
  }
}

}  // namespace penstock::cli
