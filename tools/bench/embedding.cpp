// What a session costs the embedding program: first lease, destruction, starting workers from a large
// program, state. One line of JSON per measurement. Built on demand: cmake --build --preset release --target
// penstock-bench-embedding
//
//   penstock-bench-embedding first-lease [REPETITIONS]    4 workers of a dataset that only stamps the time
//   penstock-bench-embedding destruction [REPETITIONS]    8 workers, running
//   penstock-bench-embedding ballast MIB [REPETITIONS]    8 workers of a program with MIB of memory in use
//   penstock-bench-embedding state BATCHES                the size of Session::state() after so many batches
#include "runtime/process/child_end.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/process/spawn.hpp"

#include <penstock/session.hpp>
#include <penstock/worker.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

/// A sample contains the time at which it was loaded, so the batch shows when the first lease arrived.
class stamping final : public Dataset {
 public:
  explicit stamping(const string_map& options)
      : samples_(std::stoull(options.at("samples"))), wait_(std::stoll(options.at("wait_us"))) {}
  dataset_description describe() override {
    return {"stamping", samples_, {{.name = "data", .type = dtype::int64}}, "stamping"};
  }
  void load(const sample_request&, const sample_slot& slot) override {
    if (wait_ > 0us) std::this_thread::sleep_for(wait_);
    slot.as<std::int64_t>(0)[0] = now_ns();
  }

 private:
  std::uint64_t samples_;
  std::chrono::microseconds wait_;
};

config stamping_config(std::uint32_t workers, std::uint64_t samples = 100'000, int wait_us = 0) {
  config c;
  c.name = "bench-embedding";
  c.dataset.type = dataset_type::custom;
  c.dataset.options = {{"samples", std::to_string(samples)}, {"wait_us", std::to_string(wait_us)}};
  c.loader.command = {std::filesystem::read_symlink("/proc/self/exe"), "worker"};
  c.loader.workers = workers;
  c.sampler.batch_size = 8;
  c.gpu.device = "host";
  return c;
}

struct spread {
  double p50 = 0;
  double max = 0;
};
spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {values[values.size() / 2], values.back()};
}

double ms(std::int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

void first_lease(int repetitions) {
  std::vector<double> lease;
  std::vector<double> batch;
  for (int i = 0; i < repetitions; ++i) {
    const std::int64_t begin = now_ns();
    Session session(stamping_config(4));
    const auto first = session.next();
    batch.push_back(ms(now_ns() - begin));
    const auto bytes = first->read_back("data");
    std::vector<std::int64_t> stamps(first->rows());
    std::memcpy(stamps.data(), bytes.data(), bytes.size());
    lease.push_back(ms(*std::ranges::min_element(stamps) - begin));
  }
  const spread l = spread_of(lease);
  const spread b = spread_of(batch);
  std::printf(
      "{\"measured\":\"first-lease\",\"workers\":4,\"n\":%d,\"lease_ms_p50\":%.1f,\"lease_ms_max\":%.1f,"
      "\"batch_ms_p50\":%.1f,\"batch_ms_max\":%.1f}\n",
      repetitions, l.p50, l.max, b.p50, b.max);
}

void destruction(int repetitions) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    std::optional<Session> session(std::in_place, stamping_config(8, 100'000, 2000));
    for (int b = 0; b < 10; ++b) session->next();
    const std::int64_t begin = now_ns();
    session.reset();
    times.push_back(ms(now_ns() - begin));
  }
  const spread t = spread_of(times);
  std::printf("{\"measured\":\"destruction\",\"workers\":8,\"n\":%d,\"ms_p50\":%.1f,\"ms_max\":%.1f}\n",
              repetitions, t.p50, t.max);
}

/// The time of one spawn() alone, in milliseconds.
double spawn_ms() {
  const std::int64_t begin = now_ns();
  auto child = process::spawn({"/bin/true", {}, {}, {}});
  const double took = ms(now_ns() - begin);
  if (!child) std::abort();
  process::reap(*child, 1s);
  return took;
}

void ballast(std::size_t mib, int repetitions) {
  std::vector<char> weight(mib << 20U, 1);
  std::vector<double> spawn;
  for (int i = 0; i < 20 * repetitions; ++i) spawn.push_back(spawn_ms());
  std::vector<double> all_ready;
  std::uint64_t rss_anon = 0;
  for (int i = 0; i < repetitions; ++i) {
    std::atomic<int> ready{0};
    session_options o;
    o.on_event = [&](const event& e) {
      if (e.kind != event_kind::worker_ready) return;
      ++ready;
      ready.notify_all();
    };
    const std::int64_t begin = now_ns();
    Session session(stamping_config(8), o);
    static_cast<void>(session.next());
    for (int seen = ready; seen < 8; seen = ready) ready.wait(seen);
    all_ready.push_back(ms(now_ns() - begin));
    for (const worker_status& w : session.status().workers) {
      const auto facts = w.pid ? process::look_at(*w.pid) : std::nullopt;
      if (facts) rss_anon = std::max(rss_anon, facts->rss_anon_bytes);
    }
  }
  const spread s = spread_of(spawn);
  const spread r = spread_of(all_ready);
  std::printf(
      "{\"measured\":\"ballast\",\"rss_mib\":%zu,\"workers\":8,\"n\":%d,\"spawn_ms_p50\":%.3f,\"spawn_ms_"
      "max\":%.3f,"
      "\"all_ready_ms_p50\":%.1f,\"all_ready_ms_max\":%.1f,\"worker_rss_anon_kib_max\":%llu,\"check\":%d}\n",
      mib, repetitions, s.p50, s.max, r.p50, r.max, static_cast<unsigned long long>(rss_anon >> 10U),
      weight.back());
}

void state(int batches) {
  session_options o;
  o.digests = true;
  Session session(stamping_config(2, 8U * static_cast<std::uint64_t>(batches) + 80), o);
  for (int i = 0; i < batches; ++i) session.next();
  const std::size_t bytes = session.state().size();
  std::printf("{\"measured\":\"state\",\"batches\":%d,\"bytes\":%zu,\"bound\":%d}\n", batches, bytes,
              1024 + 8 * batches);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int place, int otherwise) {
    return argc > place ? std::atoi(argv[place]) : otherwise;
  };
  if (what == "worker") {
    return worker_main([](const config& c) { return std::make_unique<stamping>(c.dataset.options); });
  }
  if (what == "first-lease") {
    first_lease(number(2, 20));
  } else if (what == "destruction") {
    destruction(number(2, 20));
  } else if (what == "ballast") {
    ballast(static_cast<std::size_t>(number(2, 40)), number(3, 10));
  } else if (what == "state") {
    state(number(2, 1000));
  } else {
    std::fputs("penstock-bench-embedding first-lease|destruction|ballast|state [NUMBER]...\n", stderr);
    return 2;
  }
  return 0;
}
