#include "tools/penstock/watch/top_rates.hpp"

#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr double reported_seconds = 10;  // the period that the rate in a status covers

double seconds_between(const json& before, const json& now) {
  return (number_in(now, "now_ns") - number_in(before, "now_ns")) * 1e-9;
}

double jobs_ended(const json& status) {
  const json jobs = status.value("jobs", json());
  return jobs.is_object() ? number_in(jobs, "ok") + number_in(jobs, "failed") + jobs.value("cancelled", 0.0) : 0.0;
}

}  // namespace

double number_in(const json& from, const char* key) {
  const auto it = from.find(key);
  return it != from.end() && it->is_number() ? it->get<double>() : 0.0;
}

bool spans_time(const json& before, const json& now) {
  return seconds_between(before, now) > 0;
}

top_rates rates_between(const json& before, const json& now) {
  top_rates r;
  r.known = true;
  r.seconds = seconds_between(before, now);
  const json& a = before.at("status");
  const json& b = now.at("status");
  const auto per_second = [&](const char* key) { return std::max(0.0, number_in(b, key) - number_in(a, key)) / r.seconds; };
  r.samples = per_second("samples_delivered");
  r.batches = per_second("batches_delivered");
  r.bytes = per_second("bytes_uploaded");
  r.jobs = std::max(0.0, jobs_ended(b) - jobs_ended(a)) / r.seconds;
  return r;
}

top_rates rates_reported(const json& status) {
  top_rates r;
  r.known = status.value("rate", json()).is_number();
  r.seconds = std::min(reported_seconds, number_in(status, "uptime_seconds"));
  const double rate = number_in(status, "rate");
  const bool of_batches = kind_of(status) == work_kind::batches;
  const double measure = number_in(status, of_batches ? "batches_delivered" : "samples_delivered");
  const auto in_proportion = [&](const char* key) { return measure > 0 ? rate * number_in(status, key) / measure : 0; };
  r.jobs = rate;
  r.samples = in_proportion("samples_delivered");
  r.batches = in_proportion("batches_delivered");
  r.bytes = in_proportion("bytes_uploaded");
  return r;
}

std::string text_of_rate(const top_rates& of, double rate) {
  return of.known ? rate_text(rate) : "-";
}

std::string worker_rate(const json& before, const json& now, const json& worker) {
  if (spans_time(before, now)) {
    for (const json& earlier : before.at("status").at("workers")) {
      if (earlier.at("id") == worker.at("id") && earlier.at("incarnation") == worker.at("incarnation"))
        return rate_text(std::max(0.0, number_in(worker, "samples") - number_in(earlier, "samples")) / seconds_between(before, now));
    }
  }
  const json rate = worker.value("rate", json());
  return rate.is_number() ? rate_text(rate.get<double>()) : "-";
}

}  // namespace penstock::cli
