#include "tools/penstock/watch/why_text.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t widest_text = 100;  // a longer line is hard to read
constexpr std::size_t columns_of_bar = 25;

struct limit_meaning {
  const char* limit;
  const char* of_stream;
  const char* of_jobs;    // null: a pool has no such limit
  const char* of_loader;
};
constexpr limit_meaning limit_meanings[] = {
    {"storage", "the next batch's worker waited for a read", nullptr, nullptr},
    {"decode", "the next batch's worker decoded or transformed samples, ran a custom dataset's code, or had no core", "jobs ran, or waited for something",
     "the dataset worked on samples, or waited for something"},
    {"order", "later batches waited for an earlier one, or there were too few slots",
     "workers were idle although jobs waited", "workers had no batch to load"},
    {"wire", "the next batch was being copied to the device, or came from a loader host", nullptr, nullptr},
    {"convert", "the device converted the next batch", nullptr, nullptr},
    {"consumer", "the consumer did not ask for a batch", "callers asked for nothing, or kept all results",
     "the program did not ask for a batch, or kept all of them"},
    {"start", "no worker had the next batch, because one was starting or had died, or no GPU owner had the device open",
     "workers were starting, or being replaced", "workers were starting, or being replaced"},
};

std::string share_in_words(double share) {
  return fmt::format("{:.0f} %", std::round(share * 100));
}

/// Three digits, or all of a larger number: "1310", where {:.3g} gives "1.31e+03".
std::string figure(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

/// Adds " --session NAME" to the commands for sessions that a text recommends in backquotes.
std::string with_choice(std::string text, const std::string& choice) {
  constexpr std::string_view begin = "`penstock ";
  if (choice.empty()) return text;
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    const std::size_t verb = at + begin.size();
    const std::size_t end = text.find('`', verb);
    if (end == std::string::npos) break;
    const std::string word = text.substr(verb, std::min(text.find(' ', verb), end) - verb);
    const bool of_session = word == "describe" || word == "restart" || word == "drain" || word == "scale" || word == "resume" || word == "deaths";
    if (of_session) text.insert(end, choice);
  }
  return text;
}

/// For sessions that have ended: leaves out the sentences that name commands for live sessions.
std::string without_commands(std::string_view text) {
  constexpr std::string_view commands[] = {"`penstock describe", "`penstock restart", "`penstock drain", "`penstock scale", "`penstock resume", "`kill -CONT"};
  std::string kept;
  while (!text.empty()) {
    const std::string_view sentence = text.substr(0, text.find(". ") == std::string_view::npos ? text.size() : text.find(". ") + 1);
    const bool is_live = std::ranges::any_of(commands, [&](std::string_view c) { return sentence.find(c) != std::string_view::npos; });
    if (!is_live) kept.append(kept.empty() ? "" : " ").append(sentence);
    text.remove_prefix(std::min(sentence.size() + 1, text.size()));
  }
  return kept;
}

/// An indented paragraph below another one.
std::string paragraph_below(const std::string& text, std::size_t width) {
  return "\n  " + hanging(text, width, 2);
}

std::string table_of_shares(const json& why, std::size_t width) {
  const work_kind kind = kind_of_answer(why);
  const json later = why.value("limits_after_beginning", json());  // the sentence is about this time
  const json& shares = later.is_object() ? later : why.at("limits");
  const double rest = later.is_object() ? 1 - why.value("beginning", 0.0) : 1;
  std::vector<std::vector<std::string>> rows;
  for (const limit_meaning& m : limit_meanings) {
    const char* const text = kind == work_kind::samples ? m.of_stream : kind == work_kind::jobs ? m.of_jobs : m.of_loader;
    if (text == nullptr) continue;
    const double share = shares.value(m.limit, 0.0);
    const auto bar = static_cast<std::size_t>(std::lround(share * columns_of_bar));
    rows.push_back({m.limit, share_in_words(share), std::string(bar, '#'), text});
  }
  return text_table({{"LIMIT"},
                     {"SHARE", column_side::right},
                     {fmt::format("OF THE LAST {:.0f} s", std::ceil(why.at("seconds").get<double>() * rest))},
                     {.title = "WHAT HAPPENED", .wraps = true}},
                    rows, width);
}

std::string figures_of_workers(const json& why, std::size_t width) {
  const json& w = why.at("workers");
  const double busy = w.at("busy").get<double>();
  const double cpu = w.at("cpu").get<double>();
  const double core_wait = w.at("core_wait").get<double>();
  std::string text = wrapped(
      fmt::format("workers: {} ready. They spent {} of their time running on a core, {} waiting for a core, {} waiting for something else "
                  "(storage, a lock, another process), and {} idle",
                  w.at("ready").get<std::uint32_t>(), share_in_words(cpu), share_in_words(core_wait),
                  share_in_words(std::max(busy - cpu - core_wait, 0.0)), share_in_words(std::max(1 - busy, 0.0))),
      width, 2);
  for (const json& one : w.at("each")) {
    const double reading = one.at("reading").get<double>();
    const std::string reads = reading > 0 ? fmt::format(", {} of it in reads", share_in_words(reading)) : "";  // not all datasets time their reads
    const std::string line = fmt::format("worker/{}: {} ms a {}{}", one.at("worker").get<std::uint32_t>(),
                                         figure(one.at("seconds_a_sample").get<double>() * 1000), words_for(kind_of_answer(why)).item, reads);
    text += paragraph_below(line, width);
  }
  return text + "\n";
}

std::string slow_samples_of(const json& why, std::size_t width) {
  std::string text;
  for (const json& one : why.value("slowest_samples", json::array())) text += paragraph_below(slow_sample_in_words(one), width);
  return text.empty() ? "" : "slow samples of the last 5 minutes:" + text + "\n";
}

/// Describes a wait that is not a stall yet; empty if the consumer does not wait.
std::string now_in_words(const json& why) {
  const json now = why.value("now", json());
  if (!now.is_object()) return "";
  return fmt::format("The consumer has been waiting {:.1f} s for its next batch: for {}. After {:.0f} s without progress this is a stall, "
                     "and `penstock why` says what helps.",
                     now.at("seconds").get<double>(), text_of(now.at("waits_for")), now.at("verdict_after_seconds").get<double>());
}

}  // namespace

std::string slow_sample_in_words(const json& one) {
  const auto in_words = [](double seconds) { return duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds * 1e9))); };
  const auto times = one.at("times").get<std::uint32_t>();
  const double ago = std::round(one.at("seconds_ago").get<double>());
  const auto name = one.at("name").get<std::string>();
  return fmt::format("{}: {}, worker/{}{}, {}", in_words(one.at("seconds").get<double>()),
                     one.at("sample").is_null() ? name : sample_for_people(one.at("sample").get<std::uint64_t>(), name), text_of(one.at("worker")),
                     times > 1 ? fmt::format(", {} times", times) : "", ago < 1 ? "just now" : in_words(ago) + " ago");
}

void limit_to(json& why, const target& meant) {
  json some = json::array();
  for (const json& one : why.at("workers").at("each")) {
    if (meant.means_worker(one.at("worker").get<std::uint32_t>())) some.push_back(one);
  }
  why["workers"]["each"] = std::move(some);
}

std::string why_for_people(const json& why, std::size_t width, const std::string& choice) {
  const std::size_t columns = std::min(width, widest_text);
  if (why.at("state") == "paused") {
    const bool by_operator = is_paused_by_operator(why);
    const char* const run = words_for(kind_of_answer(why)).run;
    const std::string who = by_operator ? fmt::format("An operator has paused the {}.", run) : fmt::format("The {} was paused by {}.", run, text_of(why.at("paused_by")));
    const std::string way_out = by_operator ? "`penstock resume` ends the pause." : "`penstock resume` would end the pause, too.";
    return wrapped(who, columns, 0) + paragraph_below(with_choice(way_out, choice), columns) + "\n";
  }
  const json stall = why.value("stalled", json());
  const bool over = why.at("state") == "ended";
  const std::string now = over ? "" : now_in_words(why);
  std::string text = now.empty() ? "" : wrapped(with_choice(now, choice), columns, 0) + "\n\n";
  if (over && stall.is_object()) {  // the verdict says the same in the present tense
    text += wrapped(fmt::format("It was stalled at its end: no progress for {}.", stall_for_people(why)), columns, 0);
  } else {
    text += wrapped(with_choice(why.at("verdict").get<std::string>(), choice), columns, 0);
    for (const json& line : why.at("more")) {
      const std::string more = over ? without_commands(line.get<std::string>()) : with_choice(line.get<std::string>(), choice);
      if (!more.empty()) text += paragraph_below(more, columns);
    }
  }
  text += "\n";
  if (stall.is_object() && !over) return text;  // the shares are about the time before the stall
  text += "\n" + table_of_shares(why, width) + "\n" + figures_of_workers(why, columns);
  text += slow_samples_of(why, columns);
  if (const double rate = why.at("batches_per_second"); rate > 0) text += fmt::format("batches: {} a second\n", figure(rate));
  return text;
}

}  // namespace penstock::cli
