// Workers die here on purpose, and the stream continues. The program prints each death and each bad sample
// when it happens, and at the end shows that only the bad samples were lost.
//
//   06_watch_events
#include <penstock/session.hpp>

#include <cstdio>

int main() {
  using penstock::event_kind;
  using penstock::fault_kind;
  try {
    penstock::config settings;
    settings.name = "watch-events";
    settings.dataset.type = penstock::dataset_type::synthetic;
    settings.dataset.samples = 2000;
    settings.dataset.bytes_per_sample = penstock::byte_size{16 << 10};
    settings.dataset.faults = {
        {.sample = 100, .kind = fault_kind::segv, .times = 1},  // crashes once: another worker loads it again
        {.sample = 200, .kind = fault_kind::kill, .times = 1},  // like the kernel's OOM killer
        {.sample = 300, .kind = fault_kind::raise, .times = 0},  // throws: a bad file
        {.sample = 400,
         .kind = fault_kind::abort,
         .times = 0},  // always crashes: suspected, tried alone, quarantined
    };
    settings.loader.workers = 4;
    settings.sampler.batch_size = 32;
    settings.gpu.device = "host";
    settings.log.level = penstock::log_level::off;  // the program prints everything itself

    penstock::session_options options;
    // Runs on a separate thread. However long it takes, no worker and no batch waits for it.
    options.on_event = [](const penstock::event& what) {
      switch (what.kind) {
        case event_kind::worker_died:
          std::printf("DEATH       %s\n", what.text.c_str());
          if (!what.death->last_output.empty())
            std::printf("            its last output: %s\n", what.death->last_output.c_str());
          break;
        case event_kind::worker_restarted:
        case event_kind::sample_failed:
        case event_kind::sample_quarantined:
        case event_kind::epoch_done: std::printf("%-11s %s\n", name_of(what.kind), what.text.c_str()); break;
        default: break;  // there are more: penstock/event.hpp
      }
    };

    penstock::Session session(settings, options);
    while (std::optional<penstock::Batch> batch = session.next()) {
      // Nothing special here: batches come in order, as if no worker had died.
    }
    session.close();  // no events come after this

    const penstock::epoch_report epoch = session.report().epochs.at(0);
    std::printf(
        "%llu of %llu samples delivered, %llu failed, %llu quarantined\n",
        static_cast<unsigned long long>(epoch.delivered), static_cast<unsigned long long>(epoch.expected),
        static_cast<unsigned long long>(epoch.failed), static_cast<unsigned long long>(epoch.quarantined));
    return epoch.delivered == 1998 ? 0 : 1;
  } catch (const penstock::error& e) {
    std::fprintf(stderr, "%s: %s\n", penstock::name_of(e.code()), e.what());
    return 1;
  }
}
