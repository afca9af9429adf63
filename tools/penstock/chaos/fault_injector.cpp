#include "tools/penstock/chaos/fault_injector.hpp"

#include "runtime/process/fault_injection.hpp"
#include "runtime/process/process_facts.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::array names{"kill", "segv", "abort", "stop", "hang", "exit", "leak", "owner-kill"};
constexpr auto nobody_there = 5ms;  // how soon to try again if all workers are down
constexpr std::uint64_t leak_margin_bytes = 48U << 20U;

double seconds(std::chrono::system_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

std::uint32_t leak_megabytes(pid_t pid, std::uint64_t limit) {
  const auto facts = process::look_at(pid);
  const std::uint64_t used = facts ? std::min(facts->rss_anon_bytes, limit) : 0;
  return static_cast<std::uint32_t>((limit - used + leak_margin_bytes) >> 20U);
}

bool strike(chaos_kind kind, pid_t pid, std::uint64_t memory_max_bytes) {
  switch (kind) {
    case chaos_kind::owner_kill:
    case chaos_kind::kill: return process::signal_child(pid, SIGKILL);
    case chaos_kind::segv: return process::signal_child(pid, SIGSEGV);
    case chaos_kind::abort: return process::signal_child(pid, SIGABRT);
    case chaos_kind::stop: return process::signal_child(pid, SIGSTOP);
    case chaos_kind::hang: return process::inject_fault(pid, process::injected_fault::hang);
    case chaos_kind::exit: return process::inject_fault(pid, process::injected_fault::exit);
    case chaos_kind::leak:
      return process::inject_fault(pid, process::injected_fault::leak, leak_megabytes(pid, memory_max_bytes));
  }
  return false;
}

}  // namespace

const char* name_of(chaos_kind kind) noexcept {
  return names.at(static_cast<std::size_t>(kind));
}

std::optional<chaos_kind> chaos_kind_of(const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<chaos_kind>(found - names.begin());
}

fault_injector::fault_injector(fault_injector_settings settings)
    : settings_(std::move(settings)), random_(settings_.seed) {
  thread_ = std::thread([this] { run(); });
}

fault_injector::~fault_injector() {
  {
    const std::lock_guard hold(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void fault_injector::attack(Session& session, std::uint64_t memory_max_bytes) {
  const std::lock_guard hold(mutex_);
  session_ = &session;
  memory_max_bytes_ = memory_max_bytes;
  first_of_session_ = faults_.size();
  owner_.reset();
  victims_.emplace(settings_.intensity, settings_.max_attempts);
  wake_.notify_all();
}

void fault_injector::leave() {
  const std::lock_guard hold(mutex_);
  session_ = nullptr;
}

void fault_injector::hear(const event& e) {
  const std::lock_guard hold(mutex_);
  switch (e.kind) {
    case event_kind::batch_recovered: return hear_of_batch(e);
    case event_kind::device_lost:
    case event_kind::device_opened: return hear_of_owner(e);
    default: return hear_of_worker(e);
  }
}

/// Notes when a batch was loaded again, for the latest worker
/// death that has been detected. Only the first such batch counts.
void fault_injector::hear_of_batch(const event& e) {
  for (std::size_t i = faults_.size(); i-- > first_of_session_;) {
    chaos_fault& f = faults_[i];
    if (f.kind == chaos_kind::owner_kill || !f.detected_seconds) continue;
    if (!f.replayed_seconds) f.replayed_seconds = seconds(e.time - f.struck);
    return;
  }
}

void fault_injector::hear_of_owner(const event& e) {
  for (std::size_t i = first_of_session_; i < faults_.size(); ++i) {
    chaos_fault& f = faults_[i];
    if (f.kind != chaos_kind::owner_kill) continue;
    const double since = seconds(e.time - f.struck);
    if (e.kind == event_kind::device_lost && e.pid == f.pid && !f.detected_seconds)
      f.detected_seconds = since;
    if (e.kind == event_kind::device_opened && f.detected_seconds && !f.recovered_seconds)
      f.recovered_seconds = since;
  }
}

void fault_injector::hear_of_worker(const event& e) {
  if (e.kind == event_kind::worker_died && e.worker && victims_) victims_->worker_died(*e.worker, e.sample, e.time);
  for (std::size_t i = first_of_session_; i < faults_.size(); ++i) {
    chaos_fault& f = faults_[i];
    const double since = seconds(e.time - f.struck);
    if (since < 0 || f.kind == chaos_kind::owner_kill || f.worker != e.worker) continue;
    if (e.kind == event_kind::worker_died && f.incarnation == e.incarnation && !f.detected_seconds) {
      f.detected_seconds = since;
      if (e.death) f.cause = penstock::name_of(e.death->cause);
    }
    if (e.kind == event_kind::worker_ready && e.incarnation > f.incarnation && !f.recovered_seconds)
      f.recovered_seconds = since;
  }
}

void fault_injector::learn(const std::vector<owner_death_report>& deaths) {
  const std::lock_guard hold(mutex_);
  for (std::size_t i = first_of_session_; i < faults_.size(); ++i) {
    chaos_fault& f = faults_[i];
    const auto death = std::ranges::find(deaths, f.pid, &owner_death_report::pid);
    if (f.kind != chaos_kind::owner_kill || death == deaths.end()) continue;
    f.cause = penstock::name_of(death->cause);
    if (f.detected_seconds && death->recovered_seconds)
      f.replayed_seconds = *f.detected_seconds + *death->recovered_seconds;
  }
}

bool fault_injector::satisfied() const {
  const std::lock_guard hold(mutex_);
  if (settings_.faults && faults_.size() >= *settings_.faults) return true;
  return settings_.time && std::chrono::steady_clock::now() - begun_ >= *settings_.time;
}

std::vector<chaos_fault> fault_injector::faults() const {
  const std::lock_guard hold(mutex_);
  return faults_;
}

void fault_injector::run() {
  bool struck = true;
  while (true) {
    // Exponential waits: faults come in bursts, as in reality. Computed
    // from the raw bits, so every machine draws the same waits.
    const double uniform = static_cast<double>((random_() >> 11U) + 1) * 0x1.0p-53;
    const auto wait = struck ? std::chrono::duration_cast<nanoseconds>(
                                   std::chrono::duration<double>(-std::log(uniform) / settings_.rate))
                             : nanoseconds(nobody_there);
    {
      std::unique_lock hold(mutex_);
      wake_.wait(hold, [&] { return over_ || session_ != nullptr; });
      wake_.wait_for(hold, std::min<nanoseconds>(wait, 60s), [&] { return over_; });
      if (over_) return;
    }
    struck = satisfied() || strike_once();
  }
}

/// Counts an owner's batches from the moment it is first seen ready: by then its predecessor's work is
/// counted. A session's first owner was already working before the fault injector started.
void fault_injector::watch_owner(const session_status& now) {
  if (now.gpu_state != child_state::ready || (owner_ && owner_->restarts == now.gpu_restarts)) return;
  owner_ = owner_seen{now.gpu_restarts, now.gpu_restarts == 0 ? 0 : now.batches_delivered, false};
}

bool fault_injector::owner_may_be_struck(const session_status& now) const {
  if (now.gpu_state != child_state::ready || !now.gpu_pid || *now.gpu_pid == ::getpid()) return false;
  return owner_ && owner_->restarts == now.gpu_restarts && !owner_->struck &&
         now.batches_delivered > owner_->delivered;
}

bool fault_injector::may_be_struck(const worker_status& w) const {
  if (w.id >= settings_.places || w.state != child_state::ready || !w.pid) return false;
  const bool struck =
      std::any_of(faults_.begin() + static_cast<std::ptrdiff_t>(first_of_session_), faults_.end(),
                  [&](const chaos_fault& f) { return f.worker == w.id && f.incarnation == w.incarnation; });
  return !struck && victims_->may_be_struck(w.id, w.current_index, std::chrono::system_clock::now());
}

/// False if there is no victim now.
bool fault_injector::strike_once() {
  // Holding the lock is safe because status() never waits; leave() must not return in the middle of a fault.
  const std::lock_guard hold(mutex_);
  // A fault that is due between two runs hits the next run. Otherwise, short streams would get almost none.
  if (session_ == nullptr) return false;
  const session_status now = session_->status();
  if (now.outcome != run_outcome::running) return false;
  watch_owner(now);
  const chaos_kind kind = settings_.kinds[random_() % settings_.kinds.size()];
  chaos_fault fault;
  fault.kind = kind;
  if (kind == chaos_kind::owner_kill) {
    if (!owner_may_be_struck(now)) return false;
    fault.pid = *now.gpu_pid;
    owner_->struck = true;
  } else {
    std::vector<const worker_status*> victims;
    for (const worker_status& w : now.workers) {
      // Only a worker with a sample can hang: the others have no deadline to miss.
      if (kind == chaos_kind::hang && !w.current_sample) continue;
      if (may_be_struck(w)) victims.push_back(&w);
    }
    if (victims.empty()) return false;
    const worker_status& victim = *victims[random_() % victims.size()];
    fault.worker = victim.id;
    fault.incarnation = victim.incarnation;
    fault.pid = *victim.pid;
  }
  fault.struck = std::chrono::system_clock::now();
  if (strike(kind, fault.pid, memory_max_bytes_)) faults_.push_back(std::move(fault));
  return true;
}

}  // namespace penstock::cli
