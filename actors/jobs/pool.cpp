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
  // In a forked child there are no threads to join, and the workers belong to the parent: leak the body on
  // purpose.
  static_cast<void>(new std::shared_ptr<body>(std::move(body_)));
}

Pool::body& Pool::held() const {
  if (body_->process().left()) {
    throw error({errc::usage,
                 fmt::format("this Pool belongs to process {}, from which this one was forked",
                             body_->process().pid()),
                 0});
  }
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
void Pool::stop(std::optional<std::chrono::milliseconds> at_most) noexcept {
  if (!body_->process().left()) body_->stop(at_most);
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
pool_statistics Pool::statistics() const {
  return held().statistics();
}
session_status Pool::status() const {
  return held().status();
}
run_report Pool::report() const {
  return held().report();
}

// ---- mappings ---------------------------------------------------------------------------------------------

/// Takes an input only when there is room: the number of jobs in flight is bounded whichever side is slower.
struct Pool::Mapping::body {
  // Ended jobs, for the thread that waits in next(). Shared with the jobs' callbacks, which may outlive the
  // mapping.
  struct mailbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::deque<item> ended;
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
    while (!exhausted && under_way < ahead) {
      if (!next_input) next_input = inputs();
      if (!next_input) {
        exhausted = true;
        return;
      }
      // With jobs in flight, do not block here: next() waits for one of them. With none, wait for the pool's
      // queue.
      std::optional<Job> job;
      if (under_way > 0) {
        job = pool->try_submit(function, *next_input, options);
        if (!job) return;
      } else {
        job = pool->submit(function, *next_input, options, std::chrono::hours(24));
      }
      next_input.reset();
      ++under_way;
      const item made{index++, *job};
      if (ordered) {
        in_order.push_back(made);
      } else {
        job->then([box = box, made](const Job&) {
          const std::lock_guard hold(box->mutex);
          box->ended.push_back(made);
          box->arrived.notify_one();
        });
        running.emplace(made.index, made.job);
      }
    }
  }

  std::optional<item> next() {
    fill();
    if (under_way == 0) return std::nullopt;
    std::optional<item> done;
    if (ordered) {
      done = std::move(in_order.front());
      in_order.pop_front();
      while (!done->job.wait_for(std::chrono::hours(24))) {
      }
    } else {
      std::unique_lock hold(box->mutex);
      box->arrived.wait(hold, [this] { return !box->ended.empty(); });
      done = std::move(box->ended.front());
      box->ended.pop_front();
      running.erase(done->index);
    }
    --under_way;
    return done;
  }

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
  std::optional<Argument> next_input;  // taken from `inputs` and not accepted yet
  std::uint64_t index = 0;
  std::size_t under_way = 0;
  bool exhausted = false;
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
  if (!body_) throw error({errc::usage, "this Mapping was moved from", 0});
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
