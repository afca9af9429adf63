// headroom: compares a program's rate on the session's real feed with its rate if it never waited for data.
#include "actors/gpu_owner/batch_sink.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/pauser.hpp"
#include "runtime/config/limits.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/device/device.hpp"
#include "tools/penstock/bench/bench.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/session.hpp>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

constexpr auto own_answer_deadline = 2s;
constexpr auto feed_alone_from = 20s;  // from this value of --seconds on, `why` describes only the feed
constexpr std::uint64_t epochs_max = 1'000'000;  // the largest [sampler] epochs

struct headroom_options {
  config_source source;
  std::string seconds = "20s";
  std::string step;
  std::string sink = "null";
  bool as_json = false;
};

/// The program that works on the batches: a sink, and a step of a given length.
class program_around {
 public:
  program_around(const headroom_options& o, const config& settings, nanoseconds step)
      : device_(value_or_throw(device::make_device(settings.gpu.device))),
        sink_(value_or_throw(gpu_owner::make_sink(o.sink, "", settings, device_))),
        step_(step) {}

  void work_on(const Batch& batch) {
    value_or_throw(sink_->take(batch));
    if (step_ > 0ns) std::this_thread::sleep_for(step_);
  }

 private:
  std::shared_ptr<device::device> device_;
  std::unique_ptr<gpu_owner::batch_sink> sink_;
  nanoseconds step_;
};

/// The rate at which the program worked on batches.
struct feed_rate {
  double seconds = 0;
  double waited = 0;  // for batches
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;

  [[nodiscard]] double samples_per_second() const { return static_cast<double>(samples) / seconds; }
  [[nodiscard]] json as_json() const {
    return {{"samples_per_second", samples_per_second()},
            {"batches_per_second", static_cast<double>(batches) / seconds},
            {"batches", batches},
            {"seconds", seconds},
            {"waited", waited / seconds}};
  }
};

Batch next_of(Session& session) {
  auto batch = session.next();
  if (!batch) throw error({errc::stopped, "the session was stopped before the measurement was over", 0});
  return std::move(*batch);
}

/// Works on the same batch again and again.
feed_rate measure_cached(program_around& program, const Batch& batch, nanoseconds time) {
  feed_rate r;
  const auto begin = std::chrono::steady_clock::now();
  do {
    program.work_on(batch);
    ++r.batches;
    r.samples += batch.rows();
    r.seconds = seconds_since(begin);
  } while (std::chrono::duration<double>(time).count() > r.seconds);
  return r;
}

feed_rate measure_feed(program_around& program, Session& session, nanoseconds time) {
  feed_rate r;
  const auto begin = std::chrono::steady_clock::now();
  do {
    const auto asked = std::chrono::steady_clock::now();
    Batch batch = next_of(session);
    r.waited += seconds_since(asked);
    program.work_on(batch);
    ++r.batches;
    r.samples += batch.rows();
    batch.release_unused();
    r.seconds = seconds_since(begin);
  } while (std::chrono::duration<double>(time).count() > r.seconds);
  return r;
}

/// "photos-headroom": live sessions are listed under this name.
std::string name_for_headroom(const std::string& config_name) {
  constexpr std::string_view suffix = "-headroom";
  return config_name.substr(0, config_file::session_name_max - suffix.size()).append(suffix);
}

/// The answer of this process's session to a verb; null if its socket does not answer.
json ask_own_session(const json& request) {
  for (const control::found_session& found : control::find_sessions()) {
    if (control::process_behind(found.path) != ::getpid()) continue;
    const auto answer = control::ask(found.path, request, own_answer_deadline);
    if (answer && answer->value("ok", false)) return answer->at("result");
  }
  return nullptr;
}

/// Without a pause the session would report that the program takes no batch. The request goes over the socket, so that
/// the session can show who paused it.
void set_paused(Session& session, bool paused) {
  const json answer = ask_own_session({{"verb", paused ? "pause" : "resume"}, {"by", words_of(pauser::headroom)}});
  if (answer.is_null()) paused ? session.pause() : session.resume();
}

/// A step takes as long for a small last batch as for a full one, so that the two rates are comparable only if all batches are full.
/// Only the worker program knows whether a custom dataset has a full batch.
config with_full_batches(config settings) {
  const auto prepared = prepare_stream(settings);
  if (!prepared) return settings;  // the session says why
  const std::uint64_t positions = prepared->order.order ? prepared->order.order->positions() : prepared->description.samples;
  settings.sampler.drop_last |= positions / settings.sampler.world_size >= settings.sampler.batch_size;
  keep_prepared(settings, *prepared);
  return settings;
}

json measure(const headroom_options& o, config settings, nanoseconds time, nanoseconds step) {
  settings.name = name_for_headroom(settings.name);
  settings.gpu.placement = placement_rule::embedded;
  settings.sampler.epochs = epochs_max;
  settings.quarantine.file.clear();
  settings = with_full_batches(std::move(settings));
  Session session(settings, session_options());
  Batch batch = next_of(session);
  program_around program(o, settings, step);
  program.work_on(batch);  // warms up
  set_paused(session, true);
  const feed_rate cached = measure_cached(program, batch, time / 2);
  set_paused(session, false);
  batch.release_unused();
  measure_feed(program, session, time / 8);  // takes the batches that are already loaded
  const feed_rate feed = measure_feed(program, session, time / 2);
  const json why = ask_own_session({{"verb", "why"}});
  const auto said = [&why](const char* key) { return why.is_object() ? why.at(key) : json(); };
  const session_status status = session.status();
  session.stop(std::nullopt, "`penstock headroom`, because its measurement is over");
  session.close();
  return {{"schema", "penstock.headroom/1"},
          {"device", status.gpu.name},
          {"sink", o.sink},
          {"step_seconds", std::chrono::duration<double>(step).count()},
          {"feed", feed.as_json()},
          {"cached", cached.as_json()},
          {"ratio", feed.samples_per_second() / cached.samples_per_second()},
          {"limit", said("limit")},
          {"key", said("key")},
          {"verdict", said("verdict")}};
}

void tell(const headroom_options& o, nanoseconds time, const json& r) {
  const double feed = r.at("feed").at("samples_per_second").get<double>();
  const double cached = r.at("cached").at("samples_per_second").get<double>();
  print(fmt::format("cached  {:>9.0f} samples/s, with one batch used repeatedly: the program never waits for data", cached));
  print(fmt::format("feed    {:>9.0f} samples/s, {:.1f} % of that; the program waited {:.1f} % of the time", feed,
                    100 * r.at("ratio").get<double>(), 100 * r.at("feed").at("waited").get<double>()));
  if (r.at("verdict").is_string()) print(r.at("verdict").get<std::string>());
  if (r.at("verdict").is_string() && time < feed_alone_from)
    say("that sentence is about the last 10 s, and the feed was measured for less: to compare the two, give --seconds 20s");
  if (o.sink == "null" && o.step.empty())
    say("nothing works on the batches: name your program (--sink plugin:PATH), or how long a step takes (--step 20ms)");
}

int headroom(const headroom_options& o) {
  const auto time = parse_time_option("--seconds", o.seconds, 1s, 1h);
  if (!time) return refuse_with(exit_usage, time.error(), o.as_json);
  const auto step = o.step.empty() ? result<nanoseconds>(0ns) : parse_time_option("--step", o.step, 1us, 10min);
  if (!step) return refuse_with(exit_usage, step.error(), o.as_json);
  if (auto ok = gpu_owner::check_sink(o.sink, ""); !ok) return refuse_with(exit_usage, ok.error(), o.as_json);
  const auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.as_json);
  tell_warnings(*loaded);
  try {
    const json measured = measure(o, loaded->values, *time, *step);
    o.as_json ? print_json(measured) : tell(o, *time, measured);
    return exit_ok;
  } catch (const error& e) {
    return refuse_with(e.code() == errc::config ? exit_config : exit_failed, e.as_failure(), o.as_json);
  }
}

}  // namespace

void add_headroom_command(verb_table& verbs) {
  const auto o = std::make_shared<headroom_options>();
  CLI::App& verb = verbs.add(
      {"headroom",
       verb_group::look,
       "measure how fast your program is if it never waits for data",
       "Runs the session of FILE twice in one process: first the program gets the same batch repeatedly, which stays on the device, "
       "then it gets the real feed. Prints both rates, their ratio, and what limits the feed (penstock why). The program is a sink, or "
       "a step of a given length. Works on the host device, too.",
       {{"penstock headroom photos.toml --sink plugin:./train.so", "your own device program"},
        {"penstock headroom photos.toml --step 18ms", "a training step that takes 18 ms"},
        {"penstock headroom photos.toml --step 18ms --json | jq .ratio", "the rate of the feed divided by the possible rate"}}},
      [o] { return headroom(*o); });
  add_stream_options(verb, o->source);
  add_config_shorthands(verb, o->source);
  verb.add_option("--sink", o->sink, "what works on the batches: null, journal:PATH, plugin:PATH")
      ->type_name("SINK")
      ->capture_default_str();
  verb.add_option("--step", o->step, "additional time that the program works on each batch")->type_name("TIME");
  verb.add_option("--seconds", o->seconds, "how long to measure in total; what limits the feed is measured over 10 s")
      ->type_name("TIME")
      ->capture_default_str();
  verb.add_flag("--json", o->as_json, "print one JSON object");
}

}  // namespace penstock::cli
