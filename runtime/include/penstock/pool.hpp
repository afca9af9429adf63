// A pool of worker processes that run functions, which no job can break: a worker that dies is replaced, what it was
// at is tried again elsewhere, and only a job that keeps killing workers fails, by name (semantics 43-49).
#pragma once

#include <penstock/config.hpp>
#include <penstock/error.hpp>
#include <penstock/event.hpp>
#include <penstock/export.hpp>
#include <penstock/report.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

namespace jobs {
class job_record;
class kept_result;
}  // namespace jobs

/// How a job ended (semantics 43).
enum class job_status : std::uint8_t {
  ok,
  exception,  ///< the function threw, or there is no such function
  poisoned,   ///< it killed every worker that tried it; `causes` has each death
  timed_out,
  cancelled,
  worker_lost,  ///< not idempotent, and its worker died while it ran
  too_large,    ///< its argument or its result does not fit
  device,       ///< its device program failed
};
PENSTOCK_API const char* name_of(job_status status) noexcept;

/// Why a job has no result.
struct job_failure {
  job_status status = job_status::exception;
  std::string type{};                 ///< of an exception: its type
  std::string text{};                 ///< one sentence
  std::string traceback{};            ///< of an exception, if it brought one
  std::vector<std::string> causes{};  ///< deaths of workers charged to it, oldest first
  std::uint32_t attempts = 0;         ///< how often it was begun
};

/// What Job::get() throws when the job has no result. code() is errc::job_failed.
class PENSTOCK_API job_error : public error {
 public:
  job_error(std::uint64_t job, job_failure why);
  ~job_error() override;
  [[nodiscard]] const job_failure& why() const noexcept { return why_; }
  [[nodiscard]] job_status status() const noexcept { return why_.status; }

 private:
  job_failure why_;
};

/// Argument bytes of a job. They are needed until the job has ended, since it may have to be tried again.
class PENSTOCK_API Argument {
 public:
  Argument() = default;
  Argument(std::span<const std::byte> bytes);  ///< copies
  Argument(std::string_view text);             ///< copies
  Argument(const char* text) : Argument(std::string_view(text)) {}
  Argument(const std::string& text) : Argument(std::string_view(text)) {}
  Argument(std::string&& text);              ///< takes
  Argument(std::vector<std::byte>&& bytes);  ///< takes
  /// Copies nothing: `bytes` stay as they are until `keep` is dropped, on any thread.
  static Argument borrowed(std::span<const std::byte> bytes, std::shared_ptr<const void> keep);

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<const void> keep_;
  std::span<const std::byte> bytes_;
};

struct job_options {
  std::optional<std::chrono::nanoseconds> timeout{};  ///< of one run; none: [jobs] timeout
  std::optional<bool> idempotent{};                   ///< none: [jobs] idempotent
  std::optional<bool> fresh{};                        ///< none: [jobs] fresh
};

/// A result: a view into the arena, or a copy once slots run low (semantics 45). Move-only; gives its memory back when
/// destroyed. May outlive the Pool: what lies in the arena is copied when the pool ends.
class PENSTOCK_API Result {
 public:
  Result() noexcept;
  Result(Result&&) noexcept;
  Result& operator=(Result&&) noexcept;
  ~Result();
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] std::string_view text() const;

 private:
  friend class Job;
  explicit Result(std::shared_ptr<jobs::kept_result> held) noexcept;
  std::shared_ptr<jobs::kept_result> held_;
};

/// One job in a pool; a handle that can be copied, and used from any thread. Dropping it does not cancel the job.
class PENSTOCK_API Job {
 public:
  Job() noexcept = default;
  [[nodiscard]] std::uint64_t number() const;  ///< from 1, in the order of submission
  /// Waits until the job has ended. Throws job_error; error (errc::usage) the second time (a result is taken once) or
  /// on a Job that was default-constructed.
  Result get();
  /// True: it has ended.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds at_most) const;
  [[nodiscard]] bool done() const { return wait_for(std::chrono::nanoseconds(0)); }
  /// Why it has no result; nothing as long as it has not ended, and if it has one. Does not wait.
  [[nodiscard]] std::optional<job_failure> why() const;
  /// How often it was begun, once it has ended.
  [[nodiscard]] std::uint32_t attempts() const;
  /// Ends the job: one that waits is removed, a running one loses its worker, which is replaced. False: it had ended
  /// already. Does not wait.
  bool cancel();
  /// Removes the job if it has not begun; leaves it alone if it has. What Python calls Future.cancel().
  bool cancel_if_waiting();
  /// cancel() without the two seconds in which an aborted worker may write its stack.
  bool kill();
  /// Calls it once, when the job has ended, on the pool's callback thread (at once there if it has ended already). It
  /// may submit, cancel and take the result; it must not destroy the pool (errc::usage).
  void then(std::function<void(Job)> callback);

 private:
  friend struct job_access;
  std::shared_ptr<jobs::job_record> record_;
};

struct pool_options {
  bool control_socket = true;  ///< let `penstock status` and friends attach
  event_callback on_event{};
};

/// Any thread may call anything, but one alone destroys it. The rules of Session hold: no signal handler, no waitpid
/// of others' children, unusable after fork.
class PENSTOCK_API Pool {
 public:
  /// Checks the config ([jobs], [loader], [supervisor], [log], name; [dataset] and [sampler] play no part) and starts
  /// the workers. [loader] command is the worker program (job.hpp). Throws error (errc::config).
  explicit Pool(config settings, pool_options options = {});
  /// Cancels what has not ended and ends everything within half a second. close() first to let jobs finish.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Queues a job. Waits while [jobs] queue or memory is full, at most `patience`. Throws error: errc::timed_out then;
  /// errc::stopped once the pool ends; what ended the pool if it failed; errc::out_of_memory for an argument beyond
  /// [jobs] memory.
  Job submit(std::string_view function, Argument argument, job_options options = {},
             std::chrono::nanoseconds patience = std::chrono::hours(24));
  /// The same without waiting: nothing when the queue is full.
  std::optional<Job> try_submit(std::string_view function, Argument argument, job_options options = {});

  /// Where map() takes its arguments from, one at a time, on the thread that takes results; nothing ends it.
  using source = std::function<std::optional<Argument>()>;
  class Mapping;
  /// Results in the order of inputs. At most `ahead` jobs are under way (0: [jobs] queue).
  Mapping map(std::string_view function, source inputs, job_options options = {}, std::size_t ahead = 0);
  /// Results as they come.
  Mapping map_unordered(std::string_view function, source inputs, job_options options = {},
                        std::size_t ahead = 0);

  /// Takes no more jobs, and waits for those that are there. False: not all ended in time, and nothing was cancelled.
  bool finish(std::chrono::nanoseconds at_most);
  /// Cancels what has not ended and ends the workers, at most [supervisor] shutdown. Idempotent.
  void close() noexcept;
  void stop(std::optional<std::chrono::milliseconds> at_most = std::nullopt) noexcept;

  void pause();
  void resume();
  void scale(std::uint32_t workers);
  void restart(std::uint32_t worker);
  void drain(std::uint32_t worker);

  [[nodiscard]] pool_statistics statistics() const;
  [[nodiscard]] session_status status() const;
  [[nodiscard]] run_report report() const;

 private:
  class body;
  [[nodiscard]] body& held() const;
  std::shared_ptr<body> body_;
};

/// One pass over the outcomes of map(); on one thread at a time. Destroying it cancels what is under way.
class PENSTOCK_API Pool::Mapping {
 public:
  struct item {
    std::uint64_t index = 0;  ///< of the input
    Job job;                  ///< has ended
  };
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();
  /// Waits for the next one; nothing at the end.
  std::optional<item> next();

 private:
  friend class Pool;
  struct body;
  explicit Mapping(std::unique_ptr<body> made) noexcept;
  std::unique_ptr<body> body_;
};

}  // namespace penstock
