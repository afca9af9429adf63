// The public API of a pool.
#include "actors/jobs/pool_body.hpp"

#include <deque>

namespace penstock {
Pool::Pool(config settings, pool_options options)
    : body_(std::make_shared<body>(std::move(settings), std::move(options))) {
  body_->start();
}

Pool::~Pool() {
  if (!body_->process().left()) {
    body_->close();
    return;
  }
  // A forked child has no threads to join, and the workers belong to the parent: leak the body on purpose.
  static_cast<void>(new std::shared_ptr<body>(std::move(body_)));
}

Pool::body& Pool::held() const {
  body_->process().require("Pool");
  return *body_;
}

Job Pool::submit(std::string_view function, Argument argument, job_options options,
                 std::chrono::nanoseconds patience) {
  return held().submit(function, std::move(argument), options, patience);
}
std::optional<Job> Pool::try_submit(std::string_view function, Argument argument, job_options options) {
  return held().try_submit(function, std::move(argument), options);
}
bool Pool::finish(std::chrono::nanoseconds at_most) {
  return held().finish(at_most);
}
void Pool::stop(std::optional<std::chrono::milliseconds> at_most, std::string_view by) noexcept {
  if (!body_->process().left()) body_->stop(at_most, by);
}
void Pool::fail(std::string_view why, std::optional<std::chrono::milliseconds> at_most) noexcept {
  if (!body_->process().left()) body_->fail(why, at_most);
}
void Pool::await_batch(std::uint64_t job, batch_mark doing) noexcept {
  if (!body_->process().left()) body_->await_batch(job, std::move(doing));
}
void Pool::batch_came() noexcept {
  if (!body_->process().left()) body_->batch_came();
}
void Pool::pass_is_at(std::uint64_t epoch, std::uint64_t done, std::uint64_t expected) noexcept {
  if (!body_->process().left()) body_->pass_is_at(epoch, done, expected);
}
void Pool::dataset_has(std::uint64_t samples) noexcept {
  if (!body_->process().left()) body_->dataset_has(samples);
}
void Pool::batch_lost(lost_batch lost) noexcept {
  if (!body_->process().left()) body_->batch_lost(std::move(lost));
}
void Pool::batch_was_slow(const slow_batch& batch) noexcept {
  if (!body_->process().left()) body_->batch_was_slow(batch);
}
void Pool::batch_taken(std::uint64_t epoch, std::uint64_t samples, std::uint64_t left_out) noexcept {
  if (!body_->process().left()) body_->batch_taken(epoch, samples, left_out);
}
void Pool::sample_failed(const loader_sample& which, std::string_view error, std::string text, std::string_view traceback) noexcept {
  if (!body_->process().left()) body_->sample_failed(which, error, std::move(text), traceback);
}
void Pool::sample_quarantined(const loader_sample& which, std::vector<std::string> causes, bool known) noexcept {
  if (!body_->process().left()) body_->sample_quarantined(which, std::move(causes), known);
}
void Pool::warn(std::string_view text) noexcept {
  if (!body_->process().left()) body_->warn(text);
}
void Pool::input_raised(std::uint64_t job, std::uint64_t index, std::string_view error, std::string_view traceback) noexcept {
  if (!body_->process().left()) body_->input_raised(job, index, error, traceback);
}
void Pool::judge(std::string_view function, job_verdict verdict) noexcept {
  if (!body_->process().left()) body_->judge(function, verdict);
}
void Pool::close() noexcept {
  if (!body_->process().left()) body_->close();
}
void Pool::pause() {
  held().pause(true);
}
void Pool::resume() {
  held().pause(false);
}
void Pool::scale(std::uint32_t workers) {
  held().scale(workers);
}
void Pool::restart(std::uint32_t worker) {
  held().restart(worker);
}
void Pool::drain(std::uint32_t worker) {
  held().drain(worker);
}
void Pool::publish(std::uint64_t number, int file) {
  held().publish(number, file);
}
void Pool::withdraw(std::uint64_t number) noexcept {
  if (!body_->process().left()) body_->withdraw(number);
}
pool_statistics Pool::statistics() const {
  return *held().status().jobs;
}
session_status Pool::status() const {
  return held().status();
}
run_report Pool::report() const {
  return held().report();
}

// ---- mappings ---------------------------------------------------------------------------------------------

/// Takes an input only when there is room: this bounds the number of jobs in flight, whichever side is
/// slower.
struct Pool::Mapping::body {
  // Ended jobs, for the thread that waits in next(). Shared with the jobs' callbacks, which may outlive the
  // mapping.
  struct mailbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::deque<item> ended;

    /// Waits for an ended job. Throws error (errc::usage) when `in_vain` gives a reason why none will come.
    item take(const std::function<std::optional<std::string>()>& in_vain) {
      std::unique_lock hold(mutex);
      while (!arrived.wait_for(hold, jobs::look_every, [this] { return !ended.empty(); })) {
        if (const auto why = in_vain())
          throw error({errc::usage, "the next outcome of a mapping: " + *why, 0});
      }
      item first = std::move(ended.front());
      ended.pop_front();
      return first;
    }
  };

  body(std::shared_ptr<Pool::body> pool_, std::string function_, source inputs_, job_options options_,
       std::size_t ahead_, bool ordered_)
      : pool(std::move(pool_)),
        function(std::move(function_)),
        inputs(std::move(inputs_)),
        options(options_),
        ahead(ahead_),
        ordered(ordered_) {}

  void fill() {
    while (!exhausted && !refused && under_way < ahead) {
      if (!next_input) next_input = inputs();
      if (!next_input) {
        exhausted = true;
        return;
      }
      const std::optional<Job> job = begin();
      if (!job) return;
      next_input.reset();
      ++under_way;
      const item made{index++, *job};
      if (ordered) {
        in_order.push_back(made);
      } else {
        job_access::record_of(*job)->watch([box = box, made] {
          const std::lock_guard hold(box->mutex);
          box->ended.push_back(made);
          box->arrived.notify_one();
        });
        running.emplace(made.index, made.job);
      }
    }
  }

  /// Submits a job for the next input. Empty: there is no room while other jobs are in flight, or the pool
  /// accepts no more jobs.
  std::optional<Job> begin() {
    try {
      // With jobs in flight, do not block here: next() waits for one of them. With none, wait for the pool's
      // queue.
      if (under_way > 0) return pool->try_submit(function, *next_input, options);
      return pool->submit(function, *next_input, options, std::chrono::hours(24));
    } catch (const error& e) {
      if (e.code() == errc::usage || e.code() == errc::timed_out) throw;
      if (e.code() == errc::out_of_memory) return pool->refuse_job(function, options, e.what());
      refused = e.as_failure();
      return std::nullopt;
    }
  }

  std::optional<item> next() {
    fill();
    if (under_way == 0 && refused) throw error(*refused);
    if (under_way == 0) return std::nullopt;
    std::optional<item> done;
    if (ordered) {
      job_access::record_of(in_order.front().job)->wait();
      done = std::move(in_order.front());
      in_order.pop_front();
    } else {
      done = box->take([this] { return static_cast<const jobs::job_control&>(*pool).waits_for_itself(); });
      running.erase(done->index);
    }
    --under_way;
    job_access::record_of(done->job)->hand_over();
    return done;
  }

  /// Has no effect in a forked child.
  void cancel() {
    for (item& one : in_order) one.job.cancel();
    for (auto& [number, job] : running) job.cancel();
  }

  const std::shared_ptr<Pool::body> pool;
  const std::string function;
  const source inputs;
  const job_options options;
  const std::size_t ahead;
  const bool ordered;
  std::optional<Argument> next_input;  // taken from `inputs`, not accepted yet
  std::uint64_t index = 0;
  std::size_t under_way = 0;
  bool exhausted = false;
  std::optional<failure> refused;  // why the pool accepts no more jobs
  std::deque<item> in_order;
  std::map<std::uint64_t, Job> running;
  const std::shared_ptr<mailbox> box = std::make_shared<mailbox>();
};

Pool::Mapping::Mapping(std::unique_ptr<body> made) noexcept : body_(std::move(made)) {}
Pool::Mapping::Mapping(Mapping&&) noexcept = default;
Pool::Mapping& Pool::Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  if (body_) body_->cancel();
  body_ = std::move(other.body_);
  return *this;
}
Pool::Mapping::~Mapping() {
  if (body_) body_->cancel();
}

std::optional<Pool::Mapping::item> Pool::Mapping::next() {
  if (!body_) throw error({errc::usage, "this Mapping was moved to another object", 0});
  body_->pool->process().require("Mapping");
  return body_->next();
}

Pool::Mapping Pool::map(std::string_view function, source inputs, job_options options, std::size_t ahead) {
  const std::size_t most = ahead > 0 ? ahead : held().settings().jobs.queue;
  return Mapping(
      std::make_unique<Mapping::body>(body_, std::string(function), std::move(inputs), options, most, true));
}
Pool::Mapping Pool::map_unordered(std::string_view function, source inputs, job_options options,
                                  std::size_t ahead) {
  const std::size_t most = ahead > 0 ? ahead : held().settings().jobs.queue;
  return Mapping(
      std::make_unique<Mapping::body>(body_, std::string(function), std::move(inputs), options, most, false));
}

}  // namespace penstock
