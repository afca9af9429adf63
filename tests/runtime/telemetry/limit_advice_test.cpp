// What `penstock why` says, from made-up readings.
#include "runtime/base/sample_name.hpp"
#include "runtime/telemetry/limit_advice.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::telemetry {
namespace {

using namespace std::chrono_literals;

limit_reading mostly(limit what, double share = 0.62) {
  limit_reading r;
  r.seconds = 10;
  r.share[static_cast<std::size_t>(what)] = share;
  r.workers = 2;
  r.busy = 0.99;
  r.cpu = 0.98;
  return r;
}

limit_context on_cores(std::uint32_t cores) {
  limit_context context;
  context.cores = cores;
  context.workers = 2;
  return context;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the advice for decoding is more workers while cores are free, and less work otherwise") {
  config settings;
  const limit_advice more = advise(mostly(limit::decode), on_cores(16), settings);
  CHECK(more.what == limit::decode);
  CHECK(more.key == "loader.workers");
  CHECK(more.sentence ==
        "Decoding limits you: 2 workers used a core for 98 % of their time; the consumer waited 62 % of the time; more workers ([loader] "
        "workers) would help until all 16 cores are busy.");
  const limit_advice less = advise(mostly(limit::decode), on_cores(2), settings);
  CHECK(less.key == "image.size");
  CHECK(contains(less.sentence, "more workers would not help on the 2 cores of this machine"));
  limit_reading crowded = mostly(limit::decode);
  crowded.core_wait = 0.4;
  const limit_advice elsewhere = advise(crowded, on_cores(16), settings);
  CHECK(elsewhere.key == "image.size");
  CHECK(contains(elsewhere.sentence, "the workers had no core for 40 % of their time: stop other programs"));
  limit_context many = on_cores(16);
  many.workers = 32;  // more than there are cores
  CHECK(contains(advise(crowded, many, settings).sentence, "more workers would not help on the 16 cores of this machine"));
}

TEST_CASE("the advice for a start that waits for cores says so") {
  limit_reading r = mostly(limit::start);
  CHECK(advise(r, on_cores(2), {}).more.size() == 1);
  r.start_core_wait = 0.5;
  CHECK(contains(advise(r, on_cores(2), {}).more.back(), "Workers had no core for 50 % of the time"));
}

TEST_CASE("during a stall the advice names only what the stream waits for and the remedy") {
  limit_context context = on_cores(16);
  context.hedges = {7, 5};
  context.stalled = stall_report{stall_kind::gpu_owner, "waiting for the GPU owner, which has batch 7 of epoch 0 to copy", 13.2, std::nullopt};
  const limit_advice advice = advise(mostly(limit::wire), context, config());
  CHECK(advice.sentence == "No progress for 13 s: waiting for the GPU owner, which has batch 7 of epoch 0 to copy.");
  CHECK(advice.more == std::vector<std::string>{"`penstock describe gpu` shows what the owner is doing."});
  CHECK(advice.what == limit::wire);
  context.stalled = stall_report{stall_kind::operator_, "waiting for an operator, who drained all workers; `penstock restart workers` brings them back", 9, std::nullopt};
  CHECK(advise(mostly(limit::start), context, config()).more.empty());  // there is no pause that could be ended
  context.stalled = stall_report{stall_kind::gpu_owner, "waiting", 13.2, std::nullopt};
  context.stalled->suspended = true;
  context.stalled_pid = 17;
  CHECK(advise(mostly(limit::wire), context, config()).more.front().starts_with("`kill -CONT 17` resumes it. It is replaced after 10 s"));
  context.stalled = stall_report{stall_kind::sample, "waiting for worker/3, which has been loading sample 5", 56, 3};
  REQUIRE(advise(mostly(limit::order), context, config()).more.size() == 1);
  config settings;
  settings.loader.hang.item_timeout = std::chrono::seconds(90);
  CHECK(advise(mostly(limit::order), context, settings).more.front() ==
        "`penstock describe worker/3` shows what it is doing. It is killed if one sample takes longer than 1 m 30 s ([loader.hang] item_timeout), "
        "or after 10 s without a heartbeat, for example if its process is suspended. `penstock restart worker/3 --now` kills it at once.");
}

TEST_CASE("a slow worker, a stalled sample and tiny batches are named with specific advice") {
  config settings;
  limit_reading r = mostly(limit::decode);
  r.slow = {3, 4.2, 0};
  CHECK(contains(advise(r, on_cores(16), settings).sentence, "worker/3 needs 4.2 times as long"));
  CHECK(contains(advise(r, on_cores(16), settings).sentence, "`penstock restart worker/3`"));
  r.slow->core_wait = 0.7;
  CHECK(contains(advise(r, on_cores(16), settings).sentence,
                 "as its peers, because it had no core for 70 % of its time"));
  CHECK(advise(r, on_cores(16), settings).key == "image.size");
  r = mostly(limit::order);
  CHECK(advise(r, on_cores(16), settings).key == "loader.slots_per_worker");
  r.stall = {1, 2.5};
  CHECK(contains(advise(r, on_cores(16), settings).sentence, "a sample of worker/1 stalled its batch for 2.5 s"));
  r.stall.reset();
  r.samples_a_batch = 1;
  r.batches_per_second = 20'000;
  CHECK(advise(r, on_cores(16), settings).key == "sampler.batch_size");
}

TEST_CASE("batches that cost more to pass on than to load should be larger, whatever the consumer waits for") {
  // Measured with 16 and 64 samples of 1 KiB on two cores.
  for (const limit what : {limit::order, limit::wire, limit::convert}) {
    limit_reading r = mostly(what, 0.54);
    r.busy = 0.08;
    r.samples_a_batch = 16;
    r.batches_per_second = 5657;
    const limit_advice advice = advise(r, on_cores(2), {});
    CHECK(advice.what == what);
    CHECK(advice.key == "sampler.batch_size");
    CHECK(contains(advice.sentence, "5657 batches a second of 16 samples each cost more to pass on than to load"));
    CHECK(contains(advice.sentence, "the consumer waited 54 % of the time; use larger batches ([sampler] batch_size, now "));
    r.batches_per_second = 500;  // the consumer waits a millisecond for each batch
    CHECK(advise(r, on_cores(2), {}).key != "sampler.batch_size");
  }
  limit_reading r = mostly(limit::consumer, 0.95);
  r.batches_per_second = 5657;
  CHECK(contains(advise(r, on_cores(2), {}).more.front(), "Passing on 5657 batches a second is expensive: larger batches ([sampler] batch_size, now "));
  r.batches_per_second = 500;
  CHECK(advise(r, on_cores(2), {}).more.empty());
}

TEST_CASE("if the consumer's own work took more time than any cause of its waits, the sentence says what part of the time it is about") {
  for (const limit what : {limit::storage, limit::decode, limit::order, limit::wire, limit::convert, limit::start}) {
    limit_reading r = mostly(what, 0.28);
    r.share[static_cast<std::size_t>(limit::consumer)] = 0.29;
    const limit_advice advice = advise(r, on_cores(2), {});
    INFO(advice.sentence);
    CHECK(advice.what == what);
    CHECK(advice.sentence.starts_with("The consumer waited 28 % of the time, because "));
    CHECK_FALSE(contains(advice.sentence, "; the consumer waited"));  // the sentence's beginning already says that
    r.share[static_cast<std::size_t>(limit::consumer)] = 0.27;
    CHECK_FALSE(contains(advise(r, on_cores(2), {}).sentence, "because"));
  }
  limit_reading r = mostly(limit::order, 0.21);
  r.share[static_cast<std::size_t>(limit::consumer)] = 0.45;
  r.share[static_cast<std::size_t>(limit::wire)] = 0.15;
  r.share[static_cast<std::size_t>(limit::convert)] = 0.14;
  CHECK(contains(advise(r, on_cores(2), {}).sentence, "The consumer waited 50 % of the time, because order limits you: the workers idled"));
}

TEST_CASE("slow samples are named with the remedy, and neither a worker nor the cores are blamed for them") {
  for (const limit what : {limit::storage, limit::decode, limit::order}) {
    limit_reading r = mostly(what);
    r.busy = 0.9;
    r.cpu = 0;
    r.slow = {1, 3.3, 0};
    r.stall = {1, 14.1, 17};
    r.slow_share = 0.6;
    r.slow_samples = {{1, 2.04, 17}, {0, 1.96, 40}};
    r.loads = {{0, 0.0005, 0}, {1, 0.0006, 0}};
    limit_context context = on_cores(2);
    context.slowest = {{{17, "cats/tom.jpg", 2040ms}, 1, 3, {}}};
    const limit_advice advice = advise(r, context, {});
    CHECK(advice.what == what);
    CHECK(advice.key == "scheduler.order");
    CHECK(advice.sentence == "Slow samples limit you: sample 17 (cats/tom.jpg) of worker/1 took 2.0 s, sample 40 of worker/0 took 2.0 s; a sample "
                             "usually takes 0.6 ms; the consumer waited 62 % of the time; repair or remove these samples.");
    r.slow_samples.push_back({0, 0.9, {}});  // in progress
    context.loading[0] = "cats/tom.jpg";
    CHECK(advise(r, context, {}).sentence == advice.sentence);  // sample 17 again
    context.loading[0] = "cats/liz.jpg";
    CHECK(contains(advise(r, context, {}).sentence, ", sample 'cats/liz.jpg' of worker/0 has taken 0.9 s;"));
    REQUIRE(advice.more.size() == 3);
    CHECK(contains(advice.more[0], "order = \"relaxed\""));
    CHECK(contains(advice.more[1], "[loader] hedge = true"));
    CHECK(contains(advice.more[2], "item_timeout"));
  }
}

TEST_CASE("a slow sample that stalls its batch is named as slow at once, while the shares still include earlier waits") {
  limit_reading r = mostly(limit::order, 0.12);
  r.share[static_cast<std::size_t>(limit::decode)] = 0.11;
  r.share[static_cast<std::size_t>(limit::storage)] = 0.1;
  r.stall = {1, 0.8, {}, true};
  r.slow_share = 0.11;
  r.slow_samples = {{1, 0.8, {}}};
  CHECK(contains(advise(r, on_cores(2), {}).sentence, "Slow samples limit you"));
  r.slow_share = 0.01;  // hardly any sample is slow: the batch is late as a whole
  CHECK(contains(advise(r, on_cores(2), {}).sentence, "Order limits you"));
}

TEST_CASE("a sample that stalls its batch is named, while its worker loads it and afterwards") {
  limit_reading r = mostly(limit::order);
  r.stall = {1, 14.1, {}};
  limit_context context = on_cores(16);
  CHECK(contains(advise(r, context, {}).sentence, "Order limits you: a sample of worker/1 stalled its batch for 14.1 s"));
  context.loading[1] = "cats/tom.jpg";
  CHECK(contains(advise(r, context, {}).sentence, "Order limits you: a sample of worker/1 stalled its batch for 14.1 s"));
  r.stall->is_loading = true;
  CHECK(contains(advise(r, context, {}).sentence, "Order limits you: sample 'cats/tom.jpg' of worker/1 stalled its batch for 14.1 s"));
  r.stall->sample = 17;
  CHECK(contains(advise(r, context, {}).sentence, "Order limits you: sample 17 of worker/1 stalled its batch for 14.1 s"));
}

TEST_CASE("workers that wait for a core are not mistaken for slow decoding or slow storage") {
  limit_reading r = mostly(limit::decode);
  r.cpu = 0.04;
  r.core_wait = 0.51;
  r.no_core = 0.5;
  limit_context context = on_cores(2);
  const limit_advice others = advise(r, context, {});
  CHECK(others.sentence == "Too few cores limit you: 2 workers had no core for 51 % of their time, and ran for 4 %; the consumer waited 62 % of the "
                           "time; stop other programs that use these 2 cores.");
  CHECK(others.key.empty());
  context.workers = 8;
  CHECK(contains(advise(r, context, {}).sentence, "run fewer than 8 workers on 2 cores"));
  CHECK(advise(r, context, {}).key == "loader.workers");
  for (const limit what : {limit::storage, limit::order, limit::wire, limit::convert}) {
    limit_reading waits = mostly(what);
    waits.core_wait = 0.3;
    CHECK(advise(waits, on_cores(2), {}).more.back() == "The workers also had no core for 30 % of their time.");
  }
}

TEST_CASE("workers that hardly use their cores never get the advice to use more of them") {
  limit_reading r = mostly(limit::decode);
  r.cpu = 0.01;
  for (const std::uint32_t cores : {1U, 2U, 16U}) {
    const limit_advice advice = advise(r, on_cores(cores), {});
    CHECK_FALSE(contains(advice.sentence, "more cores"));
    CHECK(contains(advice.sentence, "more workers ([loader] workers = 4) let these waits overlap"));
  }
}

TEST_CASE("the advice about a late batch depends on the order of the stream") {
  config settings;
  limit_reading slow = mostly(limit::decode);
  slow.slow = {3, 4.2, 0};
  limit_reading stalled = mostly(limit::order);
  stalled.stall = {1, 2.5};
  CHECK(contains(advise(slow, on_cores(16), settings).more.front(), "Batches arrive in order"));
  CHECK(contains(advise(stalled, on_cores(16), settings).more.front(), "order = \"relaxed\""));
  settings.scheduler.order = order_rule::relaxed;
  CHECK(contains(advise(slow, on_cores(16), settings).more.front(), "At most 8 batches pass"));
  CHECK(contains(advise(stalled, on_cores(16), settings).more.front(), "[loader] hedge"));
  settings.loader.hedge = true;
  CHECK(contains(advise(stalled, on_cores(16), settings).more.front(), "item_timeout"));
}

TEST_CASE("the advice includes the number of hedges") {
  limit_context context = on_cores(16);
  CHECK(advise(mostly(limit::wire), context, {}).more.size() == 1);
  context.hedges = {7, 5};
  CHECK(contains(advise(mostly(limit::wire), context, {}).more.back(), "also loaded 7 late batches ([loader] hedge), and was faster in 5"));
}

TEST_CASE("a consumer that waits little is the limit, even if most of its waits have one cause") {
  limit_reading r = mostly(limit::consumer, 0.88);
  r.share[static_cast<std::size_t>(limit::decode)] = 0.11;
  const limit_advice advice = advise(r, on_cores(2), {});
  CHECK(advice.what == limit::consumer);
  CHECK(advice.key.empty());
  CHECK(contains(advice.sentence, "waited 11 %"));
  r.share[static_cast<std::size_t>(limit::decode)] = 0.3;
  r.share[static_cast<std::size_t>(limit::consumer)] = 0.7;
  CHECK(advise(r, on_cores(2), {}).what == limit::decode);
}

TEST_CASE("a consumer that takes batches in bursts is named, not the slots that run empty in a burst") {
  limit_reading r = mostly(limit::consumer, 0.8);
  r.share[static_cast<std::size_t>(limit::order)] = 0.16;
  CHECK(advise(r, on_cores(2), {}).what == limit::order);
  r.spare = 0.6;
  const limit_advice advice = advise(r, on_cores(2), {});
  CHECK(advice.what == limit::consumer);
  CHECK(advice.key.empty());
  CHECK(contains(advice.sentence, "takes its batches in bursts. It worked on them 80 % of the time, and the workers were idle for 60 %"));
  CHECK(contains(advice.more.back(), "slots_per_worker"));
}

TEST_CASE("a suspended or replaced GPU owner is named, not the start of workers") {
  limit_reading r = mostly(limit::start, 0.9);
  r.owner_frozen = 0.5;
  r.owner_down = 0.3;
  CHECK(contains(advise(r, on_cores(2), {}).sentence, "its process was suspended (SIGSTOP, a debugger or a freezer) for 50 % of the time"));
  r.owner_down = 0.6;
  CHECK(contains(advise(r, on_cores(2), {}).sentence, "for 60 % of the time its process was being replaced"));
  r.owner_frozen = r.owner_down = 0.1;
  CHECK(advise(r, on_cores(2), {}).key == "loader.start");
}

TEST_CASE("a worker whose death delayed the stream is named, not the start of its replacement") {
  limit_reading r = mostly(limit::start, 0.8);
  r.lost = {3, 0.7};
  limit_context context = on_cores(2);
  context.restarts = 1;
  context.lost_worker_end = "was killed: no heartbeat for 10 s (suspended)";
  const limit_advice advice = advise(r, context, {});
  CHECK(advice.sentence == "The death of worker/3 limits you: it was killed: no heartbeat for 10 s (suspended); for 70 % of the time "
                           "the stream waited for its batches.");
  CHECK(advice.key.empty());
  CHECK(contains(advice.more.front(), "`penstock describe worker/3`"));
  r = mostly(limit::order, 0.6);  // the batch was stalled until its worker was killed
  r.share[static_cast<std::size_t>(limit::start)] = 0.1;
  r.lost = {3, 0.7};
  CHECK(contains(advise(r, context, {}).sentence, "The death of worker/3 limits you"));
  CHECK(advise(r, context, {}).what == limit::order);
  r = mostly(limit::start, 0.8);
  r.lost = {3, 0.1};
  CHECK(contains(advise(r, context, {}).sentence, "Worker startup limits you"));
}

TEST_CASE("the advice for a suspended process shows the command that continues it") {
  limit_context context = on_cores(2);
  context.stalled = stall_report{.kind = stall_kind::gpu_owner, .text = "waiting for the GPU owner", .seconds = 13.2, .worker = {}, .suspended = true};
  context.stalled_pid = 17;
  CHECK(advise(mostly(limit::wire), context, {}).more.front().starts_with("`kill -CONT 17` resumes it. It is replaced after 10 s"));
  context.stalled = stall_report{.kind = stall_kind::worker, .text = "waiting for worker/3", .seconds = 6, .worker = 3, .suspended = true};
  context.stalled_pid = 19;
  CHECK(advise(mostly(limit::order), context, {}).more.front().starts_with("`kill -CONT 19` resumes it. It is killed and replaced"));
  limit_reading r = mostly(limit::start, 0.9);
  r.owner_frozen = 0.9;
  context = on_cores(2);
  context.owner_pid = 17;
  CHECK(contains(advise(r, context, {}).more.front(), "`kill -CONT 17` resumes it"));
}

namespace {

/// Most workers run on hosts.
limit_reading on_hosts(limit what, double share = 0.62) {
  limit_reading r = mostly(what, share);
  r.workers = 6;
  r.remote = 4;
  return r;
}

limit_context with_hosts() {
  limit_context context = on_cores(2);
  context.hosts = 2;
  return context;
}

}  // namespace

TEST_CASE("the resource that loader hosts lack is named, with the change that helps") {
  config settings;
  const limit_advice few = advise(on_hosts(limit::decode), with_hosts(), settings);
  CHECK(few.key.empty());
  CHECK(few.sentence ==
        "Decoding limits you: 6 workers, 4 of them on 2 hosts, used a core for 98 % of their time; the consumer waited 62 % of the time; start more hosts, or "
        "more workers on them (`penstock host --workers`).");
  CHECK(contains(advise(on_hosts(limit::storage), with_hosts(), settings).sentence, "start more hosts"));
  limit_context resting = with_hosts();
  resting.remote_resting = 3;
  resting.cores = 8;
  const limit_advice spare = advise(on_hosts(limit::decode), resting, settings);
  CHECK(spare.key == "loader.workers");
  CHECK(spare.more.at(0) == "The hosts offer 3 more workers that `penstock scale host/NAME` has stopped.");
  limit_reading idle = on_hosts(limit::order);
  idle.busy = 0.4;
  const limit_advice slots = advise(idle, with_hosts(), settings);
  CHECK(slots.key == "loader.hosts.landing_slots");
  CHECK(contains(slots.sentence, "the workers idled 60 % of the time for lack of landing slots"));
  limit_reading slow = on_hosts(limit::wire);
  CHECK(advise(slow, with_hosts(), settings).key == "image.size");
  slow.link = 0.5;
  const limit_advice link = advise(slow, with_hosts(), settings);
  CHECK(link.key == "loader.hosts.compress");
  CHECK(link.sentence.starts_with("The link to the loader hosts limits you"));
  settings.loader.hosts.compress = compress_rule::zstd;
  CHECK(advise(slow, with_hosts(), settings).key != "loader.hosts.compress");
}

TEST_CASE("for a stream that waits for nothing, the advice says whether it needs its hosts") {
  limit_reading r = on_hosts(limit::consumer, 0.97);
  r.working = 1.4;
  const limit_advice advice = advise(r, with_hosts(), {});
  CHECK(advice.hosts == "The hosts are not needed: the stream does not wait, and on average 1.4 of 6 workers work, and the 2 workers of this "
                        "machine can do that.");
  CHECK(advice.more.back() == advice.hosts);
  CHECK(limits_of(r, advice).hosts == advice.hosts);
  CHECK(why_as_json(r, advice).at("hosts") == advice.hosts);
  r.working = 3;
  CHECK(contains(advise(r, with_hosts(), {}).hosts, "2 of 4 on hosts would do"));
  r.working = 5.2;
  CHECK(advise(r, with_hosts(), {}).hosts.empty());
  r.working = 0.5;
  r.workers = r.remote = 4;  // no worker on this machine
  CHECK(contains(advise(r, with_hosts(), {}).hosts, "1 of 4 on hosts would do"));
  CHECK(advise(on_hosts(limit::decode), with_hosts(), {}).hosts.empty());
  limit_reading local = mostly(limit::consumer, 0.97);
  CHECK(advise(local, on_cores(2), {}).hosts.empty());
}

TEST_CASE("every limit has a sentence, in a session and in a pool, which names only existing keys") {
  config settings;
  const std::vector<std::string> keys{"", "loader.workers", "image.size", "dataset.work", "dataset.dtype",
                                      "loader.slots_per_worker", "sampler.batch_size", "gpu.dtype", "gpu.device",
                                      "gpu.buffers", "jobs.memory", "loader.start",
                                      "loader.limits.recycle_after_samples"};
  for (std::size_t i = 0; i < limit_count; ++i) {
    for (const bool of_jobs : {false, true}) {
      for (const double held : {0.0, 0.6}) {
        limit_context context = on_cores(16);
        context.work = of_jobs ? work_kind::jobs : work_kind::samples;
        context.pinned = held == 0;
        limit_reading r = mostly(static_cast<limit>(i));
        r.held = held;
        const limit_advice advice = advise(r, context, settings);
        CHECK(advice.what == static_cast<limit>(i));
        CHECK(advice.sentence.ends_with('.'));
        CHECK(advice.sentence.find(". ") == std::string::npos);
        CHECK(std::ranges::find(keys, advice.key) != keys.end());
      }
    }
  }
}

TEST_CASE("a data loader that waits while its workers idle learns of prefetch_factor, and of no more workers") {
  limit_context context = on_cores(16);
  context.work = work_kind::batches;
  limit_reading idle = mostly(limit::decode, 0.28);
  idle.busy = 0.5;
  idle.cpu = 0.01;  // the samples sleep
  CHECK(advise(idle, context, {}).sentence ==
        "Your loop waited 28 % of the time, because the dataset's own work limits you, although the workers idled 50 % of the time: more "
        "batches in advance (prefetch_factor) keep them busy.");
  CHECK_FALSE(contains(advise(idle, context, {}).sentence, "num_workers"));
}

TEST_CASE("a data loader whose workers idle because one of them loads a sample for long learns its name, and nothing of prefetch_factor") {
  limit_context context = on_cores(16);
  context.work = work_kind::batches;
  context.longest = {1, "sample 100", 3.2};
  for (const limit what : {limit::decode, limit::order}) {
    limit_reading idle = mostly(what, 0.28);
    idle.busy = 0.5;
    const limit_advice advice = advise(idle, context, {});
    CHECK(contains(advice.sentence, "a slow sample limits you: sample 100 of worker/1 has taken 3.2 s so far."));
    CHECK_FALSE(contains(advice.sentence, "prefetch_factor"));
  }
}

TEST_CASE("without any worker, the advice says who keeps them away") {
  limit_context context = on_cores(16);
  limit_reading r = mostly(limit::start);
  context.waits_for_hosts = hosts_wait{2.1, 60};
  CHECK(advise(r, context, {}).sentence == "There is no worker: waiting for a loader host for 2 s, at most 1 m 0 s ([loader.hosts] wait).");
  CHECK(advise(r, context, {}).key.empty());
  context.waits_for_hosts.reset();
  context.work = work_kind::batches;
  context.drained = true;
  r = mostly(limit::decode);
  r.busy = 0;
  CHECK(contains(advise(r, context, {}).sentence, "an operator drained all of them; `penstock restart workers` brings them back"));
  CHECK_FALSE(contains(advise(r, context, {}).sentence, "prefetch_factor"));
}

TEST_CASE("advice about a data loader's stalled sample does not recommend the time limit that it has") {
  limit_context context = on_cores(16);
  context.work = work_kind::batches;
  context.stalled = stall_report{stall_kind::sample, "waiting for worker/1, which has been loading sample 300 for 6 s", 6, 1};
  CHECK(contains(advise(mostly(limit::decode), context, {}).more.at(0), "DataLoader(timeout=60)"));
  context.stalled_limit = 40s;
  const limit_advice advice = advise(mostly(limit::decode), context, {});
  CHECK(contains(advice.more.at(0), "It is killed if one sample takes longer than 40 s"));
  CHECK_FALSE(contains(advice.more.at(0), "timeout=60"));
}

TEST_CASE("advice about a data loader's suspended worker resumes it instead of killing it") {
  limit_context context = on_cores(16);
  context.work = work_kind::batches;
  context.stalled = stall_report{stall_kind::worker, "waiting for worker/0, whose process (pid 17) is suspended", 6, 0};
  context.stalled->suspended = true;
  context.stalled_pid = 17;
  const limit_advice advice = advise(mostly(limit::decode), context, {});
  CHECK(advice.more.at(0).starts_with("`kill -CONT 17` resumes it."));
  CHECK_FALSE(contains(advice.more.at(0), "restart worker"));
}

TEST_CASE("a worker over its memory limit is named in the advice, whatever limits the stream") {
  limit_context context = on_cores(16);
  context.over_memory = {"worker/1 is over its limit."};
  CHECK(std::ranges::count(advise(mostly(limit::wire), context, {}).more, context.over_memory[0]) == 1);
  context.stalled = stall_report{stall_kind::sample, "waiting for worker/1", 6, 1};
  CHECK(std::ranges::count(advise(mostly(limit::wire), context, {}).more, context.over_memory[0]) == 1);
}

TEST_CASE("a data loader that waits for slow samples learns their names, even those without a number, and no config key") {
  limit_context context = on_cores(16);
  context.work = work_kind::batches;
  context.slowest = {{{37, "sample 37", 500ms}, 1, 1, {}}, {{not_numbered, "sample 4 of shard 1", 400ms}, 0, 1, {}}};
  limit_reading r = mostly(limit::order, 0.4);
  r.busy = 0.5;
  r.slow_share = 0.3;
  r.slow_samples = {{1, 0.5, 37, "sample 37"}, {0, 0.4, not_numbered, "sample 4 of shard 1"}};
  const limit_advice advice = advise(r, context, {});
  CHECK(advice.sentence == "Your loop waited 40 % of the time, because slow samples limit you: sample 37 of worker/1 took 0.5 s, sample 4 of "
                           "shard 1 of worker/0 took 0.4 s; repair or remove these samples.");
  REQUIRE_FALSE(advice.more.empty());
  CHECK(contains(advice.more[0], "prefetch_factor"));
  for (const std::string& line : advice.more) CHECK_FALSE(contains(line, "["));
  CHECK(advice.key.empty());
  const auto why = why_as_json(r, advice, context);
  CHECK(why.at("slowest_samples")[1].at("sample").is_null());
  CHECK(why.at("slow_samples")[1].at("sample").is_null());
}

TEST_CASE("the advice for a data loader names its own arguments, and no config key") {
  for (const std::uint32_t cores : {2U, 16U}) {
    for (std::size_t i = 0; i < limit_count; ++i) {
      const auto what = static_cast<limit>(i);
      if (what == limit::storage || what == limit::wire || what == limit::convert) continue;  // a pool has none of these keys
      limit_context context = on_cores(cores);
      context.work = work_kind::batches;
      const limit_advice advice = advise(mostly(what), context, {});
      CHECK(advice.what == what);
      CHECK(advice.sentence.ends_with('.'));
      CHECK_FALSE(contains(advice.sentence, "[loader]"));
      CHECK_FALSE(contains(advice.sentence, "device"));
      CHECK(advice.key.empty());
    }
  }
  limit_context context = on_cores(16);
  context.work = work_kind::batches;
  limit_reading waits = mostly(limit::decode);
  waits.cpu = 0.1;
  CHECK(contains(advise(waits, context, {}).sentence, "num_workers=4"));
  CHECK(contains(advise(mostly(limit::decode), context, {}).sentence, "num_workers=16"));
  CHECK(advise(mostly(limit::decode), context, {}).sentence.starts_with(
      "Your loop waited 62 % of the time, because the dataset's own work limits you: 2 workers used a core for 98 % of their time; more workers"));
  CHECK(advise(mostly(limit::order), context, {}).sentence.starts_with("Your loop waited 62 % of the time, because order limits you"));
  CHECK(advise(mostly(limit::consumer, 0.97), context, {}).sentence ==
        "Your training step limits you, as it should: it worked on its batches 97 % of the time and waited 0 %; loading faster would gain "
        "nothing.");
  context.stalled = stall_report{stall_kind::sample, "waiting for worker/1, which has been loading sample 1237 for 106 s, in job 78", 106, 1};
  const limit_advice stuck = advise(mostly(limit::storage), context, {});
  CHECK(contains(stuck.sentence, "sample 1237"));
  CHECK(contains(stuck.more.at(0), "`penstock restart worker/1 --now`"));
  CHECK(contains(stuck.more.at(0), "timeout="));
  context.stalled->hung_before = 1;  // the sentence has the remedy, and another restart would not help
  CHECK_FALSE(contains(advise(mostly(limit::storage), context, {}).more.at(0), "restart"));
}

TEST_CASE("jobs and custom datasets learn that their workers wait, without a guess at storage") {
  limit_reading waits = mostly(limit::decode);
  waits.cpu = 0.01;
  limit_context context = on_cores(2);
  config settings;
  settings.dataset.type = dataset_type::custom;
  const limit_advice custom = advise(waits, context, settings);
  CHECK(custom.sentence ==
        "The dataset's own work limits you: it kept 2 workers waiting for 98 % of their time, for a file, a lock or another process; the consumer "
        "waited 62 % of the time; more workers ([loader] workers = 4) let these waits overlap.");
  CHECK(custom.key == "loader.workers");
  context.work = work_kind::jobs;
  const limit_advice jobs = advise(waits, context, {});
  CHECK(jobs.sentence.starts_with("The jobs' own work limits you: it kept 2 workers waiting for 98 % of their time"));
  CHECK_FALSE(contains(jobs.sentence, "torage"));
  CHECK(contains(jobs.more.at(0), "unless the commands or processes that it waits for need them"));
  waits.cpu = 0.97;
  CHECK(contains(advise(waits, context, {}).sentence, "The jobs' own work limits you: 2 workers used a core for 97 % of their time"));
}

TEST_CASE(
    "a short run is assessed by the time after its first batch, and its beginning is reported separately") {
  limit_reading r = mostly(limit::start, 0.4);
  r.seconds = 5;
  r.share[static_cast<std::size_t>(limit::consumer)] = 0.55;
  r.share[static_cast<std::size_t>(limit::decode)] = 0.05;
  r.beginning = 0.4;
  r.share_of_beginning[static_cast<std::size_t>(limit::start)] = 0.4;
  const limit_advice advice = advise(r, on_cores(16), {});
  CHECK(advice.what == limit::consumer);
  CHECK(contains(advice.sentence, "it worked on its batches 92 % of the time and waited 8 %"));
  CHECK(waited_as_json(r) == 0.0833);
  CHECK(waited_as_json({}).is_null());
  CHECK(advice.more.back() ==
        "This describes the time after the first batch. The first batch took 2 s of 5 s in total. Of these 2 s, starting the workers and "
        "the device took 2 s; [loader] start = \"eager\" starts them before the first demand.");
  CHECK(as_json(limits_of(r, advice)).at("start") == 0.4);
  CHECK(why_as_json(r, advice).at("beginning") == 0.4);
  CHECK(why_as_json(r, advice).at("limits_after_beginning").at("consumer") == 0.9167);
  r.beginning = r.share_of_beginning[static_cast<std::size_t>(limit::start)] = r.share[static_cast<std::size_t>(limit::start)] = 0.9;
  CHECK(advise(r, on_cores(16), {}).what == limit::start);  // the start took most of the time
}

TEST_CASE("a startup of less than a tenth of the run is not mentioned") {
  limit_reading r = mostly(limit::start, 0.1);
  r.seconds = 20;
  r.share[static_cast<std::size_t>(limit::consumer)] = 0.9;
  r.beginning = r.share_of_beginning[static_cast<std::size_t>(limit::start)] = 0.1;
  CHECK(contains(advise(r, on_cores(16), {}).more.back(), "starting the workers and the device took 2 s; [loader] start = \"eager\""));
  r.share_of_beginning[static_cast<std::size_t>(limit::start)] = 0.09;
  CHECK(advise(r, on_cores(16), {}).more.back() == "This describes the time after the first batch. The first batch took 2 s of 20 s in total.");
}

TEST_CASE("status has the seven shares and the sentence, and `why` matches its schema") {
  const limit_reading r = mostly(limit::wire);
  const limit_advice advice = advise(r, on_cores(16), {});
  const auto limits = as_json(limits_of(r, advice));
  CHECK(limits.size() == limit_count + 1);
  CHECK(limits.at("wire") == 0.62);
  CHECK(limits.at("verdict") == advice.sentence);
  const auto why = why_as_json(r, advice);
  CHECK(why.at("schema") == "penstock.why/1");
  CHECK(why.at("limit") == "wire");
  CHECK(why.at("limits").size() == limit_count);
  limit_context context = on_cores(16);
  context.now = steady_time{} + 60s;
  context.slowest = {{{17, "cats/tom.jpg", 2040ms}, 1, 3, steady_time{} + 52s}};
  CHECK(why_as_json(r, advice, context).at("slowest_samples").dump() ==
        R"([{"sample":17,"name":"cats/tom.jpg","worker":1,"seconds":2.04,"times":3,"seconds_ago":8.0}])");
  context.slowest.push_back({{18, "cats/kim.jpg", 45ms}, 1, 1, steady_time{} + 52s});
  CHECK(slowest_as_json(r, context).size() == 2);  // nothing is known about other samples
  limit_reading loaded = r;
  loaded.loads = {{0, 0.01, 0}, {1, 0.012, 0}};
  CHECK(slowest_as_json(loaded, context).size() == 1);  // 45 ms is less than five times the usual time
  loaded.loads = {{0, 0.5, 0}, {1, 0.5, 0}};
  CHECK(slowest_as_json(loaded, context).empty());
  const auto nothing = why_as_json({}, advise({}, on_cores(1), {}));
  CHECK(nothing.at("limit").is_null());
  CHECK(nothing.at("key").is_null());
}

}  // namespace penstock::telemetry
