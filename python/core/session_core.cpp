#include "python/core/session_core.hpp"

#include <condition_variable>
#include <utility>

namespace penstock::python {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds called_every = 50ms;  // session_options::while_waiting

// Time limit for closing a session without stop(). Destroying a session has the same limit.
constexpr std::chrono::milliseconds end_of_closed = 500ms;

std::string for_people(std::chrono::nanoseconds time) {
  if (time % 1s == 0ns) return std::to_string(time / 1s) + " s";
  return std::to_string(time / 1ms) + " ms";
}

// Threads that free the memory of closed sessions after their last views; the process must not exit while
// they run.
struct freeing {
  std::mutex mutex;
  std::condition_variable changed;
  int threads = 0;
  bool leaving = false;

  static freeing& get() {
    static auto* all = new freeing;  // never destroyed: a thread may outlive main()
    return *all;
  }
};

/// Closed sessions whose memory is kept alive by views.
struct outlived {
  std::mutex mutex;
  std::vector<std::weak_ptr<session_core>> sessions;

  static outlived& get() {
    static auto* all = new outlived;  // never destroyed, like freeing
    return *all;
  }
};

/// Text to add to an error about memory: which memory of closed sessions is kept by views. Empty if none is.
std::string kept_by_views() {
  outlived& all = outlived::get();
  const std::lock_guard hold(all.mutex);
  std::string text;
  for (const std::weak_ptr<session_core>& weak : all.sessions) {
    const auto closed = weak.lock();
    const std::string kept = closed ? closed->kept_by_views() : "";
    if (!kept.empty()) text += (text.empty() ? "" : "; ") + kept;
  }
  if (text.empty()) return text;
  return ". Memory of closed sessions cannot be freed, because the program still holds their tensors: " +
         text + ". Drop these tensors, or keep copies instead";
}

/// Calls `take`; an error about the GPU's memory also says which tensors of closed sessions hold some of it.
template <class Take>
std::optional<Batch> taken(Take&& take) {
  try {
    return take();
  } catch (const error& refused) {
    if (refused.code() != errc::device_out_of_memory) throw;
    const std::string kept = kept_by_views();
    if (kept.empty()) throw;
    throw error({refused.code(), refused.what() + kept, refused.os_code()});
  }
}

}  // namespace

void leave_the_rest_to_the_exit() {
  freeing& all = freeing::get();
  std::unique_lock hold(all.mutex);
  all.leaving = true;
  all.changed.wait_for(hold, 30s, [&] { return all.threads == 0; });
}

std::shared_ptr<session_core> session_core::make(config settings, core_options options) {
  return std::shared_ptr<session_core>(new session_core(std::move(settings), std::move(options)));
}

session_core::session_core(config settings, core_options options)
    : settings_(settings),
      look_after_signals_(std::move(options.look_after_signals)),
      blocks_(std::make_shared<block_pool>(2)) {
  session_options given;
  given.digests = options.digests;
  given.batches = options.batches;
  given.state = options.state;
  given.control_socket = options.control_socket;
  given.join_group = options.join_group;
  given.config_file = options.config_file;
  given.on_event = std::move(options.on_event);
  given.while_waiting = [this] { while_waiting(); };
  session_ = std::make_unique<Session>(std::move(settings), std::move(given));
}

/// Allows one thread in next() at a time. Completes a close() that was called in the meantime from another
/// thread or a signal handler.
class session_core::taking {
 public:
  explicit taking(session_core& home) : home_(home) {
    if (home_.closing_) throw error({errc::usage, "this session is closed", 0});
    // Also refused: a signal handler that takes a batch while this thread waits for one.
    if (home_.taker_ == std::this_thread::get_id() || !home_.taking_.try_lock())
      throw error({errc::usage,
                   home_.closing_ ? "this session is closed"
                                  : "two callers are taking batches from one session at the same time",
                   0});
    home_.taker_ = std::this_thread::get_id();
  }
  ~taking() {
    home_.taker_ = std::thread::id();
    home_.taking_.unlock();
    if (home_.closing_ && home_.lent() == 0) home_.free_memory();
  }
  taking(const taking&) = delete;
  taking& operator=(const taking&) = delete;

 private:
  session_core& home_;
};

session_core::~session_core() {
  close();
  freeing& all = freeing::get();
  const std::lock_guard hold(all.mutex);
  if (all.leaving && !freed_) static_cast<void>(session_.release());
}

std::shared_ptr<lease> session_core::next() {
  const taking only(*this);
  release_returned();
  return lend(taken([&] { return session_->next(); }));
}

std::shared_ptr<lease> session_core::next_of(epoch& of) {
  const taking only(*this);
  release_returned();
  return lend(taken([&] { return of.next(); }));
}

std::shared_ptr<lease> session_core::lend(std::optional<Batch> batch) {
  all_lent_for_.reset();
  if (!batch) return nullptr;
  const std::span<const tensor_view> tensors = batch->tensors();
  if (tensors.empty() || tensors.front().on_host) return std::make_shared<lease>(std::move(*batch), *blocks_);
  auto lent = std::make_shared<lease>(
      std::move(*batch), [home = shared_from_this()](Batch used, std::vector<stream_handle> streams) {
        home->returned(std::move(used), std::move(streams));
      });
  const std::lock_guard hold(mutex_);
  ++lent_;
  std::erase_if(leases_, [](const std::weak_ptr<lease>& old) { return old.expired(); });
  leases_.push_back(lent);
  return lent;
}

/// Called on any thread when a lease's last view is destroyed: no CUDA call, no GIL.
void session_core::returned(Batch batch, std::vector<stream_handle> streams) {
  bool last_after_close = false;
  {
    const std::lock_guard hold(mutex_);
    returned_.push_back({std::move(batch), std::move(streams)});
    --lent_;
    last_after_close = lent_ == 0 && closing_ && !freed_;
  }
  // Freeing waits for threads and makes CUDA calls; the thread that dropped the last view must not do that.
  if (!last_after_close) return;
  freeing& all = freeing::get();
  const std::lock_guard hold(all.mutex);
  if (all.leaving) return;
  ++all.threads;
  std::thread([home = shared_from_this()]() mutable {
    home->free_memory();
    home.reset();
    freeing& here = freeing::get();
    const std::lock_guard done(here.mutex);
    --here.threads;
    here.changed.notify_all();
  }).detach();
}

/// Returns buffers to the ring after the work of the streams that used them.
void session_core::release_returned() {
  std::vector<used_batch> used;
  {
    const std::lock_guard hold(mutex_);
    used.swap(returned_);
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    // No stream was recorded: the default streams of torch and CuPy are ordered with the legacy default
    // stream.
    if (used[i].streams.empty()) used[i].streams.push_back({});
    try {
      used[i].batch.release_after(used[i].streams);
    } catch (const error& refused) {
      if (refused.code() != errc::usage) throw;
      const std::lock_guard hold(mutex_);  // errc::usage: a stream is being captured, so try again later
      for (; i < used.size(); ++i) returned_.push_back(std::move(used[i]));
      return;
    }
  }
}

void session_core::while_waiting() {
  if (look_after_signals_) look_after_signals_();
  release_returned();
  const auto now = std::chrono::steady_clock::now();
  const auto since = std::chrono::nanoseconds(now - std::exchange(looked_, now));
  const std::uint32_t held = lent();
  if (held < settings_.gpu.buffers) {
    all_lent_for_.reset();
    return;
  }
  // A longer gap means that this process was suspended, including the thread that should drop a batch.
  all_lent_for_ = all_lent_for_ ? *all_lent_for_ + std::min(since, 2 * called_every) : std::chrono::nanoseconds(0);
  const std::chrono::nanoseconds at_most = settings_.gpu.hold_timeout;
  if (*all_lent_for_ < at_most) return;
  all_lent_for_.reset();
  throw error({errc::usage,
               "no batch can be delivered: this program has held all " + std::to_string(held) +
                   " buffers of the GPU for " + for_people(at_most) +
                   " ([gpu] hold_timeout). Drop batches and tensors that are no longer needed, copy those "
                   "you keep, raise [gpu] buffers, or install torch, so that penstock can copy the batches "
                   "that you keep",
               0});
}

std::uint32_t session_core::lent() const {
  const std::lock_guard hold(mutex_);
  return lent_;
}

void session_core::stop(std::optional<std::chrono::milliseconds> at_most, const std::string& by) noexcept {
  stopped_ = true;
  session_->stop(at_most, by);
}

void session_core::close(const std::string& by, bool fails) noexcept {
  if (closing_.exchange(true)) return;
  if (!stopped_) fails ? session_->fail(by, end_of_closed) : session_->stop(end_of_closed, by);  // wakes a thread that waits for a batch
  std::vector<std::weak_ptr<lease>> leases;
  {
    const std::lock_guard hold(mutex_);
    leases = leases_;
  }
  // Batches without a view do not keep the device, even if the program still holds them.
  for (const std::weak_ptr<lease>& weak : leases) {
    if (const auto held = weak.lock()) held->release_unless_viewed();
  }
  if (lent() > 0) {  // the last view frees the memory: returned()
    session_->retire();
    outlived& all = outlived::get();
    const std::lock_guard hold(all.mutex);
    std::erase_if(all.sessions, [](const std::weak_ptr<session_core>& old) { return old.expired(); });
    all.sessions.push_back(weak_from_this());
    return;
  }
  // called from a signal handler: the interrupted call completes it
  if (taker_ == std::this_thread::get_id()) return;
  free_memory();
}

std::string session_core::kept_by_views() const {
  std::vector<std::weak_ptr<lease>> leases;
  {
    const std::lock_guard hold(mutex_);
    if (lent_ == 0) return {};
    leases = leases_;
  }
  std::string text;
  for (const std::weak_ptr<lease>& weak : leases) {
    const auto held = weak.lock();
    if (!held || !held->is_viewed()) continue;
    std::string names;
    for (const leased_tensor& t : held->tensors) names += (names.empty() ? "" : ", ") + t.name;
    text += (text.empty() ? "" : "; ") + names + " of batch " + std::to_string(held->sequence) + ", epoch " +
            std::to_string(held->epoch) + ", session '" + settings_.name + "'";
  }
  return text;
}

void session_core::free_memory() noexcept {
  const std::lock_guard only(taking_);
  {
    const std::lock_guard hold(mutex_);
    if (std::exchange(freed_, true)) return;
  }
  try {
    release_returned();
  } catch (const error&) {  // a poisoned device: closing frees what can be freed
  }
  session_->close();
}

}  // namespace penstock::python
