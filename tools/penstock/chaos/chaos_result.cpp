#include "tools/penstock/chaos/chaos_result.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/output.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

std::vector<delivery_promise> promises_of(const playing& round) {
  std::vector<delivery_promise> promises;
  for (const auto& [bytes, delivered] : round.promises)
    promises.push_back({round.delivered.batches_within(bytes), delivered});
  return promises;
}

struct quantiles {
  std::size_t n = 0;
  double p50 = 0, p99 = 0, max = 0;
};

quantiles quantiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[std::min(values.size() - 1,
                           static_cast<std::size_t>(share * static_cast<double>(values.size())))];
  };
  return {values.size(), at(0.5), at(0.99), values.back()};
}

json as_json(const quantiles& q) {
  if (q.n == 0) return {{"n", 0}, {"p50", nullptr}, {"p99", nullptr}, {"max", nullptr}};
  return {{"n", q.n}, {"p50", q.p50}, {"p99", q.p99}, {"max", q.max}};
}

double rate_of(std::uint64_t samples, double seconds) {
  return seconds > 0 ? std::round(static_cast<double>(samples) / seconds * 10) / 10 : 0;
}

template <class Which>
json times_of(const std::vector<chaos_fault>& faults, Which which, std::optional<double> chaos_fault::*time) {
  std::vector<double> times;
  for (const chaos_fault& f : faults) {
    if (which(f) && f.*time) times.push_back(*(f.*time));
  }
  return as_json(quantiles_of(std::move(times)));
}

bool is_owners(const chaos_fault& f) {
  return f.kind == chaos_kind::owner_kill;
}

/// The faults, deaths and restarts of one kind of process.
template <class Which>
json as_json(const std::vector<chaos_fault>& faults, Which which, std::uint64_t deaths,
             std::uint64_t restarts) {
  return {{"faults", std::ranges::count_if(faults, which)},
          {"deaths", deaths},
          {"restarts", restarts},
          {"detection_seconds", times_of(faults, which, &chaos_fault::detected_seconds)},
          {"recovery_seconds", times_of(faults, which, &chaos_fault::recovered_seconds)},
          {"replay_seconds", times_of(faults, which, &chaos_fault::replayed_seconds)}};
}

std::string count_of(const json& number, std::string_view noun) {
  return counted(number.get<std::uint64_t>(), noun);
}
std::string count_of(const json& number, std::string_view one, std::string_view many) {
  return counted(number.get<std::uint64_t>(), one, many);
}

std::string in_words(const json& q) {
  if (q.at("n") == 0) return "-";
  const auto time = [&](const char* which) {
    return duration_for_people(nanoseconds(static_cast<std::int64_t>(q.at(which).get<double>() * 1e9)));
  };
  return fmt::format("p50 {}  p99 {}  max {}", time("p50"), time("p99"), time("max"));
}

}  // namespace

void add(chaos_sums& sums, const stream_check& check, const playing& undisturbed, const playing& round) {
  const stream_faults found = check.check(round.delivered.batches, promises_of(round));
  sums.stream.lost += found.lost;
  sums.stream.duplicated += found.duplicated;
  sums.stream.out_of_order += found.out_of_order;
  sums.stream.stale += found.stale;
  ++sums.rounds;
  sums.restarts += round.report.restarts;
  sums.deaths += round.report.deaths.size();
  sums.owner_restarts += round.report.owner_restarts;
  sums.owner_deaths += round.report.owner_deaths.size();
  sums.replayed_batches += stream_check::replays_of(round.delivered.batches);
  sums.stale_dropped += round.report.stale_dropped;
  for (const std::uint64_t sample : round.quarantined)
    sums.wrongly_quarantined += undisturbed.quarantined.contains(sample) ? 0 : 1;
  sums.digests_equal = sums.digests_equal && round.digests == undisturbed.digests;
  sums.seconds += round.report.seconds;
  sums.samples += round.report.samples;
  if (round.report.error && !sums.error) sums.error = round.report.error;
}

chaos_result result_of(const fault_injector_settings& asked, const playing& undisturbed,
                       const stream_check& check, const chaos_sums& sums,
                       const std::vector<chaos_fault>& faults) {
  chaos_result v;
  v.good = !sums.error && sums.rounds > 0 && sums.stream.none() && check.of_undisturbed().none() &&
           sums.wrongly_quarantined == 0 && sums.digests_equal;
  json by_kind = json::object();
  for (const chaos_kind kind : asked.kinds) {
    const auto of_kind = [kind](const chaos_fault& f) { return f.kind == kind; };
    by_kind[name_of(kind)] = {
        {"faults", std::ranges::count_if(faults, of_kind)},
        {"detection_seconds", times_of(faults, of_kind, &chaos_fault::detected_seconds)},
        {"recovery_seconds", times_of(faults, of_kind, &chaos_fault::recovered_seconds)}};
  }
  const auto any = [](const chaos_fault&) { return true; };
  const auto workers = [](const chaos_fault& f) { return !is_owners(f); };
  v.as_json = {{"schema", "penstock.chaos/1"},
               {"ok", v.good},
               {"seed", asked.seed},
               {"placement", undisturbed.report.placement},
               {"rate", asked.rate},
               {"rounds", sums.rounds},
               {"faults", faults.size()},
               {"kinds", std::move(by_kind)},
               {"deaths", sums.deaths + sums.owner_deaths},
               {"restarts", sums.restarts + sums.owner_restarts},
               {"detection_seconds", times_of(faults, any, &chaos_fault::detected_seconds)},
               {"recovery_seconds", times_of(faults, any, &chaos_fault::recovered_seconds)},
               {"replay_seconds", times_of(faults, any, &chaos_fault::replayed_seconds)},
               {"workers", as_json(faults, workers, sums.deaths, sums.restarts)},
               {"owner", as_json(faults, is_owners, sums.owner_deaths, sums.owner_restarts)},
               {"replayed_batches", sums.replayed_batches},
               {"lost", sums.stream.lost},
               {"duplicated", sums.stream.duplicated},
               {"out_of_order", sums.stream.out_of_order},
               {"stale_accepted", sums.stream.stale},
               {"stale_dropped", sums.stale_dropped},
               {"wrongly_quarantined", sums.wrongly_quarantined},
               {"digests_equal", sums.digests_equal},
               {"digests", undisturbed.digests},
               {"undisturbed",
                {{"batches", undisturbed.delivered.batches.size()},
                 {"samples", undisturbed.report.samples},
                 {"seconds", undisturbed.report.seconds},
                 {"samples_per_second", rate_of(undisturbed.report.samples, undisturbed.report.seconds)}}},
               {"disturbed",
                {{"samples", sums.samples},
                 {"seconds", sums.seconds},
                 {"samples_per_second", rate_of(sums.samples, sums.seconds)}}}};
  if (sums.error) v.as_json["error"] = sums.error->message;
  return v;
}

void tell(const chaos_result& result) {
  const json& v = result.as_json;
  print(fmt::format("{:<12}{:>7}  {:<44}  {}", "fault", "times", "noticed after", "replaced after"));
  for (const auto& [kind, facts] : v.at("kinds").items()) {
    print(fmt::format("{:<12}{:>7}  {:<44}  {}", kind, facts.at("faults").dump(),
                      in_words(facts.at("detection_seconds")), in_words(facts.at("recovery_seconds"))));
  }
  print(fmt::format("{} in {} of the stream; seed {}", count_of(v.at("faults"), "fault"),
                    count_of(v.at("rounds"), "run"), v.at("seed").dump()));
  for (const auto& [who, name] : {std::pair{"workers", "workers"}, std::pair{"owner", "GPU owner"}}) {
    const json& facts = v.at(who);
    if (facts.at("faults") == 0 && facts.at("deaths") == 0) continue;
    print(fmt::format("{}: {}, {}; noticed after {}; replaced after {}", name,
                      count_of(facts.at("deaths"), "death"), count_of(facts.at("restarts"), "restart"),
                      in_words(facts.at("detection_seconds")), in_words(facts.at("recovery_seconds"))));
  }
  if (v.at("placement") == "process") {
    print(count_of(v.at("replayed_batches"), "batch was", "batches were") +
          " delivered again, as allowed: their owner died before it could acknowledge them");
  }
  print(fmt::format(
      "samples lost {}, delivered twice {}; batches out of order {}, stale {}; wrongly quarantined {}",
      v.at("lost").dump(), v.at("duplicated").dump(), v.at("out_of_order").dump(),
      v.at("stale_accepted").dump(), v.at("wrongly_quarantined").dump()));
  print(fmt::format("{} samples/s undisturbed, {} under faults",
                    v.at("undisturbed").at("samples_per_second").dump(),
                    v.at("disturbed").at("samples_per_second").dump()));
  if (v.contains("error")) say(styled(style::red, "error:") + " " + v.at("error").get<std::string>());
  const bool good = v.at("ok").get<bool>();
  print(good ? styled(style::green, "the same stream, bit for bit")
             : styled(style::red, v.at("digests_equal") == true ? "wrong" : "NOT the same stream"));
}

}  // namespace penstock::cli
