// Ended sessions, answered from the lines of their records.
#include "tools/penstock/past/past_session.hpp"

#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/past/past_tables.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/session_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <catch2/catch_test_macros.hpp>

#include <sstream>

using namespace penstock;
using json = nlohmann::ordered_json;

namespace {

std::string line_of(const char* kind, const json& what) {
  return json{{kind, what}}.dump();
}

std::string event_line(std::uint64_t number, event_kind kind, const std::optional<death_report>& death = {},
                       const std::string& text = "") {
  event e;
  e.text = text;
  e.number = number;
  e.kind = kind;
  if (death) e.death = std::make_shared<const death_report>(*death);
  return line_of("event", telemetry::as_json(e));
}

std::string log_line(const std::string& source, std::uint32_t incarnation, const std::string& text) {
  return line_of("log", {{"source", source}, {"incarnation", incarnation}, {"text", text}});
}

std::string status_line(std::uint64_t delivered, run_outcome how) {
  session_status s;
  s.session = "photos";
  s.outcome = how;
  s.state = session_state::ok;
  s.samples_delivered = delivered;
  return line_of("status", telemetry::as_json(s));
}

const std::string header = line_of("record", {{"schema", "penstock.record/1"},
                                              {"session", "photos"},
                                              {"pid", 17},
                                              {"workers_max", 8},
                                              {"of", "samples"}});
const std::string ended = R"({"ended":"2026-11-24T02:13:07.000000Z"})";

json result_of(const cli::past_session& past, json question) {
  const json answer = past.answer(question);
  REQUIRE(answer.at("ok") == true);
  return answer.at("result");
}

}  // namespace

TEST_CASE("the last limits count, and the text says how the session ended") {
  const auto why_line = [](const char* limit) {
    return line_of("why", {{"schema", "penstock.why/1"}, {"limit", limit}, {"state", "ok"}});
  };
  const cli::past_session past({header, status_line(7, run_outcome::running), why_line("start"), why_line("decode")},
                               "later");
  const json why = result_of(past, {{"verb", "why"}});
  CHECK(why.at("limit") == "decode");
  CHECK(why.at("state") == "ended");
  CHECK(why.at("outcome") == "died");
  CHECK(why.at("ended") == "later");
  const cli::past_session older({header, status_line(7, run_outcome::finished), ended}, "later");
  CHECK(older.answer({{"verb", "why"}}).at("error").at("kind") == "no_why");
}

TEST_CASE("the last status counts, and says when the session ended") {
  const cli::past_session past(
      {header, status_line(7, run_outcome::running), status_line(9, run_outcome::finished), ended}, "later");
  const json status = result_of(past, {{"verb", "status"}});
  CHECK(status.at("samples_delivered") == 9);
  CHECK(status.at("state") == "ended");
  CHECK(status.at("outcome") == "finished");
  CHECK(status.at("ended") == "2026-11-24T02:13:07.000000Z");
  CHECK(past.summary().at("pid") == 17);
}

TEST_CASE("workers of an ended session have ended, and keep their pids and counts") {
  session_status running;
  running.outcome = run_outcome::running;
  running.workers.resize(1);
  running.workers[0].state = child_state::ready;
  running.workers[0].pid = 99;
  running.workers[0].samples = 41;
  session_status over = running;
  over.outcome = run_outcome::finished;
  over.workers[0].state = child_state::backoff;
  over.workers[0].pid.reset();
  over.workers[0].samples = 0;
  over.workers[0].next_restart_seconds = 0.0;
  const cli::past_session past(
      {header, line_of("status", telemetry::as_json(running)), line_of("status", telemetry::as_json(over))},
      "");
  const json worker = result_of(past, {{"verb", "status"}}).at("workers").at(0);
  CHECK(worker.at("state") == "ended");
  CHECK(worker.at("pid") == 99);
  CHECK(worker.at("samples") == 41);
  CHECK(worker.at("next_restart_seconds").is_null());
}

TEST_CASE("a worker whose place was empty before the end keeps neither pid nor memory") {
  session_status running;
  running.outcome = run_outcome::running;
  running.workers.resize(1);
  running.workers[0].state = child_state::ready;
  running.workers[0].pid = 99;
  running.workers[0].rss_bytes = 1 << 20;
  session_status over = running;
  over.outcome = run_outcome::finished;
  over.workers[0].state = child_state::stopped;
  over.workers[0].why_stopped = vacancy::scaled_down;
  over.workers[0].pid.reset();
  over.workers[0].rss_bytes = 0;
  const cli::past_session past({header, line_of("status", telemetry::as_json(running)), line_of("status", telemetry::as_json(over))}, "");
  const json worker = result_of(past, {{"verb", "status"}}).at("workers").at(0);
  CHECK(cli::state_of(worker) == "stopped (scaled down)");
  CHECK(worker.at("pid").is_null());
  CHECK(worker.at("rss_bytes") == 0);
}

TEST_CASE("a start of events is a duration, a time of today or a date, and nothing else") {
  const auto now = *cli::time_of_utc("2026-11-20T14:05:10.250000Z");
  const auto since = [&](const std::string& text) { return cli::since_of(text, now).value(); };
  CHECK(since("10s") == "2026-11-20T14:05:00.250000Z");
  CHECK(since("9:05") == "2026-11-20T09:05:00");
  CHECK(since("14:05:07") == "2026-11-20T14:05:07");
  CHECK(since("2026-02-28") == "2026-02-28T00:00:00");
  CHECK(since("2026-02-28 23:59") == "2026-02-28T23:59:00");
  CHECK(since("2026-02-28T23:59:59.5Z") == "2026-02-28T23:59:59.5");
  CHECK(since("2999-01-01") == "2999-01-01T00:00:00");
  for (const char* const wrong : {"25:99", "24:00", "14:60", "14:05:60", "2026-13-01", "2026-02-30", "2026-02-28x", "2026-02-28T25:00", "14:05x", "14", "-", "26-11-20", "2026-02-28.5", "14:05.5"})
    CHECK_FALSE(cli::since_of(wrong, now).has_value());
}

TEST_CASE("the device of an ended session is closed, and only existing files count as written") {
  session_status s;
  s.gpu_state = child_state::ready;
  json status = telemetry::as_json(s);
  status["files"] = {{"report", "/data/report.json"}, {"state", "/data/run.state"}};
  cli::past_session past({header, line_of("status", status)}, "later");
  past.files_are({{"files", {{"state", "/data/run.state"}}}, {"not_written", {{"report", "/data/report.json"}}}});
  const json told = result_of(past, {{"verb", "status"}});
  CHECK(told.at("gpu").at("state") == "ended");
  CHECK(told.at("files") == json{{"state", "/data/run.state"}});
  CHECK(past.summary().at("not_written") == json{{"report", "/data/report.json"}});
}

TEST_CASE("workers that were killed at a stop do not count among the deaths of the ended session, and others do") {
  death_report late;
  late.cause = death_cause::stopped;
  late.ignored_stop_seconds = 10;
  const cli::past_session past({header, status_line(7, run_outcome::stopped), event_line(1, event_kind::worker_died, late), ended}, "");
  CHECK(past.summary().at("workers_ended_unexpectedly") == 0);
  CHECK(past.summary().at("killed_at_stop") == 1);
  CHECK(cli::deaths_in(past.summary()) == "0");
  death_report crashed;
  crashed.cause = death_cause::signal;
  const cli::past_session died({header, status_line(7, run_outcome::running), event_line(1, event_kind::worker_died, crashed)}, "");
  CHECK(cli::deaths_in(died.summary()) == "1");
}

TEST_CASE("a worker that exceeded its memory limit does not count as a death of the session, and one that the kernel's OOM killer ended does") {
  death_report planned;
  planned.cause = death_cause::memory;
  death_report sudden;
  sudden.cause = death_cause::oom;
  const cli::past_session past(
      {header, status_line(7, run_outcome::running), event_line(1, event_kind::worker_died, planned), event_line(2, event_kind::worker_died, sudden)}, "");
  CHECK(cli::deaths_in(past.summary()) == "1");
  CHECK(result_of(past, {{"verb", "deaths"}}).at("deaths").size() == 2);
}

TEST_CASE("a session without an end has died at the time of its last line") {
  const cli::past_session past({header, status_line(7, run_outcome::running)}, "2026-11-24T02:00:00.000000Z");
  const json status = result_of(past, {{"verb", "status"}});
  CHECK(status.at("outcome") == "died");
  CHECK(status.at("ended") == "2026-11-24T02:00:00.000000Z");
}

TEST_CASE("a session that was killed while it was stopping, or paused, is neither any more") {
  auto status = json::parse(status_line(7, run_outcome::running));
  status["status"].update({{"state", "stopping"}, {"stopping_seconds", 12.3}, {"killed_in_seconds", 1.5}, {"paused_by", "the program"}});
  const json shown = result_of(cli::past_session({header, status.dump()}, "2026-11-24T02:00:00.000000Z"), {{"verb", "status"}});
  CHECK(shown.at("state") == "ended");
  for (const char* const key : {"stopping_seconds", "killed_in_seconds", "paused_by"}) CHECK(shown.at(key).is_null());
}

TEST_CASE("a suspended session has a state and events, but no end") {
  cli::past_session past({header, status_line(7, run_outcome::running), event_line(1, event_kind::paused)}, "2026-11-24T02:00:00.000000Z");
  CHECK(past.has_no_end());
  past.is_suspended();
  const json status = result_of(past, {{"verb", "status"}});
  CHECK(status.at("state") == "suspended");
  CHECK(status.at("outcome") == "running");
  CHECK(status.at("samples_delivered") == 7);
  CHECK(status.at("eta_seconds").is_null());
  CHECK(result_of(past, {{"verb", "events"}}).at("events").size() == 1);
  CHECK(result_of(past, {{"verb", "pipeline"}}).at("waits_for") == "nothing: the session is suspended");
}

TEST_CASE("deaths come from their events, and the sacrificial worker is marked") {
  death_report usual;
  usual.worker = 3;
  death_report alone;
  alone.worker = 8;
  const cli::past_session past(
      {header, event_line(1, event_kind::worker_died, usual), event_line(2, event_kind::worker_died, alone)},
      "");
  const json deaths = result_of(past, {{"verb", "deaths"}});
  REQUIRE(deaths.at("deaths").size() == 2);
  CHECK(deaths.at("deaths")[0].at("sacrificial") == false);
  CHECK(deaths.at("deaths")[1].at("sacrificial") == true);
  CHECK(deaths.at("of") == "samples");
}

TEST_CASE("events are read after a number, and following ends at once") {
  const cli::past_session past(
      {header, event_line(5, event_kind::paused), event_line(6, event_kind::resumed)}, "");
  CHECK(result_of(past, {{"verb", "events"}, {"after", 0}}).at("events").size() == 3);
  const json rest = result_of(past, {{"verb", "events"}, {"after", 5}, {"follow", true}});
  REQUIRE(rest.at("events").size() == 2);
  CHECK(rest.at("events")[0].at("kind") == "resumed");
  CHECK(rest.at("events")[1].at("kind") == "ended");
  CHECK(result_of(past, {{"verb", "events"}, {"after", 7}, {"follow", true}}).at("events").empty());
}

TEST_CASE("logs are those of the target, and previous logs are those of its process before the last one") {
  death_report death;
  death.worker = 1;
  death.incarnation = 1;
  const cli::past_session past(
      {header, log_line("worker/0", 1, "a"), log_line("gpu", 1, "b"), log_line("worker/0", 2, "c"),
       log_line("worker/1", 1, "d"), event_line(1, event_kind::worker_died, death)},
      "");
  const auto texts = [&](json question) {
    question["verb"] = "logs";
    std::string all;
    const json found = result_of(past, std::move(question));
    for (const json& line : found.at("lines")) all += line.at("text").get<std::string>();
    return all;
  };
  CHECK(texts({{"target", "all"}}) == "abcd");
  CHECK(texts({{"target", "workers"}}) == "acd");
  CHECK(texts({{"target", "worker/0"}, {"previous", true}}) == "a");
  CHECK(texts({{"target", "worker/1"}, {"previous", true}}) == "d");
  CHECK(texts({{"target", "all"}, {"tail", 2U}}) == "cd");
  death.incarnation = 2;  // the second-to-last process of worker/1 wrote no output
  const cli::past_session silent(
      {header, log_line("worker/1", 1, "d"), event_line(2, event_kind::worker_died, death)}, "");
  const json found = result_of(silent, {{"verb", "logs"}, {"target", "worker/1"}, {"previous", true}});
  CHECK(found.at("lines").empty());
  CHECK(texts({{"target", "all"}, {"follow", true}, {"after", json::object()}}).empty());
}

TEST_CASE("an ended session refuses orders, and a request for its status if it recorded none") {
  const cli::past_session past({header, event_line(1, event_kind::run_started)}, "");
  for (const char* verb : {"stop", "scale", "status"}) {
    const json answer = past.answer({{"verb", verb}});
    CHECK(answer.at("ok") == false);
    CHECK(answer.at("exit") == 5);
    CHECK(answer.at("error").at("message").get<std::string>().find("photos") != std::string::npos);
  }
}

TEST_CASE("a rank's record says which rank of which launch it was") {
  CHECK_FALSE(cli::past_session({header}, "").rank());
  const std::string of_rank = line_of(
      "record",
      {{"session", "photos-rank1"}, {"rank", {{"job", "launch-7"}, {"group", "photos"}, {"rank", 1}}}});
  CHECK(cli::past_session({of_rank}, "").rank() == control::rank_note{"launch-7", "photos", 1});
}

TEST_CASE("incomplete, unknown and nonsensical lines are skipped") {
  const cli::past_session past({header, R"({"event": {"number")", "[]", "{}", R"({"status": 7})",
                                R"({"new_kind": {"x": 1}})", event_line(1, event_kind::paused)},
                               "");
  CHECK(result_of(past, {{"verb", "events"}}).at("events").size() == 2);
  const cli::past_session nothing({}, "");
  CHECK(nothing.summary().at("outcome") == "died");
}

TEST_CASE("the last event says how the session ended, and why") {
  const auto last_of = [](const cli::past_session& past, std::uint64_t after) {
    return result_of(past, {{"verb", "events"}, {"after", after}}).at("events").back();
  };
  const cli::past_session failed({header, event_line(4, event_kind::run_failed, {}, "the dataset is gone"),
                                  event_line(5, event_kind::stopping), status_line(9, run_outcome::failed), ended},
                                 "later");
  const json e = last_of(failed, 0);
  CHECK(e.at("kind") == "ended");
  CHECK(e.at("number") == 6);
  CHECK(e.at("time") == "2026-11-24T02:13:07.000000Z");
  CHECK(e.at("outcome") == "failed");
  CHECK(e.at("text") == "failed: the dataset is gone");
  CHECK(last_of(failed, 5).at("kind") == "ended");
  CHECK(result_of(failed, {{"verb", "events"}, {"after", 6}}).at("events").empty());
  CHECK(failed.summary().at("reason") == "the dataset is gone");
  cli::past_session killed({header, event_line(1, event_kind::run_started)}, "later");
  CHECK(last_of(killed, 0).at("text") == "died: the program ended without closing the session: it was killed, crashed, or exited without cleanup");
  cli::past_session of_rank({header, event_line(1, event_kind::run_started), R"({"process_ended":{"how":"SIGTERM"}})"}, "later");
  CHECK(of_rank.summary().at("reason") == "the program ended without closing the session: SIGTERM");
  of_rank.machine_has_stopped();  // later
  CHECK(of_rank.summary().at("reason") == "the program ended without closing the session: SIGTERM");
  json of_loader = json::parse(header);
  of_loader["record"]["of"] = "batches";
  CHECK(cli::past_session({of_loader.dump()}, "later").summary().at("reason").get<std::string>().starts_with("the program ended without closing the loader: "));
  killed.machine_has_stopped();
  CHECK(killed.summary().at("reason") == "the machine stopped or was restarted before the program closed the session");
}

TEST_CASE("a long failure of an ended session is cut between words") {
  json one{{"outcome", "failed"}, {"ended", "2026-11-24T02:13:07.000000Z"}, {"failure", std::string(154, 'x') + " and_more than_fits"}};
  CHECK(cli::end_in_words(one).ends_with("xxx ..."));
  one["failure"] = "the dataset is gone";
  CHECK(cli::end_in_words(one).ends_with(" ago: the dataset is gone"));
}

TEST_CASE("on a narrow terminal the list of ended sessions shortens no reason") {
  const std::string why = "opening the dataset '/data/photos/of/a/long/summer': no such file; correct [dataset] path in the config";
  json one = cli::past_session({header, status_line(7, run_outcome::failed), ended}, "").summary();
  one["id"] = "photos@20261124T183344.123-4711";
  one["failure"] = why;
  one["samples_expected"] = 40;
  std::string text = cli::ended_for_people(json::array({one}), 80);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
  for (std::size_t at = 0; (at = text.find("\n    ")) != std::string::npos;) text.replace(at, 5, " ");
  CHECK(text.ends_with(" 7 of 40 samples; " + why + "\n"));
  CHECK(text.find("photos@20261124T183344.123-4711  failed   11-24 02:13:07") != std::string::npos);
}

TEST_CASE("the list of ended sessions has the start, the duration and the files of each") {
  json one = cli::past_session({header, status_line(7, run_outcome::running)}, "2026-11-24T02:13:07.000000Z").summary();
  one["id"] = "photos@1";
  one["started"] = "2026-11-24T02:11:02.000000Z";
  one["config_file"] = "photos.toml";
  one["files"] = {{"state", "/nonexistent/run.state"}};
  one["not_written"] = {{"report", "/nonexistent/report.json"}};
  const std::string text = cli::ended_for_people(json::array({one}), 0);
  CHECK(text.find("STARTED (UTC)") != std::string::npos);
  CHECK(text.find("  11-24 02:11:02  last seen 11-24 02:13:07  2 m 5 s ") != std::string::npos);
  CHECK(text.ends_with("    report: /nonexistent/report.json was not written\n"
                       "    state: /nonexistent/run.state\n"
                       "    it died; `penstock run photos.toml --state /nonexistent/run.state`, with the other options of the run, continues from that state\n"));
}

TEST_CASE("status and the list of ended sessions agree on how long a session ran") {
  json head = json::parse(header);
  head["record"]["started"] = "2026-11-24T02:12:18.700000Z";
  session_status last;
  last.uptime_seconds = 39;
  const cli::past_session past({head.dump(), line_of("status", telemetry::as_json(last))}, "2026-11-24T02:13:07.000000Z");
  const json status = result_of(past, {{"verb", "status"}});
  CHECK(status.at("uptime_seconds").get<double>() > 48);
  CHECK(cli::status_for_people(status, {}, 0).find("ran for 48.3 s") != std::string::npos);
  json one = past.summary();
  one["id"] = "photos@1";
  CHECK(cli::ended_for_people(json::array({one}), 0).find("  48.3 s ") != std::string::npos);
}

TEST_CASE("for a session that could not record its end, the list says when it was last seen") {
  json one = cli::past_session({header, status_line(7, run_outcome::running)}, "2026-11-24T02:13:07.000000Z").summary();
  one["id"] = "photos@20261124T183344.123-4711";
  CHECK(cli::ended_for_people(json::array({one}), 80).find("died     last seen 11-24 02:13:07") != std::string::npos);
  CHECK(cli::end_in_words(one).starts_with("died, last seen "));
}

TEST_CASE("for a killed session the age of its last status is known") {
  json line = json::parse(status_line(7, run_outcome::running));
  line["time"] = "2026-11-24T02:13:03.500000Z";
  const cli::past_session past({header, line.dump()}, "2026-11-24T02:13:07.000000Z");
  CHECK(past.status_age_seconds() == 3.5);
  CHECK(result_of(past, {{"verb", "status"}}).at("status_time") == "2026-11-24T02:13:03.500000Z");
  // An older penstock recorded no time.
  const cli::past_session old({header, status_line(7, run_outcome::running)}, "2026-11-24T02:13:07.000000Z");
  CHECK_FALSE(old.status_age_seconds());
  CHECK(result_of(old, {{"verb", "status"}}).at("status_time").is_null());
}
