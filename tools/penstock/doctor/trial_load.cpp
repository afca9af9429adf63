#include "actors/supervisor/lone_worker.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/doctor/gather.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <variant>

namespace penstock::doctor {

namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t samples_max = 8;

/// CUDA libraries and devices that the worker holds: only the GPU owner may use the GPU.
std::vector<std::string> cuda_traces(pid_t pid) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& what) {
    if (std::ranges::find(found, what) == found.end()) found.push_back(what);
  };
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path == std::string::npos) continue;
    const std::string file = fs::path(line.substr(path)).filename();
    if (file.starts_with("libcuda.so") || file.starts_with("libcudart.so") ||
        file.starts_with("libnvcuvid.so"))
      add(printable(line.substr(path)));
  }
  std::error_code fault;
  for (const auto& fd : fs::directory_iterator(fmt::format("/proc/{}/fd", pid), fault)) {
    const std::string target = fs::read_symlink(fd.path(), fault);
    if (target.starts_with("/dev/nvidia")) add(target);
  }
  return found;
}

/// Each step records its findings in the facts and returns whether to continue.
class steps {
 public:
  steps(const config& settings, probation_result& all) : settings_(settings), all_(all), told_(all.worker) {}

  bool greet(const std::vector<int>& indexes) {
    auto worker = supervisor::lone_worker::start({settings_.loader.command, supervisor::worker_environment(settings_.loader.env), indexes,
                                                  settings_.loader.hang.start_deadline});
    if (!worker) return broken(told_.broken, worker.error());
    worker_ = std::move(*worker);
    told_.program = worker_->program();
    if (auto ok = worker_->greet(); !ok) return broken(told_.protocol_trouble, ok.error().message);
    told_.spoke = true;
    told_.cuda_traces = cuda_traces(worker_->pid());
    return true;
  }

  bool open_dataset() {
    config on_cpu = settings_;
    on_cpu.image.decoder = decoder_rule::cpu;  // the worker has no device
    auto described = worker_->open(on_cpu);
    if (!described) return broken(told_.dataset_trouble, described.error());
    all_.described = *described;
    samples_ = static_cast<std::uint32_t>(
        std::min<std::uint64_t>({described->samples, samples_max, settings_.sampler.batch_size}));
    if (samples_ == 0)
      return broken(told_.dataset_trouble, failure{errc::dataset, "the dataset has no samples", 0});
    const auto ok = worker_->set_up(*described, samples_);
    return ok || broken(told_.dataset_trouble, ok.error());
  }

  bool load() {
    protocol::load_batch lease{0, 1, 0, {}};
    for (std::uint32_t i = 0; i < samples_; ++i) lease.samples.push_back({i, 1});
    told_.samples_tried = samples_;
    const auto fourth = worker_->load(lease, settings_.loader.hang.item_timeout);
    const auto* loaded = fourth ? std::get_if<protocol::batch_loaded>(&*fourth) : nullptr;
    if (loaded == nullptr)
      return broken(told_.load_trouble, fourth ? "it did not complete a lease" : fourth.error().message);
    told_.loaded = true;
    told_.samples_good = std::min(loaded->rows, samples_);
    if (!loaded->failures.empty()) {
      told_.first_failure = fmt::format("{}: {}", printable(loaded->failures.front().name),
                                        printable(loaded->failures.front().reason));
    }
    // Decoders may load libraries only when they decode the first sample.
    for (std::string& trace : cuda_traces(worker_->pid()))
      if (std::ranges::find(told_.cuda_traces, trace) == told_.cuda_traces.end())
        told_.cuda_traces.push_back(std::move(trace));
    return true;
  }

 private:
  template <class Place, class Reason>
  static bool broken(Place& place, Reason&& why) {
    place = std::forward<Reason>(why);
    return false;
  }

  const config& settings_;
  probation_result& all_;
  worker_facts& told_;
  std::unique_ptr<supervisor::lone_worker> worker_;
  std::uint32_t samples_ = 0;
};

}  // namespace

probation_result try_a_worker(const config& settings, bool load, const std::vector<int>& indexes) {
  probation_result all;
  all.worker.command = fmt::format("{}", fmt::join(settings.loader.command, " "));
  steps worker(settings, all);
  if (worker.greet(indexes) && load && worker.open_dataset()) worker.load();
  return all;
}

}  // namespace penstock::doctor
