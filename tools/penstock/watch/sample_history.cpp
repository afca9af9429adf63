#include "tools/penstock/watch/sample_history.hpp"

#include "runtime/base/batch_work.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/number.hpp"
#include "runtime/base/one_line.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/work_kind.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

constexpr std::string_view sample_prefix = "sample/";
constexpr std::size_t history_label_columns = 20;

/// "sample 51 (cat/034.jpg), ValueError: no line 51 (data.py:7, in line)".
std::string failure_for_people(const json& failed) {
  const std::string name = failed.at("path").is_null() ? "" : text_of(failed.at("path"));
  const std::string sample = failed.at("sample").is_null() ? name : sample_for_people(failed.at("sample").get<std::uint64_t>(), name);
  const json raised = failed.value("exception", json());
  const bool known = raised.is_object() && !raised.at("frames").empty();
  return fmt::format("{}, {}{}", sample, one_line(text_of(failed.at("error"))), known ? fmt::format(" ({})", text_of(raised.at("frames").back())) : "");
}

std::string history_line(std::string_view label, const std::string& text, std::size_t width) {
  const std::string begin = padded(label, history_label_columns);
  return begin + hanging(text, width, history_label_columns) + "\n";
}

}  // namespace

std::optional<std::string> sample_in_target(std::string_view target) {
  if (!target.starts_with(sample_prefix) || target.size() == sample_prefix.size()) return std::nullopt;
  return std::string(target.substr(sample_prefix.size()));
}

bool is_about_sample(const json& what, const std::string& sample) {
  const json number = what.value("sample", json());
  if (number.is_number() && whole_number<std::uint64_t>(sample) == number.get<std::uint64_t>()) return true;
  const json path = what.value("path", json());
  return path.is_string() && (path == sample || path == "sample " + sample);
}

bool is_lost_with_batch(const json& what, const std::string& sample) {
  const auto number = whole_number<std::uint64_t>(sample);
  const json lost = what.value("samples", json::array());
  return number && std::ranges::find(lost, json(*number)) != lost.end();
}

bool is_same_batch(const json& one, const json& other) {
  const json seq = one.value("seq", json());
  return seq.is_number() && one.value("epoch", json()) == other.value("epoch", json()) && seq == other.value("seq", json());
}

json loading_now(const json& status, const std::string& sample) {
  json found = json::array();
  const work_kind kind = kind_of(status);
  if (kind == work_kind::jobs) return found;
  const json stalled = status.value("stalled", json());
  for (const json& w : status.at("workers")) {
    const std::string name = work_of(w, kind);
    json one{{"sample", w.value("current_index", json())}, {"path", name}};
    if (name.empty() || !is_about_sample(one, sample)) continue;
    if (const auto number = sample_in_work(name); number && one["sample"].is_null()) one["sample"] = *number;
    one["worker"] = w.at("id");
    one["pid"] = w.at("pid");
    one["attempt"] = w.value("current_attempt", json());
    one["seconds"] = w.value(kind == work_kind::batches ? "current_work_seconds" : "current_sample_seconds", json());
    one["batch_seconds"] = kind == work_kind::batches ? w.value("current_sample_seconds", json()) : json();
    one["seen"] = status.value("status_time", json());
    one["stalled_seconds"] = stalled.is_object() && stalled.value("worker", json()) == w.at("id") ? stalled.at("seconds") : json();
    found.push_back(std::move(one));
  }
  return found;
}

namespace {

/// Whether batches of this epoch are known to be delivered.
bool is_past(const json& epoch, const json& status, const json& all_events) {
  if (status.value("outcome", "") == "finished" || status.value("epoch", std::uint64_t{0}) > epoch.get<std::uint64_t>()) return true;
  return std::ranges::any_of(all_events, [&](const json& e) { return e.at("kind") == "epoch_done" && e.value("epoch", json()) == epoch; });
}

}  // namespace

json history_of(const std::string& sample, const json& status, const json& all_events, const json& quarantine_list) {
  json events = json::array();
  json batch;
  for (const json& e : all_events) {
    const bool its_own = is_about_sample(e, sample);
    const bool recovers = e.at("kind") == "batch_recovered" && batch.is_object() && is_same_batch(e, batch);
    if (its_own || recovers || is_lost_with_batch(e, sample)) events.push_back(e);
    if (its_own && e.at("kind") != "batch_lost" && e.value("seq", json()).is_number() && e.value("epoch", json()).is_number())
      batch = {{"epoch", e.at("epoch")}, {"seq", e.at("seq")}, {"with_it", e.at("kind") == "worker_died"}};
  }
  if (batch.is_object()) batch["delivered"] = is_past(batch.at("epoch"), status, all_events);
  const json number = json::parse(sample, nullptr, false);
  json about{{"sample", number.is_number_unsigned() ? number : json(sample)}, {"loading", loading_now(status, sample)}, {"events", std::move(events)},
             {"batch", std::move(batch)}, {"quarantine", nullptr}};
  if (kind_of(status) == work_kind::jobs) return about;
  for (const json& one : quarantine_list.at("quarantine")) {
    if (is_about_sample(one, sample)) about["quarantine"] = one;
  }
  return about;
}

json deaths_in_history(const json& about) {
  json deaths = json::array();
  for (const json& e : about.at("events")) {
    if (const json death = e.value("death", json()); death.is_object() && death.value("attempt", 0U) != 0) deaths.push_back(death);
  }
  return deaths;
}

namespace {

/// "of attempt 1:", "the same in attempts 1, 2 and 3:".
std::string attempts_in_words(const json& attempts) {
  std::string text;
  for (std::size_t i = 0; i < attempts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == attempts.size() ? " and " : ", ") + attempts[i].get<std::string>();
  return attempts.size() == 1 ? fmt::format("of attempt {}:", text) : fmt::format("the same in attempts {}:", text);
}

/// "by worker/3 (pid 17) for 14 s, attempt 2; the stream has made no progress for 16 s".
std::string loading_for_people(const json& one) {
  const bool of_batch = !one.at("seconds").is_number();
  const auto in_words = [](const json& seconds) {
    return seconds.is_number() ? duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds.get<double>() * 1e9))) : std::string();
  };
  const std::string time = in_words(one.at(of_batch ? "batch_seconds" : "seconds"));
  const std::string stall = in_words(one.at("stalled_seconds"));
  const std::string since = time.empty() ? "" : of_batch ? fmt::format(", in a batch begun {} ago", time) : " for " + time;
  return fmt::format("by worker/{} (pid {}){}{}{}{}", text_of(one.at("worker")), text_of(one.at("pid")), since,
                     one.at("attempt").is_number() ? ", attempt " + text_of(one.at("attempt")) : "",
                     one.at("seen").is_string() ? ", when its status was recorded at " + utc_for_people(one.at("seen")) : "",
                     stall.empty() ? "" : fmt::format("; the stream {} made no progress for {}", one.at("seen").is_string() ? "had" : "has", stall));
}

}  // namespace

std::string history_for_people(const json& about, std::size_t width) {
  const json& events = about.at("events");
  const json& quarantine = about.at("quarantine");
  const json loading = about.value("loading", json::array());
  const json& known = !events.empty() ? events.front() : quarantine.is_object() ? quarantine : loading.front();
  const json asked = about.value("sample", json());
  // The first event may be about another sample, with whose batch this one was lost.
  const bool of_another = asked.is_number() && !is_about_sample(known, text_of(asked)) && is_lost_with_batch(known, text_of(asked));
  const json path = of_another ? json() : known.value("path", json());
  const json number = of_another ? asked : known.value("sample", json());
  const std::string name = path.is_string() ? path.get<std::string>() : std::string();
  const std::string title = number.is_number() ? sample_for_people(number.get<std::uint64_t>(), name) : sample_for_people(name);
  std::string out = fitted(title, width) + "\n";
  for (const json& e : events) {
    const std::string time = without_year(utc_for_people(e.at("time")));
    out += history_line("  " + time, one_line(text_of(e.at("text"))), width);
    const json raised = e.value("exception", json());
    if (!raised.is_object()) continue;
    const json& frames = raised.at("frames");
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
      out += history_line(frame == frames.rbegin() ? "    raised at" : "    called from", text_of(*frame), width);
  }
  for (const json& stack : about.value("stacks", json::array())) {
    out += history_line("  stack", attempts_in_words(stack.at("attempts")), width);
    for (const json& line : stack.at("lines")) out += history_line("", text_of(line), width);
  }
  if (const json batch = about.value("batch", json()); batch.is_object() && batch.at("delivered") == true) {
    out += history_line("  delivered", fmt::format("batch {} of epoch {}, {} it", text_of(batch.at("seq")), text_of(batch.at("epoch")),
                                                   batch.at("with_it") == true ? "with" : "without"), width);
  }
  for (const json& one : loading)
    out += history_line(one.at("seen").is_string() ? "  was being loaded" : "  loading now", loading_for_people(one), width);
  if (quarantine.is_object()) {
    out += history_line("  quarantined", fmt::format("{}{}", quarantine.value("known", false) ? "by an earlier run: " : "", causes_in_words(quarantine.at("causes"))), width);
  }
  return out;
}

std::string nothing_recorded_of(const std::string& sample, const json& status, const json& all_events) {
  const json in_dataset = status.value("dataset_samples", json());
  if (const auto number = whole_number<std::uint64_t>(sample); number && in_dataset.is_number() && *number >= in_dataset.get<std::uint64_t>()) {
    const auto samples = in_dataset.get<std::uint64_t>();
    return fmt::format("there is no sample {}: the dataset has {}{}", *number, counted(samples, "sample"), samples < 2 ? "" : fmt::format(" (0 to {})", samples - 1));
  }
  std::uint64_t unlisted = 0;
  for (const json& e : all_events) unlisted += e.value("samples_unlisted", std::uint64_t{0});
  return fmt::format("nothing is recorded of sample {}: no event says that it failed, killed a worker or was lost with its batch, it is not in quarantine, and no "
                     "worker is loading it now. Single samples that were delivered are not recorded{}",
                     printable(sample), unlisted == 0 ? "" : fmt::format("; {} lost with a batch without being listed (`penstock events`)", counted(unlisted, "sample was", "samples were")));
}

std::string lost_for_people(const json& status) {
  const work_kind kind = kind_of(status);
  const auto failed = status.at("failed").get<std::uint64_t>();
  const auto quarantined = status.at("quarantined").get<std::uint64_t>();
  const auto before = status.value("quarantined_before", std::uint64_t{0});
  const auto left_out = kind == work_kind::batches ? status.value("samples_done", std::uint64_t{0}) - status.value("samples_delivered", std::uint64_t{0}) : 0;
  const std::string with_batches = lost_with_batches(status.value("deaths_cost", json()));
  if (kind == work_kind::jobs || (failed + quarantined + before + left_out == 0 && with_batches.empty())) return "";
  std::string text = fmt::format("{}, {} quarantined", counted(failed, "sample failure"), counted(quarantined, "sample"));
  if (before > 0) text += fmt::format(" and {} by earlier runs", before);
  if (quarantined + before > 0) text += " (`penstock quarantine list`)";
  if (left_out > 0) text += fmt::format("; samples were left out of batches {}", counted(left_out, "time"));
  if (!with_batches.empty()) text += "; " + with_batches;
  if (const json last = status.value("last_failure", json()); last.is_object()) text += "; the last failure: " + failure_for_people(last);
  return text;
}

}  // namespace penstock::cli
