// Requests on the control socket: any JSON gets a result object as its answer, and only well-formed orders reach the session.
#include "actors/host/control_verbs.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <nlohmann/json.hpp>

using namespace penstock;
using json = nlohmann::ordered_json;

namespace {

constexpr std::uint32_t workers_max = 8;

const process::log_store& some_log() {
  static const auto book = [] {
    auto made = std::make_unique<process::log_store>();
    made->begin("worker/0", 1);
    made->wrote("worker/0", 1, "hello \xff", 1);
    return made;
  }();
  return *book;
}

host::session_controls controls() {
  host::session_controls c;
  c.status = [] {
    session_status s;
    s.session = "fuzz";
    s.workers.resize(2);
    s.workers[1].id = 1;
    return s;
  };
  c.progress = [] { return supervision::progress_facts(); };
  c.waited_seconds = [] { return 1.5; };
  c.worker_rates = [] { return std::map<std::uint32_t, double>{{0, 2.5}}; };
  c.limits = [] { return host::limits_told(); };
  c.tuning = [] { return nlohmann::ordered_json(); };
  c.ends = [] { return "session"; };
  c.deaths = [] { return std::vector<death_report>(1); };
  c.owner_deaths = [] { return std::vector<owner_death_report>(1); };
  c.quarantine = [] { return std::vector<quarantine_report>(1); };
  c.lift_quarantine = [](std::uint64_t sample, bool) { return sample == 1; };
  c.events = [](std::uint64_t, std::size_t) { return telemetry::event_reading(); };
  c.stop = [](bool, const std::string&) {};
  c.pause = [](bool, pauser) { return true; };
  c.scale = [](std::optional<std::uint32_t> workers) { must(!workers || (*workers >= 1 && *workers <= workers_max)); };
  c.restart = [](std::uint32_t worker, bool /*at_once*/) { must(worker < 2); };
  c.drain = [](std::uint32_t worker) { must(worker < 2); };
  c.logs = &some_log();
  c.workers_max = workers_max;
  return c;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const control::request_handler handle = host::make_request_handler(controls());
  const json request = json::parse(data, data + size, nullptr, false);
  if (request.is_discarded() || !request.is_object()) return 0;  // the server refuses such a request before the verbs see it
  for (const bool last_call : {false, true}) {
    const auto said = handle(request, last_call);
    if (!said) continue;
    must(said->is_object() && said->at("ok").is_boolean());
    must(said->at("ok") == true ? said->contains("result") : said->at("exit").is_number_integer());
    static_cast<void>(said->dump(-1, ' ', false, json::error_handler_t::replace));
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {R"({"penstock":1,"verb":"status"})",
          R"({"verb":"wait","for":"ready"})",
          R"({"verb":"deaths"})",
          R"({"verb":"events","after":3,"follow":true})",
          R"({"verb":"logs","target":"worker/0","previous":true,"tail":5})",
          R"({"verb":"logs","target":"all","follow":true,"after":{"worker/0":1}})",
          R"({"verb":"quarantine","act":"release","sample":1})",
          R"({"verb":"scale","workers":4})",
          R"({"verb":"restart","worker":1})",
          R"({"verb":"drain","worker":0})",
          R"({"verb":"stop","now":true})",
          R"({"verb":"pause"})"};
}
