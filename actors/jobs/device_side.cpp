#include "actors/jobs/device_side.hpp"

#include "actors/caf/caf.hpp"
#include "actors/gpu_owner/job_programs.hpp"
#include "actors/supervisor/owner_keeper.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/units.hpp"

#include <pthread.h>

#include <future>
#include <limits>

namespace penstock::jobs {
namespace {

// How long to wait for a device program in this process. If it does not return, its thread is abandoned.
constexpr auto patience_with_a_program = std::chrono::seconds(2);

}  // namespace

template <class Message>
void device_side::to_scheduler(Message message) {
  const std::lock_guard hold(mutex_);
  if (scheduler_) actors::tell(scheduler_, std::move(message));
}

// ---- the thread that runs device programs, with an owner in this process ---------------------------------------

/// Shares everything that the thread uses: a thread whose program never returns outlives the pool.
class device_side::program_thread {
 public:
  struct shared {
    std::shared_ptr<gpu_owner::hand_over> consumer = std::make_shared<gpu_owner::hand_over>();
    std::shared_ptr<device::device> device;
    std::shared_ptr<batch_home> home;
    std::map<std::string, std::string> programs;
    std::mutex mutex;  // guards pool
    device_side* pool = nullptr;
  };

  explicit program_thread(std::shared_ptr<shared> deps) : shared_(std::move(deps)) {
    std::packaged_task<void()> work([all = shared_] { run(*all); });
    done_ = work.get_future();
    const all_signals_blocked quiet;
    thread_ = std::thread(std::move(work));
  }

  void stop() {
    {
      const std::lock_guard hold(shared_->mutex);
      shared_->pool = nullptr;
    }
    shared_->consumer->stop();
    if (is_ready_within(done_, patience_with_a_program)) {
      thread_.join();
      return;
    }
    log::warn("gpu", "a device program has not returned for {}: its thread is abandoned",
              duration_for_people(patience_with_a_program));
    thread_.detach();
  }

 private:
  static void run(shared& all) {
    ::pthread_setname_np(::pthread_self(), "penstock-progs");
    gpu_owner::job_programs programs(all.device, all.programs);
    while (true) {
      std::optional<gpu_owner::hand_over::taken> taken;
      try {
        taken = all.home->take_from(*all.consumer);
      } catch (const error& e) {
        log::warn("gpu", "{}", e.what());
        continue;
      }
      auto* const job = std::get_if<gpu_owner::ready_batch>(&*taken);
      if (job == nullptr) return;  // the queue was stopped, or the owner has failed and reported that
      auto answer = programs.run(*job);
      if (!job->refused && (!answer || !answer->buffer)) all.home->give_back(job->buffer);
      const std::lock_guard hold(all.mutex);
      if (all.pool == nullptr) return;
      if (!answer) return all.pool->failed(answer.error());
      std::vector<device_answer> one;
      one.push_back(std::move(*answer));
      all.pool->jobs_answered(std::move(one));
    }
  }

  const std::shared_ptr<shared> shared_;
  std::future<void> done_;
  std::thread thread_;
};

// ---- beginning and end ------------------------------------------------------------------------------------------

bool device_side::wanted(const config& settings) {
  return settings.jobs.gpu || !settings.jobs.programs.empty();
}

result<void> device_side::check(const config& settings, const arena::geometry& shape) {
  if (!wanted(settings)) return {};
  if (shape.slot_bytes > std::numeric_limits<std::uint32_t>::max()) {
    return refuse(
        errc::config,
        "slots of {} are too large for a pool with a GPU owner: set [loader] slot_bytes below 4 GiB",
        bytes_for_people(shape.slot_bytes));
  }
  return gpu_owner::check_programs(settings.jobs.programs);
}

result<std::unique_ptr<device_side>> device_side::make(actors::actor_system& system, process::io_thread& io,
                                                       deps deps) {
  std::shared_ptr<device::device> device;
  if (deps.settings->gpu.placement == placement_rule::embedded) {
    auto made = device::make_device(deps.settings->gpu.device);
    if (!made) return tl::unexpected(std::move(made.error()));
    device = std::move(*made);
  }
  return std::make_unique<device_side>(system, io, std::move(deps), std::move(device));
}

device_side::device_side(actors::actor_system& system, process::io_thread& io, deps deps,
                         std::shared_ptr<device::device> device)
    : owner_reports({deps.settings, device == nullptr, deps.board, deps.ending, deps.tell}),
      deps_(std::move(deps)),
      device_(std::move(device)) {
  if (device_) {
    spawn_owner(system);
  } else {
    spawn_keeper(system, io);
  }
}

device_side::~device_side() {
  close();
}

void device_side::spawn_owner(actors::actor_system& system) {
  home_ = std::make_shared<batch_home>("result", "pool");
  auto all = std::make_shared<program_thread::shared>();
  buffers_ =
      std::make_shared<lent_buffers>(home_, deps_.settings->gpu.buffers, [weak = std::weak_ptr(all)] {
        const auto alive = weak.lock();
        if (!alive) return;
        const std::lock_guard hold(alive->mutex);
        if (alive->pool != nullptr) alive->pool->to_scheduler(decide_jobs{});
      });
  all->device = device_;
  all->home = home_;
  all->programs = deps_.settings->jobs.programs;
  all->pool = this;
  gpu_owner::owner_deps owner;
  owner.device = device_;
  owner.consumer = all->consumer;
  owner.listener = this;
  owner_ = gpu_owner::spawn_gpu_owner(system, std::move(owner));
  home_->open(
      device_,
      [owner = owner_, consumer = all->consumer](std::uint32_t buffer) {
        if (consumer->give_back(buffer)) actors::tell(owner, gpu_owner::buffers_released{});
      },
      deps_.settings->gpu.buffers);
  programs_ = std::make_unique<program_thread>(std::move(all));
}

void device_side::spawn_keeper(actors::actor_system& system, process::io_thread& io) {
  process_ = std::make_shared<supervisor::owner_process>(io, deps_.fds);
  supervisor::keeper_deps keeper;
  keeper.settings = *deps_.settings;
  keeper.flight_page = deps_.shape.partitions;
  keeper.process = process_;
  keeper.flights = deps_.flights;
  keeper.listener = this;
  keeper.jobs = this;
  const auto actor = supervisor::spawn_owner_keeper(system, std::move(keeper));
  owner_ = actor;
  process_->report_to({actor, deps_.logs});
}

void device_side::open(job_scheduler_actor scheduler) {
  {
    const std::lock_guard hold(mutex_);
    scheduler_ = std::move(scheduler);
  }
  actors::tell(owner_, gpu_owner::open_device{});
  actors::tell(owner_, gpu_owner::prepare_device{std::make_shared<const device::transfer_plan>(
                                                     device::plan_of_results(deps_.shape.slot_bytes)),
                                                 deps_.shape, deps_.settings->gpu.buffers, true});
}

void device_side::close() {
  {
    const std::lock_guard hold(mutex_);
    if (std::exchange(closed_, true)) return;
    scheduler_ = job_scheduler_actor();
  }
  if (programs_) programs_->stop();
  if (home_) home_->close();
  if (process_) {
    deps_.ending->owner_told(false, std::chrono::steady_clock::now());
    actors::tell(owner_, gpu_owner::close_device{false, false, deps_.ending->shares().owner});
    static_cast<void>(deps_.ending->wait_for_owner());
    process_->shut_down();
  }
  actors::tell(owner_, gpu_owner::close_device{});
  owner_ = gpu_owner::gpu_owner_actor();
}

// ---- news of the owner ------------------------------------------------------------------------------------------

void device_side::failed(const failure& why) {
  {
    const std::lock_guard hold(mutex_);
    if (std::exchange(failed_, true) || closed_) return;
  }
  log::error("gpu", "jobs can no longer use the device: {}", why.message);
  record_failure(why);
  to_scheduler(device_failed{why});
}

/// The slot stays occupied until the job is answered.
void device_side::slots_released(std::vector<std::uint64_t> /*uploads*/) {}

void device_side::jobs_answered(std::vector<device_answer> answers) {
  bool first = false;
  for (device_answer& one : answers) first |= answers_->add(std::move(one));
  if (first) to_scheduler(device_answered{answers_});
}

void device_side::uploads_lost(device_lost loss) {
  to_scheduler(std::move(loss));
}

}  // namespace penstock::jobs
