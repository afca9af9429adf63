#include "runtime/telemetry/limit_advice.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/dataset_type.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/units.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

namespace penstock::telemetry {
namespace {

using json = nlohmann::ordered_json;

// Cores are short if workers have no core for at least this share of their time.
constexpr double cores_are_short = 0.15;
constexpr double few_samples = 8;         // a batch with so few samples costs more to pass on than to load
constexpr double passing_on = 250e-6;     // passing on a batch takes at most this many seconds
// Share of the time; a stream that waits less than this does not need more workers.
constexpr double spare_from = 0.05;
// Share of a worker's time; a worker that idles so much lacks batches, and another worker would, too.
constexpr double idle_from = 0.3;
constexpr double fully_used = 0.9;        // the largest share of its time in which a worker can work

int percent(double share) {
  return static_cast<int>(std::lround(share * 100));
}

/// How many seconds a typical worker needs for a sample, not counting slow samples.
std::optional<double> usual_seconds(const limit_reading& r) {
  std::vector<double> usual;
  for (const limit_reading::worker_load& w : r.loads) usual.push_back(w.seconds_a_sample);
  std::ranges::sort(usual);
  return usual.empty() ? std::nullopt : std::optional(usual[usual.size() / 2]);
}

struct writer {
  const limit_reading& r;
  const limit_context& context;
  const config& settings;

  [[nodiscard]] std::string waited() const {
    return context.work != work_kind::samples || consumer_is_larger() ? "" : fmt::format("; the consumer waited {} % of the time", percent(r.waited()));
  }
  /// Whether the consumer's own work took more of the time than any single cause of its waits. The sentence
  /// then begins with the share of the time that the consumer waited.
  [[nodiscard]] bool consumer_is_larger() const { return context.work == work_kind::samples && std::ranges::max(r.share) == r.of(limit::consumer); }
  /// Whether there is no core for another worker.
  [[nodiscard]] bool cores_are_used() const {
    return context.workers >= context.cores || r.core_wait > cores_are_short;
  }
  [[nodiscard]] std::string work_less() const {
    if (context.work != work_kind::samples) return "";
    if (takes_images(type_of(settings))) return "image.size";
    return type_of(settings) == dataset_type::synthetic ? "dataset.work" : "";
  }
  [[nodiscard]] static bool takes_images(dataset_type type) {
    return type == dataset_type::image_folder || type == dataset_type::tar;
  }

  /// Whether most workers run on loader hosts.
  [[nodiscard]] bool mostly_remote() const { return r.remote > 0 && 2 * r.remote >= r.workers; }
  [[nodiscard]] std::string all_workers() const {
    if (r.remote == 0) return counted(r.workers, "worker");
    return fmt::format("{}, {} of them on {},", counted(r.workers, "worker"), r.remote, counted(context.hosts, "host"));
  }
  [[nodiscard]] std::vector<std::string> more_remote_workers() const {
    std::vector<std::string> lines;
    if (context.remote_resting > 0) {
      lines.push_back(fmt::format("The hosts offer {} that `penstock scale host/NAME` has stopped.",
                                  counted(context.remote_resting, "more worker")));
    }
    if (context.workers < context.cores) {
      lines.push_back(fmt::format("This machine has {} for local workers ([loader] workers, now {}).",
                                  counted(context.cores, "core"), context.workers));
    }
    return lines;
  }

  /// Advice for a stream that waits for its remote workers.
  limit_advice too_few_remote(limit what, const std::string& why) const {
    return {what, context.workers < context.cores ? "loader.workers" : "",
            fmt::format("{}{}; start more hosts, or more workers on them (`penstock host --workers`).", why, waited()), more_remote_workers()};
  }

  limit_advice link() const {
    const bool packs = settings.loader.hosts.compress != compress_rule::none;
    const std::string less = takes_images(type_of(settings)) ? "image.size" : "dataset.dtype";
    return {limit::wire,
            packs ? less : "loader.hosts.compress",
            fmt::format("The link to the loader hosts limits you: batches were on their way while the workers waited{}; {}.", waited(),
                        packs ? "send fewer bytes, or use a faster network"
                              : "compress the batches if their data compresses ([loader.hosts] compress, now \"none\"), or send fewer bytes"),
            {fmt::format("{} of {} are on {}; the stream has {:.0f} batches a second.", r.remote, counted(r.workers, "worker"),
                         counted(context.hosts, "host"), r.batches_per_second)}};
  }

  limit_advice storage() const {
    if (mostly_remote()) return too_few_remote(limit::storage, fmt::format("Storage limits you: {} waited for reads", all_workers()));
    return {limit::storage,
            "loader.workers",
            fmt::format("Storage limits you: {} waited for reads{}; start more workers ([loader] workers = "
                        "{}), so that more reads overlap, or put the data on faster storage.",
                        counted(r.workers, "worker"), waited(), 2 * std::max(context.workers, 1U)),
            {fmt::format(
                "A worker waits for storage without using a core, so you can run more workers than cores ({} "
                "here).",
                context.cores)}};
  }

  [[nodiscard]] std::string why_others_wait() const {
    return settings.scheduler.order == order_rule::strict
               ? "Batches arrive in order, so the others wait for the slow worker's batches."
               : fmt::format("At most {} pass a batch of the slow worker ([scheduler] window).",
                             counted(settings.scheduler.window, "batch", "batches"));
  }

  /// Whether workers run the user's own code, whose waits penstock cannot time: jobs, or a custom dataset.
  [[nodiscard]] bool runs_own_code() const { return context.work != work_kind::samples || type_of(settings) == dataset_type::custom; }

  [[nodiscard]] std::string name_of_sample(std::uint32_t worker, std::optional<std::uint64_t> sample) const {
    const auto now = context.loading.find(worker);
    if (!sample && now == context.loading.end()) return "a sample";
    const auto known = std::ranges::find_if(context.slowest, [&](const slow_sample& s) {
      return sample ? s.sample.index == *sample : s.sample.name == now->second;
    });
    if (known != context.slowest.end()) return sample_for_people(known->sample.index, known->sample.name);
    return sample ? sample_for_people(*sample, "") : sample_for_people(now->second);
  }

  /// Whether the stream waited mostly for a few slow samples, whatever their workers did. If stalls make up
  /// most of `order`, slow samples need to explain only `order`, so that a new stall is reported although
  /// earlier waits are still in the shares.
  [[nodiscard]] bool waits_for_slow_samples(limit what) const {
    const double of_stalls = what == limit::order && r.stall ? r.of(limit::order) : 1;
    return !r.slow_samples.empty() && 2 * r.slow_share > std::min(of_stalls, r.of(limit::storage) + r.of(limit::decode) + r.of(limit::order));
  }
  [[nodiscard]] bool may_relax_order() const { return settings.scheduler.order == order_rule::strict && settings.sampler.world_size == 1; }
  [[nodiscard]] bool may_hedge() const { return !settings.loader.hedge && settings.quarantine.max_attempts > 1; }
  [[nodiscard]] std::vector<std::string> ways_around_a_late_batch() const {
    std::vector<std::string> more;
    if (may_relax_order()) more.emplace_back("With [scheduler] order = \"relaxed\" later batches can pass a late one.");
    if (may_hedge()) more.emplace_back("With [loader] hedge = true a second worker also loads a late batch, in case only the read stalled.");
    return more;
  }

  limit_advice slow_samples(limit what) const {
    std::string names;
    std::set<std::string> named;
    for (const limit_reading::awaited_sample& s : r.slow_samples) {
      const std::string name = s.name.empty() ? name_of_sample(s.worker, s.sample) : s.name;
      // This sample is already named; the worker is loading it again.
      if (!named.insert(name).second) continue;
      names += fmt::format("{}{} of worker/{} {} {:.1f} s", names.empty() ? "" : ", ", name, s.worker, s.sample ? "took" : "has taken", s.seconds);
    }
    if (context.work == work_kind::batches) {
      return {what, "", fmt::format("Slow samples limit you: {}; repair or remove these samples.", names),
              {"More batches in advance (prefetch_factor) hide a slow sample, and with in_order=False later batches can pass its batch."}};
    }
    const auto usual = usual_seconds(r);
    const std::string as_usual = usual ? fmt::format("; a sample usually takes {:.3g} ms", *usual * 1000) : "";
    std::vector<std::string> more = ways_around_a_late_batch();
    more.push_back(fmt::format("A sample that takes longer than [loader.hang] item_timeout (now {}) in each of {} is quarantined.",
                               duration_for_people(settings.loader.hang.item_timeout), counted(settings.quarantine.max_attempts, "attempt")));
    return {what, may_relax_order() ? "scheduler.order" : may_hedge() ? "loader.hedge" : "loader.slots_per_worker",
            fmt::format("Slow samples limit you: {}{}{}; repair or remove these samples.", names, as_usual, waited()),
            std::move(more)};
  }

  limit_advice no_core() const {
    const bool too_many = context.workers > context.cores;
    const std::string key = too_many ? "loader.workers" : r.cpu > cores_are_short ? work_less() : "";
    return {limit::decode, key,
            fmt::format("Too few cores limit you: {} had no core for {} % of {} time, and ran for {} %{}; {}.", all_workers(), percent(r.core_wait),
                        r.workers == 1 ? "its" : "their",
                        percent(r.cpu), waited(),
                        too_many ? fmt::format("run fewer than {} workers on {}", context.workers, counted(context.cores, "core"))
                                 : fmt::format("stop other programs that use these {}", counted(context.cores, "core"))),
            {"More workers would wait for a core, too."}};
  }

  limit_advice own_code_waits(const std::string& work) const {
    const bool jobs = context.work == work_kind::jobs;
    const std::uint32_t more = 2 * std::max(context.workers, 1U);
    const bool loader = context.work == work_kind::batches;
    return {limit::decode, loader ? "" : "loader.workers",
            fmt::format("{} limits you: it kept {} waiting for {} % of their time, for a file, a lock or another process{}; more workers ({}{}) let "
                        "these waits overlap.",
                        work, counted(r.workers, "worker"), percent(r.blocked()), waited(), loader ? "num_workers=" : "[loader] workers = ", more),
            {fmt::format("A worker that waits uses no core, so you can run more workers than cores ({} here){}. `penstock scale {}` tries it.", context.cores,
                         jobs ? ", unless the commands or processes that it waits for need them" : "", more)}};
  }

  limit_advice decode() const {
    const std::string work = context.work == work_kind::jobs ? "The jobs' own work" : runs_own_code() ? "The dataset's own work" : "Decoding";
    const std::string busy = fmt::format("{} used a core for {} % of {} time", all_workers(), percent(r.cpu), r.workers == 1 ? "its" : "their");
    const std::string key = work_less();
    const std::string less = key == "image.size" ? " ([image] size, or store smaller pictures)" : "";
    if (r.slow && r.slow->core_wait > cores_are_short && context.work == work_kind::samples) {
      return {limit::decode,
              key,
              fmt::format("Decoding limits you: worker/{} needs {:.1f} times as long for a sample as its "
                          "peers, because it had no core for {} % of its time{}; stop other programs that "
                          "use these {}, or do less work for "
                          "a sample{}.",
                          r.slow->worker, r.slow->factor, percent(r.slow->core_wait), waited(),
                          counted(context.cores, "core"), less),
              {why_others_wait()}};
    }
    if (r.slow && context.work == work_kind::samples) {
      return {
          limit::decode,
          "loader.workers",
          fmt::format(
              "Decoding limits you: worker/{} needs {:.1f} times as long for a sample as its peers{}; "
              "`penstock restart worker/{}` replaces it; more slots ([loader] slots_per_worker) or workers "
              "([loader] workers) partly hide it.",
              r.slow->worker, r.slow->factor, waited(), r.slow->worker),
          {why_others_wait(),
           fmt::format("`penstock drain worker/{}` continues without it.", r.slow->worker)}};
    }
    if (mostly_remote()) return too_few_remote(limit::decode, fmt::format("{} limits you: {}", work, busy));
    if (context.work == work_kind::samples && 2 * r.no_core > r.of(limit::decode)) return no_core();
    if (context.work == work_kind::batches && 1 - r.busy > idle_from) return too_few_in_advance(limit::decode, work);
    if (2 * r.blocked() > r.busy) return own_code_waits(work);
    if (!cores_are_used()) {
      return {limit::decode,
              context.work == work_kind::batches ? "" : "loader.workers",
              fmt::format("{} limits you: {}{}; more workers ({}) would help until all {} are busy.", work, busy, waited(),
                          context.work == work_kind::batches ? fmt::format("num_workers={}", context.cores) : "[loader] workers", counted(context.cores, "core")),
              {fmt::format("`penstock scale {}` tries it on the running session.", context.cores)}};
    }
    if (r.core_wait > cores_are_short && context.workers <= context.cores) {
      return {
          limit::decode,
          key,
          fmt::format(
              "{} limits you: {}{}; the workers had no core for {} % of their time: stop other programs that "
              "use these {}, or do less work for a sample{}.",
              work, busy, waited(), percent(r.core_wait), counted(context.cores, "core"), less),
          {"More workers would wait for a core, too."}};
    }
    return {limit::decode,
            key,
            fmt::format("{} limits you: {}{}; more workers would not help on the {} of this machine: use a machine with more cores, or do "
                        "less work for a sample{}.",
                        work, busy, waited(), counted(context.cores, "core"), less),
            {}};
  }

  /// Advice for a data loader.
  limit_advice too_few_in_advance(limit what, const std::string& work) const {
    if (const auto& one = context.longest)  // the other workers have loaded as far ahead as they may
      return {what, "", fmt::format("A slow sample limits you: {} of worker/{} has taken {:.1f} s so far.", one->name, one->worker, one->seconds), {}};
    return {what, "",
            fmt::format("{} limits you, although the workers idled {} % of the time: more batches in advance (prefetch_factor) keep them busy.",
                        work, percent(1 - r.busy)),
            {}};
  }

  /// Whether the stream spends its time on passing on batches rather than on loading them.
  [[nodiscard]] bool batches_are_tiny(limit what) const {
    if (context.work != work_kind::samples || r.batches_per_second <= 0) return false;
    const bool few = what == limit::order && r.samples_a_batch > 0 && r.samples_a_batch <= few_samples && r.batches_per_second > 500;
    return few || r.waited() < passing_on * r.batches_per_second;
  }
  limit_advice tiny_batches(limit what) const {
    return {what,
            "sampler.batch_size",
            fmt::format("{} limits you: {:.0f} batches a second of {} each cost more to pass on than to load{}; use larger batches ([sampler] "
                        "batch_size, now {}).",
                        what == limit::order ? "Order" : "Passing on batches", r.batches_per_second,
                        counted(static_cast<std::uint64_t>(std::llround(r.samples_a_batch)), "sample"), waited(), settings.sampler.batch_size),
            {}};
  }

  limit_advice order() const {
    if (context.work == work_kind::batches) return too_few_in_advance(limit::order, "Order");
    if (context.work != work_kind::samples) {
      return {limit::order,
              "loader.slots_per_worker",
              fmt::format("Order limits you: jobs wait although workers idle {} % of the time; more slots ([loader] "
                          "slots_per_worker, now {}) let workers hold the next job, and larger jobs cost less to pass on.",
                          percent(1 - r.busy), context.slots_per_worker),
              {}};
    }
    if (r.stall) {
      std::vector<std::string> more = ways_around_a_late_batch();
      more.push_back(fmt::format("[loader.hang] item_timeout limits the time for a sample. `penstock describe worker/{}` "
                                 "shows what it is loading.",
                                 r.stall->worker));
      return {limit::order,
              "loader.slots_per_worker",
              fmt::format("Order limits you: {} of worker/{} stalled its batch for {:.1f} s while later batches "
                          "were ready{}; more slots ([loader] slots_per_worker, now {}) hide longer stalls.",
                          (r.stall->sample || r.stall->is_loading ? name_of_sample(r.stall->worker, r.stall->sample) : std::string("a sample")), r.stall->worker, r.stall->seconds, waited(), context.slots_per_worker),
              std::move(more)};
    }
    if (batches_are_tiny(limit::order)) return tiny_batches(limit::order);
    if (mostly_remote()) {
      return {limit::order,
              "loader.hosts.landing_slots",
              fmt::format("Order limits you: the workers idled {} % of the time for lack of landing slots{}; more of them ([loader.hosts] "
                          "landing_slots, now {}) let hosts load further ahead.",
                          percent(1 - r.busy), waited(), settings.loader.hosts.landing_slots),
              {}};
    }
    return {limit::order,
            "loader.slots_per_worker",
            fmt::format("Order limits you: the workers idled {} % of the time for lack of slots{}; more slots ([loader] "
                        "slots_per_worker, now {}) let them load further ahead.",
                        percent(1 - r.busy), waited(), context.slots_per_worker),
            {}};
  }

  limit_advice wire() const {
    if (batches_are_tiny(limit::wire)) return tiny_batches(limit::wire);
    if (2 * r.link > r.of(limit::wire)) return link();
    const std::string key = takes_images(type_of(settings)) ? "image.size" : "dataset.dtype";
    const std::string less =
        takes_images(type_of(settings))
            ? "send fewer bytes ([image] size)"
            : "send fewer bytes: use a smaller element type ([dataset] dtype), or convert on the device";
    if (!context.pinned && !context.on_host) {
      return {limit::wire,
              "gpu.device",
              fmt::format("The copy to the device limits you{}: its memory is pageable, which halves the speed; raise "
                          "the limit on locked memory (ulimit -l), as `penstock doctor` says.",
                          waited()),
              {"Then " + less + "."}};
    }
    return {limit::wire, key,
            fmt::format("The copy to the device limits you{}; {}.", waited(), less),
            {context.on_host ? "This is the host device: one thread copies within the machine's memory."
                            : "`penstock bench upload` measures what this machine's link can do."}};
  }

  limit_advice convert() const {
    if (batches_are_tiny(limit::convert)) return tiny_batches(limit::convert);
    return {limit::convert,
            "gpu.dtype",
            fmt::format("The conversion on the device limits you{}; [gpu] dtype = \"uint8\" converts no values, and "
                        "layout = \"nhwc\" moves none.",
                        waited()),
            {context.on_host ? "This is the host device: one thread converts." : "Your own kernels share the GPU with it."}};
  }

  limit_advice consumer() const {
    if (context.work == work_kind::batches && r.held > 0.05) {
      return {limit::consumer, "jobs.memory",
              fmt::format("Your program limits you: the batches that it keeps filled [jobs] memory {} % of the time; drop them earlier, or "
                          "allow more.",
                          percent(r.held)),
              {}};
    }
    if (context.work == work_kind::jobs && r.held > 0.05) {
      return {limit::consumer, "jobs.memory",
              fmt::format("The callers limit you: results not yet freed filled [jobs] memory {} % of the time; free "
                          "them, or allow more ([jobs] memory).",
                          percent(r.held)),
              {}};
    }
    if (context.work == work_kind::batches) {
      return {limit::consumer, "",
              fmt::format("Your training step limits you, as it should: it worked on its batches {} % of the time and waited {} %; loading "
                          "faster would gain nothing.",
                          percent(r.of(limit::consumer)), percent(r.waited())),
              {}};
    }
    if (context.work != work_kind::samples) {
      return {limit::consumer,
              "",
              fmt::format(
                  "The callers limit you: workers had no job for {} % of the time; submit more jobs at once.",
                  percent(r.of(limit::consumer))),
              {}};
    }
    if (r.held > 0.05 && r.held > r.of(limit::consumer) / 2) {
      return {limit::consumer,
              "gpu.buffers",
              fmt::format(
                  "The consumer limits you: for {} % of the time it waited for a batch while it held every "
                  "device buffer; release batches earlier, or allow more buffers ([gpu] buffers, now {}).",
                  percent(r.held), settings.gpu.buffers),
              {}};
    }
    if (r.in_bursts()) {
      return {limit::consumer, "",
              fmt::format("The consumer limits you: it takes its batches in bursts. It worked on them {} % of the time, and the workers "
                          "were idle for {} %, because every slot was full; it waited {} %, because a burst empties the slots faster "
                          "than they are filled.",
                          percent(r.of(limit::consumer)), percent(r.spare), percent(r.waited())),
              {"Faster loading would gain nothing for most of the time. A consumer that takes its batches evenly does not wait.",
               fmt::format("Otherwise more slots ([loader] slots_per_worker, now {}) hold more batches for the next burst; that saves {} % of "
                           "the time at most.",
                           context.slots_per_worker, percent(r.waited()))}};
    }
    std::vector<std::string> more;
    if (passing_on * r.batches_per_second > 1)
      more.push_back(fmt::format("Passing on {:.0f} batches a second is expensive: larger batches ([sampler] batch_size, now {}) cost less.", r.batches_per_second,
                                 settings.sampler.batch_size));
    return {limit::consumer, "",
            fmt::format("The consumer limits you, as it should: it worked on its batches {} % of the time and waited "
                        "{} %; loading faster would gain nothing.",
                        percent(r.of(limit::consumer)), percent(r.waited())),
            std::move(more)};
  }

  /// Advice for `start` if no owner could take batches for most of that time.
  limit_advice owner_away() const {
    if (r.owner_frozen >= r.owner_down) {
      return {limit::start,
              "",
              fmt::format("The GPU owner limits you: its process was suspended (SIGSTOP, a debugger or a freezer) for {} % of the time.",
                          percent(r.owner_frozen)),
              {fmt::format("If it still is, `penstock describe gpu` says so, and `kill -CONT {}` resumes it. It is replaced after "
                           "{} without a heartbeat ([loader.hang] heartbeat_timeout).",
                           context.owner_pid ? std::to_string(*context.owner_pid) : "PID",
                           duration_for_people(settings.loader.hang.heartbeat_timeout))}};
    }
    return {limit::start,
            "",
            fmt::format("The GPU owner limits you: for {} % of the time its process was being replaced; `penstock deaths` says why.",
                        percent(r.owner_down)),
            {"A new owner opens the device and registers the slots before it takes a batch."}};
  }

  /// Whether the stream spent more than half of this share of the time waiting for
  /// batches of a worker that died.
  [[nodiscard]] bool waits_for_dead_worker(double share) const { return context.work == work_kind::samples && r.lost && 2 * r.lost->share > share; }

  limit_advice worker_died(limit what) const {
    const std::string end = context.lost_worker_end.empty() ? "died" : context.lost_worker_end;
    return {what,
            "",
            fmt::format("The death of worker/{} limits you: it {}; for {} % of the time the stream waited for its batches.",
                        r.lost->worker, end, percent(r.lost->share)),
            {fmt::format("Another process loads its batch again. `penstock deaths` and `penstock describe worker/{}` say more.", r.lost->worker)}};
  }

  limit_advice start() const {
    if (waits_for_dead_worker(r.of(limit::start))) return worker_died(limit::start);
    if (2 * (r.owner_frozen + r.owner_down) > r.of(limit::start)) return owner_away();
    const std::uint64_t recycles = settings.loader.limits.recycle_after_samples;
    if (context.restarts > 0 && recycles > 0) {
      return {limit::start,
              "loader.limits.recycle_after_samples",
              fmt::format("Worker startup limits you: {} % of the time no worker was ready, because each is replaced after {} "
                          "([loader.limits] recycle_after_samples); replace them less often.",
                          percent(r.of(limit::start)), counted(recycles, words_for(context.work).item, words_for(context.work).items)),
              {}};
    }
    if (context.restarts > 0) {
      return {limit::start,
              "",
              fmt::format("Worker startup limits you: {} % of the time no worker was ready; {}: `penstock deaths` says why.",
                          percent(r.of(limit::start)), counted(context.restarts, "worker was restarted", "workers were restarted")),
              what_slows_starts()};
    }
    if (context.work != work_kind::samples) {
      return {limit::start, "", fmt::format("Worker startup limits you: {} % of the time no worker was ready.", percent(r.of(limit::start))),
              what_slows_starts()};
    }
    return {limit::start,
            "loader.start",
            fmt::format("Worker startup limits you: {} % of the time no worker was ready, or the device was not open; [loader] "
                        "start = \"eager\" starts them before the first demand.",
                        percent(r.of(limit::start))),
            what_slows_starts()};
  }

  [[nodiscard]] std::vector<std::string> what_slows_starts() const {
    std::vector<std::string> lines{
        "A worker's start includes its imports and the files that it opens before its first sample."};
    if (r.start_core_wait > cores_are_short) {
      lines.push_back(fmt::format(
          "Workers had no core for {} % of the time that they took to start: other processes use the cores.",
          percent(r.start_core_wait)));
    }
    return lines;
  }
};

}  // namespace

namespace {

/// Puts the share of the time that the consumer waited before the sentence: "Your loop waited 28 % of the
/// time, because order limits you".
void name_part_of_time(limit_advice& advice, const limit_reading& reading, std::string_view who) {
  advice.sentence.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(advice.sentence.front())));
  advice.sentence.insert(0, fmt::format("{} waited {} % of the time, because ", who, percent(reading.waited())));
}

/// What keeps every worker away, which the shares would attribute to a start or to the order of batches. Empty: nothing does.
std::string text_of_no_workers(const limit_context& context) {
  if (const auto& wait = context.waits_for_hosts) {
    const auto in_words = [](double seconds) { return duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds * 1e9))); };
    return fmt::format("There is no worker: waiting for a loader host for {}, at most {} ([loader.hosts] wait).", in_words(std::round(wait->seconds)),
                       in_words(wait->limit_seconds));
  }
  return context.drained ? "There is no worker: an operator drained all of them; `penstock restart workers` brings them back." : "";
}

limit_advice advise_on_limits(const limit_reading& reading, const limit_context& context, const config& settings) {
  if (const std::string none = text_of_no_workers(context); !none.empty()) return {limit::start, "", none, {}};
  const auto what = reading.largest();
  if (!what) return {{}, "", "Nothing has limited the stream so far.", {}};
  const writer w{reading, context, settings};
  const bool loads = *what == limit::storage || *what == limit::decode || *what == limit::order;
  if (loads && w.waits_for_dead_worker(reading.waited())) return w.worker_died(*what);
  if (loads && w.waits_for_slow_samples(*what)) return w.slow_samples(*what);
  switch (*what) {
    case limit::storage: return w.storage();
    case limit::decode: return w.decode();
    case limit::order: return w.order();
    case limit::wire: return w.wire();
    case limit::convert: return w.convert();
    case limit::consumer: return w.consumer();
    case limit::start: return w.start();
  }
  return {};
}

/// Advice for a stalled stream, regardless of what limited it before.
std::string way_out_of(const limit_context& context, const config& settings) {
  const stall_report& stall = *context.stalled;
  const std::string pid = context.stalled_pid ? std::to_string(*context.stalled_pid) : "PID";
  if (stall.kind == stall_kind::gpu_owner && stall.suspended) {
    return fmt::format("`kill -CONT {}` resumes it. It is replaced after {} without a heartbeat ([loader.hang] heartbeat_timeout).",
                       pid, duration_for_people(settings.loader.hang.heartbeat_timeout));
  }
  if (stall.kind == stall_kind::gpu_owner) return "`penstock describe gpu` shows what the owner is doing.";
  if (stall.hung_before > 0 && stall.worker)  // the sentence already tells the user what to do
    return fmt::format("`penstock describe worker/{}` shows what it is doing.", *stall.worker);
  if (stall.worker && stall.suspended && stall.kind == stall_kind::worker) {
    return fmt::format("`kill -CONT {}` resumes it. It is killed and replaced after {} without a heartbeat ([loader.hang] "
                       "heartbeat_timeout).",
                       pid, duration_for_people(settings.loader.hang.heartbeat_timeout));
  }
  if (context.work == work_kind::batches && stall.worker && context.stalled_limit) {
    return fmt::format("`penstock describe worker/{}` shows what it is doing. It is killed if one sample takes longer than {}, and another worker loads the "
                       "batch again; after three tries the program gets an exception, or the sample is left out (DataLoader(timeout=, on_bad_sample=)).",
                       *stall.worker, duration_for_people(*context.stalled_limit));
  }
  if (context.work == work_kind::batches && stall.worker && stall.kind != stall_kind::probation) {
    return fmt::format("`penstock describe worker/{0}` shows what it is doing. `penstock restart worker/{0} --now` kills it, and another worker "
                       "loads the batch again. If the sample hangs again, stop the program and start it with DataLoader(timeout=60), which raises an "
                       "exception after three tries.",
                       *stall.worker);
  }
  if (stall.kind == stall_kind::sample && stall.worker) {
    return fmt::format("`penstock describe worker/{0}` shows what it is doing. It is killed if one sample takes longer than {1} ([loader.hang] "
                       "item_timeout), or after {2} without a heartbeat, for example if its process is suspended. `penstock restart "
                       "worker/{0} --now` kills it at once.",
                       *stall.worker, duration_for_people(settings.loader.hang.item_timeout),
                       duration_for_people(settings.loader.hang.heartbeat_timeout));
  }
  if (stall.worker) {
    return fmt::format("`penstock describe worker/{}` shows its state. A worker is killed and replaced after {} without a heartbeat, for "
                       "example if its process is suspended.",
                       *stall.worker, duration_for_people(settings.loader.hang.heartbeat_timeout));
  }
  return "`penstock describe scheduler` shows where the batches are.";
}

/// If the start takes at least this share of the run, the advice is to start earlier.
constexpr double startup_is_long = 0.1;

/// Describes the time before the first batch, which the sentence does not cover.
std::string text_of_beginning(const limit_reading& r, const limit_context& context) {
  const auto in_words = [](double seconds) { return duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds * 1e9))); };
  const std::string took = fmt::format("This describes the time after the first {0}. The first {0} took {1} of {2} in total",
                                       context.work == work_kind::jobs ? "job" : "batch", in_words(r.beginning * r.seconds), in_words(r.seconds));
  const double startup = r.share_of_beginning[static_cast<std::size_t>(limit::start)];
  if (startup < startup_is_long) return took + ".";
  const bool has_device = context.work == work_kind::samples;
  return took + fmt::format(". Of these {}, starting the workers{} took {}{}", in_words(r.beginning * r.seconds), has_device ? " and the device" : "",
                            in_words(startup * r.seconds), has_device ? "; [loader] start = \"eager\" starts them before the first demand." : ".");
}

/// For a stream that does not wait: whether it needs its loader hosts, as a sentence. Empty if it does.
std::string use_of_hosts(const limit_reading& r, const limit_context& context) {
  if (r.remote == 0 || context.work != work_kind::samples || !r.largest() || r.waited() >= spare_from) return "";
  const std::uint32_t local = r.workers - r.remote;
  const auto needed = static_cast<std::uint32_t>(std::ceil(r.working / fully_used));
  const std::string work = fmt::format("the stream does not wait, and on average {:.1f} of {} work", r.working, counted(r.workers, "worker"));
  if (local > 0 && needed <= local)
    return fmt::format("The hosts are not needed: {}, and the {} of this machine can do that.", work, counted(local, "worker"));
  const std::uint32_t of_hosts = std::max(needed, local + 1) - local;
  if (of_hosts >= r.remote) return "";
  return fmt::format("Not all workers of the hosts are needed: {}; {} of {} on hosts would do.", work, of_hosts, r.remote);
}

}  // namespace

limit_advice advise(const limit_reading& whole, const limit_context& context, const config& settings) {
  const std::optional<limit_reading> rest = whole.after_beginning();
  const limit_reading& reading = rest ? *rest : whole;
  limit_advice advice = advise_on_limits(reading, context, settings);
  // A stall replaces the advice: earlier limits do not explain it.
  if (context.stalled) {
    advice.sentence = fmt::format("No progress for {:.0f} s: {}.", context.stalled->seconds, context.stalled->text);
    advice.more.clear();
    // An operator's stall already names the remedy.
    if (context.stalled->kind != stall_kind::operator_) advice.more = {way_out_of(context, settings)};
    advice.more.insert(advice.more.end(), context.over_memory.begin(), context.over_memory.end());
    return advice;
  }
  advice.more.insert(advice.more.end(), context.over_memory.begin(), context.over_memory.end());
  const bool is_other = advice.what && *advice.what != limit::decode && *advice.what != limit::consumer && *advice.what != limit::start;
  const bool misses_cores = is_other && reading.core_wait > cores_are_short;
  if (misses_cores) advice.more.push_back(fmt::format("The workers also had no core for {} % of their time.", percent(reading.core_wait)));
  if (rest) advice.more.push_back(text_of_beginning(whole, context));
  if (context.work == work_kind::batches && (advice.what == limit::decode || advice.what == limit::order)) name_part_of_time(advice, reading, "Your loop");
  if (advice.what && advice.what != limit::consumer && writer{reading, context, settings}.consumer_is_larger()) name_part_of_time(advice, reading, "The consumer");
  advice.hosts = use_of_hosts(reading, context);
  if (!advice.hosts.empty()) advice.more.push_back(advice.hosts);
  if (context.hedges.started > 0) {
    advice.more.push_back(fmt::format("So far, a second worker also loaded {} ([loader] hedge), and was faster in {}.",
                                      counted(context.hedges.started, "late batch", "late batches"), context.hedges.won));
  }
  return advice;
}

limits_status limits_of(const limit_reading& reading, const limit_advice& advice) {
  const auto share = [&](limit l) { return reading.share[static_cast<std::size_t>(l)]; };
  return {share(limit::storage), share(limit::decode),   share(limit::order), share(limit::wire),
          share(limit::convert), share(limit::consumer), share(limit::start), advice.sentence, advice.hosts};
}

namespace {

json number_or_null(std::uint64_t sample) {
  return sample == not_numbered ? json() : json(sample);
}

}  // namespace

json waited_as_json(const limit_reading& reading) {
  const limit_reading r = reading.after_beginning().value_or(reading);
  const double waited = r.waited();
  return waited + r.of(limit::consumer) > 0 ? json(std::round(std::min(waited, 1.0) * 1e4) / 1e4) : json();
}

json slowest_as_json(const limit_reading& reading, const limit_context& context) {
  const nanoseconds usual(static_cast<std::int64_t>(usual_seconds(reading).value_or(0) * 1e9));
  json all = json::array();
  for (const slow_sample& s : context.slowest) {
    if (!is_slow_sample(s.sample.took, usual)) continue;
    const auto seconds = [](nanoseconds time) { return std::round(std::chrono::duration<double>(time).count() * 1e4) / 1e4; };
    all.push_back({{"sample", number_or_null(s.sample.index)},
                   {"name", s.sample.name},
                   {"worker", s.worker},
                   {"seconds", seconds(s.sample.took)},
                   {"times", s.times},
                   {"seconds_ago", seconds(std::max(context.now - s.when, nanoseconds(0)))}});
  }
  return all;
}

json why_as_json(const limit_reading& reading, const limit_advice& advice, const limit_context& context) {
  json limits = as_json(limits_of(reading, advice));
  limits.erase("verdict");
  limits.erase("hosts");
  json each = json::array();
  for (const limit_reading::worker_load& w : reading.loads)
    each.push_back({{"worker", w.worker}, {"seconds_a_sample", w.seconds_a_sample}, {"reading", w.reading}});
  const auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
  const auto or_null = [](std::optional<std::uint64_t> sample) { return sample ? number_or_null(*sample) : json(); };
  json slow = json::array();
  for (const limit_reading::awaited_sample& s : reading.slow_samples)
    slow.push_back({{"worker", s.worker}, {"seconds", rounded(s.seconds)}, {"sample", or_null(s.sample)}});
  json rest;  // the shares that the sentence describes: those after the beginning
  if (const auto later = reading.after_beginning()) {
    for (std::size_t i = 0; i < limit_count; ++i) rest[std::string(name_of(static_cast<limit>(i)))] = rounded(later->share.at(i));
  }
  return {{"schema", "penstock.why/1"},
          {"seconds", rounded(reading.seconds)},
          {"limit", advice.what ? json(name_of(*advice.what)) : json()},
          {"key", advice.key.empty() ? json() : json(advice.key)},
          {"verdict", advice.sentence},
          {"more", advice.more},
          {"hosts", advice.hosts.empty() ? json() : json(advice.hosts)},
          {"limits", std::move(limits)},
          {"waited", rounded(reading.waited())},
          {"beginning", rounded(reading.beginning)},
          {"limits_after_beginning", std::move(rest)},
          {"workers",
           {{"ready", reading.workers},
            {"remote", reading.remote},
            {"busy", rounded(reading.busy)},
            {"cpu", rounded(reading.cpu)},
            {"core_wait", rounded(reading.core_wait)},
            {"each", std::move(each)}}},
          {"batches_per_second", rounded(reading.batches_per_second)},
          {"waited_for_core", rounded(reading.no_core)},
          {"waited_for_slow_samples", rounded(reading.slow_share)},
          {"slow_samples", std::move(slow)},
          {"slowest_samples", slowest_as_json(reading, context)},
          {"stall", reading.stall ? json{{"worker", reading.stall->worker},
                                         {"seconds", rounded(reading.stall->seconds)},
                                         {"sample", or_null(reading.stall->sample)}}
                                  : json()},
          {"slow_worker", reading.slow ? json{{"worker", reading.slow->worker},
                                              {"factor", rounded(reading.slow->factor)},
                                              {"core_wait", rounded(reading.slow->core_wait)}}
                                       : json()}};
}

}  // namespace penstock::telemetry
