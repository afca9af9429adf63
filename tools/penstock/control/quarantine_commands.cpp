// quarantine: samples that kill workers, in a live session or in a file.
#include "runtime/base/death_words.hpp"
#include "runtime/base/text.hpp"
#include "runtime/control/quarantine_file.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

struct quarantine_options {
  session_choice choice;
  std::string act = "list";
  std::optional<std::uint64_t> sample;
  std::string file;
};

void tell(const json& all, work_kind kind = work_kind::samples) {
  const bool of_jobs = kind == work_kind::jobs;
  const bool of_batches = kind == work_kind::batches;
  if (all.empty()) return say(of_jobs ? "no job is poisoned" : "no sample is quarantined");
  std::vector<std::vector<std::string>> rows;
  const char* const number = of_jobs ? "job" : "sample";
  const char* const name = kind == work_kind::samples ? "path" : "work";
  for (const json& q : all) {
    const json& called = q.at(q.contains(name) ? name : "path");  // an older version sends only the path
    const bool known = kind != work_kind::samples && q.value("known", false);
    const std::string work = called.is_null() ? "-" : called.get<std::string>();
    rows.push_back({of_batches ? work : q.at(q.contains(number) ? number : "sample").dump(), q.at("attempts").dump(),
                    causes_in_words(q.at("causes")) + (known ? " (in an earlier run)" : ""), work});
  }
  // Users of a DataLoader see no job numbers: its samples are known by their names.
  print_raw(text_table({{number, of_batches ? column_side::left : column_side::right},
                        {"attempts", column_side::right},
                        {"ended by"},
                        {.title = name, .gives_way = true, .shown = !of_batches}},
                       rows, terminal_width(1)));
}

/// Without a session: lists a file's entries, or releases one.
int with_file(const quarantine_options& o) {
  // A run creates the file only when it has something to write, but a file named here should exist.
  if (::access(o.file.c_str(), F_OK) != 0) {
    return refuse_with(
        exit_failed,
        os_failure(errc::io, errno, fmt::format("reading the quarantine file '{}'", printable(o.file))),
        o.choice.as_json);
  }
  auto list = control::read_quarantine(o.file);
  if (!list) return refuse_with(exit_failed, list.error(), o.choice.as_json);
  for (const std::string& notice : list->notices) say(notice);
  if (o.act == "list") {
    json all = json::array();
    for (const control::quarantine_entry& e : list->entries) {
      all.push_back(telemetry::as_json(e.sample));
      all.back()["fingerprint"] = e.fingerprint;
    }
    if (o.choice.as_json) {
      print_json("penstock.quarantine-list/1", {{"quarantine", all}});
    } else {
      tell(all);
    }
    return exit_ok;
  }
  bool found = false;
  for (control::quarantine_entry& e : list->entries) {
    if (e.sample.sample != *o.sample) continue;
    found = true;
    e.released = true;
    e.unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
    if (auto ok = control::append_quarantine(o.file, e); !ok)
      return refuse_with(exit_failed, ok.error(), o.choice.as_json);
  }
  if (!found) {
    return no_such_target(o.choice, fmt::format("sample {} is not in '{}'", *o.sample, printable(o.file)));
  }
  if (o.choice.as_json) {
    print_json("penstock.order/1", {{o.act, *o.sample}});
  } else {
    say(fmt::format("sample {}: released", *o.sample));
  }
  return exit_ok;
}

int quarantine(const quarantine_options& o) {
  const auto usage = [&](const std::string& why, const std::string& next = {}) {
    return refuse_with(exit_usage, {errc::usage, why, 0}, o.choice.as_json, next);
  };
  if (o.act != "list" && !o.sample) {
    const std::string file = o.file.empty() ? "" : " --file " + printable(o.file);
    return usage(fmt::format("quarantine {}: which sample?", o.act), fmt::format("penstock quarantine list{}{}", file, choice_in_words(o.choice)));
  }
  if (!o.file.empty() && o.act == "retry") return usage("quarantine retry needs a live session");
  if (!o.file.empty()) return with_file(o);
  session_choice choice = o.choice;
  if (o.act != "list") {
    // Unlike `list`, these verbs change a live session, and nothing can change the record of an ended one.
    const std::string in_file = fmt::format("penstock quarantine release {} --file FILE", *o.sample);
    if (means_past(choice)) return usage(fmt::format("quarantine {} needs a live session", o.act), in_file);
    choice.reading_verb.clear();
    choice.next_if_ended = in_file;
  }
  json question{{"verb", "quarantine"}, {"act", o.act}};
  if (o.sample) question["sample"] = *o.sample;
  const char* const schema = o.act == "list" ? "penstock.quarantine-list/1" : "penstock.order/1";
  return ask_session(choice, schema, std::move(question), answer_deadline, [&](const json& result) {
    if (o.act == "list") return tell(result.at("quarantine"), kind_of_answer(result));
    say(fmt::format("sample {}: {}", *o.sample, o.act == "retry" ? "will be tried again" : "released"));
  });
}

}  // namespace

void add_quarantine_commands(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<quarantine_options>(
      verbs,
      {"quarantine",
       verb_group::operate,
       "list samples that kill workers; retry or release one",
       "With retry, the live session may load the sample again from its current position on; the entry in "
       "the quarantine file stays. release also removes the entry. With --file no session is needed. For a "
       "pool of jobs, list shows the poisoned jobs.",
       {{"penstock quarantine list", "sample, attempts, what ended each, path"},
        {"penstock quarantine list --last", "the samples of the run that ended last"},
        {"penstock quarantine retry 17", "once its file has been repaired"},
        {"penstock quarantine release 17 --file bad.jsonl", "so that the next run loads it"}}},
      quarantine);
  verb.add_option("ACT", o->act, "list, retry SAMPLE or release SAMPLE")
      ->check(CLI::IsMember({"list", "retry", "release"}))
      ->capture_default_str();
  takes_whole_number(verb.add_option("SAMPLE", o->sample, "the sample's index"), {0, count_max});
  add_past_choice(verb, o->choice);
  verb.add_option("--file", o->file, "a quarantine file instead of a live session")->type_name("FILE");
}

}  // namespace penstock::cli
