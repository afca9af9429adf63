// metrics: the metrics of all sessions of this user, running or recently ended, as one page for Prometheus.
#include "runtime/base/last_death.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/units.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/session_record.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/telemetry/metrics_server.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/metrics/exported_page.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/past/past_session.hpp"
#include "tools/penstock/session_link.hpp"
#include "tools/penstock/stop_signals.hpp"
#include "tools/penstock/verb_table.hpp"
#include "tools/penstock/watch/death_tables.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

struct metrics_options {
  std::string listen;
  std::string out;
  std::string since = "24h";
  bool as_json = false;
};

/// Null if there is none.
json last_of(const json& deaths) {
  const json* const last = last_death(deaths, [](const json& d) {
    const json cause = d.value("cause", json());
    return cause.is_string() ? cause.get<std::string>() : std::string();  // a record may be damaged
  });
  return last == nullptr ? json() : *last;
}

/// What page_of_ended() needs.
json ended_facts_of(const past_session& past, const std::string& id) {
  const auto told = [&past](json question) { return past.answer(question).value("result", json::object()); };
  json about{{"id", id}};
  about.update(past.summary());
  about["status"] = told({{"verb", "status"}});
  const json deaths = told({{"verb", "deaths"}});
  about["deaths"] = {{"worker", deaths_by_cause(deaths.value("deaths", json::array()))}, {"gpu", deaths_by_cause(deaths.value("owner_deaths", json::array()))}};
  about["last_death"] = last_of(deaths.value("deaths", json::array()));
  about["last_owner_death"] = last_of(deaths.value("owner_deaths", json::array()));
  about["quarantine"] = told({{"verb", "quarantine"}, {"act", "list"}}).value("quarantine", json::array());
  about["failures"] = json::array();
  for (const json& e : told({{"verb", "events"}}).value("events", json::array())) {
    if (e.value("kind", json()) == "sample_failed") about["failures"].push_back(e);
  }
  return about;
}

/// Reads each record once: it does not change after the session's end.
class ended_sessions_reader {
 public:
  explicit ended_sessions_reader(nanoseconds longest_ago) : longest_ago_(longest_ago) {}

  [[nodiscard]] std::vector<json> read() {
    std::vector<json> all;
    std::map<std::string, json> there;
    for (const control::found_record& r : control::find_records()) {
      std::error_code gone;
      const auto written = std::filesystem::last_write_time(r.path, gone);
      if (r.live || gone || std::filesystem::file_time_type::clock::now() - written > longest_ago_) continue;
      auto known = known_.find(r.id);
      if (known == known_.end()) {
        const auto past = read_past(r.path);
        if (!past) continue;  // the record was removed meanwhile
        known = known_.emplace(r.id, ended_facts_of(*past, r.id)).first;
      }
      there.insert(*known);
      all.push_back(known->second);
    }
    known_ = std::move(there);
    return all;
  }

 private:
  nanoseconds longest_ago_;
  std::map<std::string, json> known_;  // by id
};

struct exported {
  std::string text;
  std::size_t running = 0;
  std::size_t ended = 0;
};

seen_from_outside look_at(const control::found_session& s, const std::vector<control::found_record>& records) {
  seen_from_outside seen;
  seen.pid = control::process_behind(s.path);
  seen.suspended = !if_suspended(seen.pid).empty();
  const auto r = std::ranges::find_if(records, [&](const control::found_record& one) { return one.live && is_record_of(one, s.path, seen.pid); });
  std::error_code gone;
  if (r == records.end()) return seen;
  seen.id = r->id;
  const auto written = std::filesystem::last_write_time(r->path, gone);
  if (gone) return seen;
  const auto ago = std::filesystem::file_time_type::clock::now() - written;
  seen.last_seen = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch() - ago).count();
  return seen;
}

exported make_page(ended_sessions_reader& reader) {
  const std::vector<control::found_record> records = control::find_records();
  std::map<std::string, seen_from_outside> seen;
  std::vector<std::pair<std::string, std::future<std::string>>> asked;
  for (const control::found_session& s : control::find_sessions()) {
    if (!s.alive) continue;
    seen[s.name] = look_at(s, records);
    if (seen[s.name].suspended) {  // each request would time out, and then stay in the socket's backlog
      asked.emplace_back(s.name, std::async(std::launch::deferred, [] { return std::string(); }));
      continue;
    }
    asked.emplace_back(s.name, std::async(std::launch::async, [path = s.path] {
                         const auto answer = control::ask(path, {{"verb", "metrics"}}, look_deadline);
                         const bool told = answer && answer->value("ok", false);
                         return told ? answer->at("result").value("text", "") : std::string();
                       }));
  }
  exported page;
  page.running = asked.size();
  merged_pages running;
  for (auto& [name, answer] : asked) {
    const std::string text = answer.get();
    if (text.empty()) seen[name].suspended = !if_suspended(seen[name].pid).empty();  // the session may have been suspended after the request
    running.add(name, text, seen[name]);
  }
  const std::vector<json> ended = reader.read();
  page.ended = ended.size();
  page.text = std::move(running).text() + page_of_ended(ended);
  return page;
}

int serve(const metrics_options& o, ended_sessions_reader& reader, stop_signals& signals) {
  boost::asio::io_context io;
  auto server = telemetry::metrics_server::open(io, o.listen, [&reader] { return make_page(reader).text; });
  if (!server && server.error().code == errc::config)
    return refuse_with(exit_usage, {errc::usage, "--listen: " + server.error().message, 0}, o.as_json);
  if (!server) return refuse_with(exit_failed, server.error(), o.as_json);
  const std::string address = fmt::format("http://{}/metrics", (*server)->address());
  if (o.as_json) {
    print_json("penstock.metrics/1", {{"address", address}});
  } else {
    say(address);
  }
  signals.listen([&io](int) { io.stop(); }, {.first = "stopping", .again = ""});
  const auto stays = boost::asio::make_work_guard(io);
  io.run();
  signals.ignore();
  return exit_ok;
}

int metrics(const metrics_options& o) {
  const auto since = parse_time_option("--since", o.since, 1s, 24h * 365);
  if (!since) return refuse_with(exit_usage, since.error(), o.as_json);
  stop_signals signals;  // must exist before any thread starts
  ended_sessions_reader reader(*since);
  if (!o.listen.empty()) return serve(o, reader, signals);
  const exported page = make_page(reader);
  json told{{"sessions", page.running}, {"ended", page.ended}};
  if (o.out.empty()) {
    told["text"] = page.text;
    if (!o.as_json) print_raw(page.text);
  } else {
    if (auto ok = replace_file(o.out, page.text); !ok) return refuse_with(exit_failed, ok.error(), o.as_json);
    told["out"] = o.out;
  }
  if (o.as_json) print_json("penstock.metrics/1", told);
  return exit_ok;
}

}  // namespace

void add_metrics_command(verb_table& verbs) {
  const auto o = std::make_shared<metrics_options>();
  CLI::App& verb = verbs.add(
      {"metrics",
       verb_group::look,
       "export the metrics of all sessions to Prometheus",
       "One page in Prometheus's text format: the metrics of each running session of this user (labelled with "
       "its name), and the outcome of each session that ended within --since, with its reason, its last death and its "
       "quarantined samples. A session's own endpoint ends with it, so this is where Prometheus learns of failed and "
       "killed sessions. Without an option it prints the page once.",
       {{"penstock metrics --listen 127.0.0.1:9465", "serve http://127.0.0.1:9465/metrics until Ctrl-C or SIGTERM"},
        {"penstock metrics --out /var/lib/node_exporter/penstock.prom", "for node_exporter's textfile collector, from cron"},
        {"penstock metrics | grep ended_info", "how the sessions of the last day ended"}}},
      [o] { return metrics(*o); });
  CLI::Option* const listen = verb.add_option("--listen", o->listen, "serve the page over HTTP until a signal");
  listen->type_name("ADDRESS:PORT");
  verb.add_option("--out", o->out, "write the page to a file, which is always complete")->type_name("FILE")->excludes(listen);
  verb.add_option("--since", o->since, "how long sessions stay on the page after their end")
      ->type_name("TIME")
      ->capture_default_str();
  verb.add_flag("--json", o->as_json, "print one JSON object");
}

}  // namespace penstock::cli
