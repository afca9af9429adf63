// What `penstock why` says about planted bottlenecks. The numbers were measured: `penstock run` with a synthetic or raw dataset on two
// cores, some next to other programs; medians of the batches' stages, and the workers' shares as `why` gave them.
#include "runtime/telemetry/limit_advice.hpp"
#include "tests/runtime/telemetry/made_up_pipeline.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace penstock::telemetry {
namespace {

using namespace std::chrono_literals;
using testing::made_up_load;
using testing::made_up_pipeline;
using testing::pipeline_plan;

struct measured {
  const char* what;
  std::uint32_t workers = 2;
  std::uint32_t cores = 2;
  std::uint32_t slots = 2;  // slots of each worker
  double until_s = 12;  // when the reading is taken
  double load_ms = 0;  // time to load a batch
  struct {
    double reading = 0;
    double cpu = 0;
    double core_wait = 0;
  } part{};  // shares of the load time; reads include waits for a core
  struct {
    std::uint64_t every = 0;  // one batch in `every` has a slow sample; 0: none
    double seconds = 0;
  } slow{};
  double slow_worker = 1;  // factor by which worker/0 is slower
  double copy_ms = 0.05;
  double convert_ms = 0.01;
  double use_ms = 0;
  double ready_after_s = 0;
  double death_s = 0;  // for how long the last batch's worker has been dead
  std::optional<limit> named = limit::decode;  // empty: it depends on what the other workers do in the meantime
  std::string says;
};

nanoseconds ms(double milliseconds) {
  return nanoseconds(static_cast<std::int64_t>(milliseconds * 1e6));
}

pipeline_plan plan_of(const measured& m) {
  pipeline_plan p;
  p.workers = m.workers;
  p.slots = m.slots;
  p.ready_after = ms(m.ready_after_s * 1e3);
  p.load = [m](std::uint32_t worker, std::uint64_t batch) {
    const double usual = m.load_ms * (worker == 0 ? m.slow_worker : 1);
    const bool is_slow = m.slow.every > 0 && batch % m.slow.every == m.slow.every - 1;
    made_up_load load{ms(usual), ms(usual * m.part.reading)};
    load.cpu = ms(usual * m.part.cpu);
    load.core_wait = ms(usual * m.part.core_wait);
    if (is_slow) {
      load.slow = ms(m.slow.seconds * 1e3);
      load.busy += load.slow;
      load.slowest = batch / m.slow.every % 2;
    }
    return load;
  };
  const auto always = [](double time) { return [time](std::uint64_t) { return ms(time); }; };
  p.copy = always(m.copy_ms);
  p.convert = always(m.convert_ms);
  p.consume = always(m.use_ms);
  return p;
}

limit_reading reading_of(const measured& m) {
  made_up_pipeline pipeline(plan_of(m));
  stream_limits limits;
  limit_reading last;
  std::optional<batch_passage> head;  // the batch of the worker that has died
  std::optional<steady_time> died;
  for (nanoseconds t = 0ms; t <= ms(m.until_s * 1e3); t += 200ms) {
    limit_facts f = pipeline.facts_at(t);
    if (m.death_s > 0 && t > ms((m.until_s - m.death_s) * 1e3)) {
      const auto in_flight = std::ranges::find(f.passages, 0U, &batch_passage::number);
      if (!head && in_flight != f.passages.end()) head = *in_flight;
      f.passages.clear();
      if (head) {
        for (std::size_t stage = 1; stage < batch_stages; ++stage) head->at[stage] = 0;
        f.passages.push_back(*head);
        f.workers[head->worker].ready = false;
      }
      if (!died) died = made_up_pipeline::start() + t;
      f.waits_since = died;
    }
    last = limits.look(made_up_pipeline::start() + t, f);
  }
  return last;
}

const std::vector<measured>& table() {
  static const std::vector<measured> rows{
      {.what = "storage: reads of 2 ms, 1 worker", .workers = 1, .load_ms = 39.9, .part = {0.94, 0.03, 0.17}, .named = limit::storage, .says = "Storage"},
      {.what = "storage: reads of 5 ms", .load_ms = 88.6, .part = {1, 0.01, 0.08}, .named = limit::storage, .says = "Storage"},
      {.what = "storage: reads of 20 ms, 4 workers", .workers = 4, .load_ms = 330, .part = {1, 0, 0.03}, .named = limit::storage, .says = "Storage"},
      {.what = "storage: 3 ms of waiting a sample", .load_ms = 52.4, .part = {0.99, 0.01, 0.07}, .named = limit::storage, .says = "Storage"},
      {.what = "storage: reads of 5 ms next to 6 busy programs", .load_ms = 88.5, .part = {1, 0.01, 0.09}, .named = limit::storage, .says = "Storage"},
      {.what = "cores: reads of 5 ms at low priority next to 4 busy programs", .load_ms = 878, .part = {1, 0, 0.9}, .says = "Too few cores"},
      {.what = "cores: 2 ms of waiting at low priority next to 4 busy programs", .load_ms = 414, .part = {1, 0, 0.92}, .copy_ms = 20, .convert_ms = 22.8,
       .says = "Too few cores"},
      {.what = "cores: a sample of 2 s at low priority next to 4 busy programs", .load_ms = 1531, .part = {0, 0, 0.91}, .copy_ms = 15.8,
       .says = "Too few cores"},
      {.what = "cores: 1 ms of work next to 6 busy programs", .load_ms = 69.8, .part = {0, 0.22, 0.78}, .says = "stop other programs"},
      {.what = "cores: 2 ms of work, 1 worker, next to compilers", .workers = 1, .load_ms = 157, .part = {0, 0.2, 0.79}, .says = "stop other programs"},
      {.what = "cores: 3 ms of work next to compilers", .load_ms = 273, .part = {0, 0.17, 0.83}, .says = "stop other programs"},
      {.what = "cores: 5 ms of work, 4 workers", .workers = 4, .load_ms = 542, .part = {0, 0.14, 0.85}, .says = "run fewer than 4 workers on 2 cores"},
      {.what = "cores: 3 ms of work, 4 workers held to 1 core", .workers = 4, .cores = 1, .load_ms = 363, .part = {0, 0.13, 0.86},
       .says = "run fewer than 4 workers on 1 core"},
      {.what = "slow samples: 2 of 64 take 2 s, batches of 8", .load_ms = 4.9, .part = {0, 1, 0}, .slow = {4, 2}, .named = {}, .says = "Slow samples"},
      {.what = "slow samples: 2 of 64 take 2 s, batches of 16", .load_ms = 11.1, .part = {0, 1, 0}, .slow = {2, 2}, .named = {}, .says = "Slow samples"},
      {.what = "slow samples: 2 of 64 take 2 s, batches of 32, 4 workers", .workers = 4, .load_ms = 26, .part = {0, 1, 0}, .slow = {1, 2}, .named = {},
       .says = "Slow samples"},
      {.what = "slow samples: 1 of 128 takes 300 ms", .load_ms = 8.8, .part = {0, 0.75, 0.25}, .slow = {8, 0.3}, .named = {}, .says = "Slow samples"},
      {.what = "slow samples: 2 of 64 take 2 s, next to 6 busy programs", .load_ms = 16.5, .part = {0, 0.3, 0.7}, .slow = {4, 2}, .named = {},
       .says = "Slow samples"},
      {.what = "slow samples: 1 of 512 takes 2 s, batches of 8", .load_ms = 21, .part = {0, 0.19, 0.8}, .slow = {64, 2}, .named = {},
       .says = "Slow samples"},
      {.what = "slow samples: one batch in eight takes 200 ms, 4 workers", .workers = 4, .load_ms = 0.045, .part = {0, 0.5, 0.5}, .slow = {8, 0.2},
       .named = {}, .says = "Slow samples"},
      {.what = "slow worker: it runs a tenth of the time, 3 workers", .workers = 3, .load_ms = 44.5, .part = {0, 0.15, 0.1}, .slow_worker = 3.7,
       .says = "worker/0 needs"},
      {.what = "slow worker: the same, 2 workers", .load_ms = 79.4, .part = {0, 0.13, 0.1}, .slow_worker = 5.9, .says = "worker/0 needs"},
      {.what = "order: 1 worker with 1 slot, which is copied half of the time", .workers = 1, .slots = 1, .load_ms = 5.2, .part = {0, 0.67, 0.3},
       .copy_ms = 12.6, .named = limit::order, .says = "for lack of slots"},
      {.what = "upload: a link of 50 MiB/s", .load_ms = 0.25, .part = {0, 0.56, 0.44}, .copy_ms = 91.8, .convert_ms = 0.12, .named = limit::wire,
       .says = "copy to the device"},
      {.what = "upload: a link of 10 MiB/s", .load_ms = 0.08, .part = {0, 0.3, 0.7}, .copy_ms = 111.5, .convert_ms = 0.06, .named = limit::wire,
       .says = "copy to the device"},
      {.what = "upload: a link of 5 MiB/s, photos", .load_ms = 0.62, .part = {0.18, 0.32, 0.5}, .copy_ms = 159.7, .convert_ms = 0.12,
       .named = limit::wire, .says = "copy to the device"},
      {.what = "convert: 5 MiB/s, photos", .load_ms = 0.61, .part = {0.19, 0.45, 0.36}, .convert_ms = 40, .named = limit::convert,
       .says = "conversion on the device"},
      {.what = "convert: 2 MiB/s, photos", .load_ms = 0.61, .part = {0.19, 0.29, 0.52}, .convert_ms = 94.4, .named = limit::convert,
       .says = "conversion on the device"},
      {.what = "consumer: steps of 100 ms", .load_ms = 0.15, .part = {0, 0.26, 0.74}, .use_ms = 101.1, .named = limit::consumer, .says = "as it should"},
      {.what = "consumer: steps of 100 ms, and 3 ms of waiting a sample", .load_ms = 53.2, .part = {0.98, 0, 0.02}, .use_ms = 100.8,
       .named = limit::consumer, .says = "as it should"},
      {.what = "cores: steps of 100 ms, and 3 ms of work next to compilers", .load_ms = 271, .part = {0, 0.18, 0.82}, .use_ms = 100.1,
       .says = "because too few cores limit you"},
      {.what = "death: the only worker is killed every 3 s, and needs 3 s to start", .workers = 1, .load_ms = 0.06, .part = {0, 0.35, 0.65},
       .death_s = 8.9, .named = limit::start, .says = "The death of worker/0 limits you"},
      {.what = "start: workers that need 6 s", .until_s = 8.8, .load_ms = 0.06, .part = {0, 0.3, 0.7}, .ready_after_s = 6, .named = limit::start,
       .says = "Worker startup limits you"},
  };
  return rows;
}

}  // namespace

TEST_CASE("each planted bottleneck is named, and what its numbers rule out is never advised") {
  config settings;
  settings.dataset.type = dataset_type::synthetic;
  limit_context context;
  REQUIRE(table().size() >= 20);
  for (const measured& m : table()) {
    context.workers = m.workers;
    context.cores = m.cores;
    context.slots_per_worker = m.slots;
    const limit_reading r = reading_of(m);
    const limit_advice advice = advise(r, context, settings);
    INFO(m.what << ": " << advice.sentence);
    if (m.named) CHECK(advice.what == m.named);
    CHECK(advice.sentence.find(m.says) != std::string::npos);
    const auto advises = [&](const char* text) { return advice.sentence.find(text) != std::string::npos; };
    if (r.cpu < 0.5 && r.core_wait < 0.15) CHECK_FALSE(advises("more cores"));
    if (m.slow_worker == 1) CHECK_FALSE(advises("times as long"));
    if (m.slow.every == 0) CHECK_FALSE(advises("Slow samples"));
  }
}

}  // namespace penstock::telemetry
