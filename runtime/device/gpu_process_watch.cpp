#include "runtime/device/gpu_process_watch.hpp"

#include "runtime/base/signals.hpp"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace penstock::device {
namespace {

constexpr auto stop_deadline = std::chrono::seconds(1);

}  // namespace

struct gpu_process_watch::shared {
  std::mutex mutex;
  std::condition_variable changed;
  teller tell;
  bool stopping = false;
  bool ended = false;

  /// Sleeps. Returns false if a stop was requested.
  bool rest(nanoseconds time) {
    std::unique_lock hold(mutex);
    return !changed.wait_for(hold, time, [&] { return stopping; });
  }

  void look(const std::string& uuid, const rhythm& when, const std::string& file) {
    if (!rest(when.first)) return;
    nvml library{driver_library(file)};
    if (!library.start()) return;
    const auto which = library.by_uuid(uuid);
    if (!which) return;
    do {
      const auto processes = library.processes_on(*which);
      const std::lock_guard hold(mutex);
      if (processes && !stopping) tell(*processes);
    } while (rest(when.then));
  }
};

gpu_process_watch::gpu_process_watch(std::string uuid, teller tell, rhythm when, std::string library)
    : shared_(std::make_shared<shared>()) {
  shared_->tell = std::move(tell);
  const all_signals_blocked quiet;
  std::thread([own = shared_, uuid = std::move(uuid), when, library = std::move(library)] {
    ::pthread_setname_np(::pthread_self(), "penstock-nvml");
    own->look(uuid, when, library);
    const std::lock_guard hold(own->mutex);
    own->ended = true;
    own->changed.notify_all();
  }).detach();
}

gpu_process_watch::~gpu_process_watch() {
  std::unique_lock hold(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(hold, stop_deadline, [&] { return shared_->ended; });
}

}  // namespace penstock::device
