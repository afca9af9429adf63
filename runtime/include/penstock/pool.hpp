// A pool of worker processes that run functions. No job can take the pool down: a worker that dies is replaced
// and its job is retried on another worker. Only a job that keeps killing workers fails, and reports name it
// (docs/semantics/jobs.md).
#pragma once

#include <penstock/config.hpp>
#include <penstock/error.hpp>
#include <penstock/event.hpp>
#include <penstock/export.hpp>
#include <penstock/report.hpp>
#include <penstock/stream.hpp>
#include <penstock/tensor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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

/// How a job ended (rule J1).
enum class job_status : std::uint8_t {
  ok,
  exception,  ///< the function threw, or there is no such function
  poisoned,   ///< the job killed every worker that tried it; `causes` has each death
  timed_out,
  cancelled,
  worker_lost,  ///< not idempotent, and its worker died while it ran
  too_large,    ///< its argument or its result does not fit, or it wrote past the end of its result
  device,       ///< its device program failed, or the device lacks memory or is gone
};
PENSTOCK_API const char* name_of(job_status status) noexcept;

/// Why a job failed.
struct job_failure {
  job_status status = job_status::exception;
  std::string type{};                 ///< the exception's type, if there was one
  std::string text{};                 ///< one sentence
  std::string traceback{};            ///< the exception's traceback, if it has one
  std::vector<std::string> causes{};  ///< deaths of workers, or of GPU owners, blamed on it, oldest first
  std::uint32_t attempts = 0;         ///< how many times it was started
  std::optional<std::chrono::nanoseconds> ran{};  ///< how long its last attempt ran; empty: never started
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

/// The argument of a job. Its bytes are kept until the job has ended, because it may have to be retried.
class PENSTOCK_API Argument {
 public:
  Argument() = default;
  Argument(std::span<const std::byte> bytes);  ///< copies
  Argument(std::string_view text);             ///< copies
  Argument(const char* text) : Argument(std::string_view(text)) {}
  Argument(const std::string& text) : Argument(std::string_view(text)) {}
  Argument(std::string&& text);              ///< takes
  Argument(std::vector<std::byte>&& bytes);  ///< takes
  /// Does not copy: `bytes` must stay valid and unchanged until `keep` is released, which may happen on any
  /// thread.
  static Argument borrowed(std::span<const std::byte> bytes, std::shared_ptr<const void> keep);

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<const void> keep_;
  std::span<const std::byte> bytes_;
};

struct job_options {
  std::optional<std::chrono::nanoseconds> timeout{};  ///< for one attempt; empty: [jobs] timeout
  std::optional<bool> idempotent{};                   ///< empty: [jobs] idempotent
  std::optional<bool> fresh{};                        ///< empty: [jobs] fresh
  /// The preferred worker, which has something that the job needs (a cache, an iterator). Empty: any worker.
  /// Another worker runs the job if this one takes no work for 10 s. The attempt that runs alone
  /// (in the sacrificial worker) ignores this preference. A number for which the pool has no worker
  /// is refused (errc::usage).
  std::optional<std::uint32_t> worker{};
  /// An urgent job starts before jobs that are not urgent, even if results have used up the memory, and
  /// submitting it does not wait. For jobs that other work waits for, such as the retry of a failed job.
  bool urgent = false;
  /// Hands the function's result to the GPU owner, which runs this device program on it ([jobs.programs]
  /// names it; job_program.hpp). The job's result is then the program's result. The function's result must
  /// fit its slot.
  std::string program{};
  /// Leaves the function's result in device memory, as the job's result: Result::tensor(). If `program` is set,
  /// it runs on that memory first, and the program's own result is dropped. Only in a pool with [jobs] gpu or
  /// programs, and an embedded owner.
  bool on_device = false;
  /// The number shown for the job in status, log and events, instead of Job::number(): `penstock map` gives the number of
  /// the input line. No two unfinished jobs may share it.
  std::optional<std::uint64_t> known_as{};
  /// Whether this job repeats one that has ended. If the program decides which jobs have succeeded
  /// (pool_options::judged) and has not decided about the ended job, the two count as one. In a pool that
  /// loads batches (of_batches), the batch counts as repeated because of a death.
  bool again = false;
  /// With `again`, in a pool that loads batches: the ended job, whose batch this one loads.
  std::optional<std::uint64_t> former{};
  /// With `again`, in a pool that loads batches: an earlier death has lost the batch, too, so it counts as repeated already.
  bool lost_before = false;
  /// How many attempts earlier jobs have made at the same work. Attempts of this job continue that count.
  std::uint32_t attempts_before = 0;
  /// How many inputs of the program the job has. If a job with several inputs kills its workers, it is not listed
  /// as poisoned: the program runs each input as a job of its own, and the job of the bad input is listed.
  std::uint32_t inputs = 1;
};

/// The program's decision about a job (pool_options::judged).
enum class job_verdict : std::uint8_t {
  ok,
  nonzero_exit,  ///< ok, although its command exited with a code other than 0
  failed,
};

/// A result: a view into the arena, a copy once slots run low (rule J11), or one of the [gpu] buffers if
/// job_options::on_device asked for it. Move-only; returns its memory when destroyed. May outlive the Pool:
/// when the pool ends, results in the arena are copied, and results on the device are lost: every call but
/// destruction then throws error (errc::usage).
class PENSTOCK_API Result {
 public:
  Result() noexcept;
  Result(Result&&) noexcept;
  Result& operator=(Result&&) noexcept;
  ~Result();
  /// The bytes in host memory. Throws error (errc::usage) if they are on a GPU: read_back() copies them.
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] std::string_view text() const;

  /// Frees the bytes. Until the Result is destroyed, it counts as this many bytes of [jobs] memory: the size of
  /// what the caller has built from it and keeps. Throws error (errc::usage) if on_device().
  void count_as(std::uint64_t bytes);

  [[nodiscard]] bool on_device() const;
  /// "result", uint8, [bytes], in device memory; 256-byte aligned. It is complete, so
  /// work queued on any stream sees it. Throws error (errc::usage) unless on_device().
  [[nodiscard]] tensor_view tensor() const;
  /// Copies the bytes to host memory, wherever they are, and waits for them.
  [[nodiscard]] std::vector<std::byte> read_back() const;
  /// Returns the buffer once the work now queued on `stream` is done. The destructor does the same on the
  /// legacy default stream. Throws error (errc::usage) unless on_device(), or while the stream is being
  /// captured; the buffer is then still held.
  void release(stream_handle stream);

 private:
  friend class Job;
  explicit Result(std::shared_ptr<jobs::kept_result> held) noexcept;
  std::shared_ptr<jobs::kept_result> held_;
};

/// A handle to one job. Copyable; usable from any thread. Destroying it does not cancel the job. In a forked child, its members
/// throw errc::usage, except that cancelling returns false and destroying it does nothing.
class PENSTOCK_API Job {
 public:
  Job() noexcept = default;
  [[nodiscard]] std::uint64_t number() const;  ///< counted from 1, in the order of submission
  /// Waits until the job has ended. Throws job_error; error (errc::usage) the second time (a result is taken
  /// once), on a default-constructed Job, and after 10 s if the job waits for a [gpu] buffer or for [jobs]
  /// memory that only this thread can free, by releasing results. get() may then be called again.
  Result get();
  /// Whether the job has ended.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds at_most) const;
  [[nodiscard]] bool done() const { return wait_for(std::chrono::nanoseconds(0)); }
  /// Why the job failed. Empty until it has ended, and if it has a result. Does not wait.
  [[nodiscard]] std::optional<job_failure> why() const;
  /// How many times it was started. Final once the job has ended.
  [[nodiscard]] std::uint32_t attempts() const;
  /// Cancels the job: a waiting job is removed; the worker of a running job is
  /// killed and replaced. Returns false if the job had already ended. Does not wait.
  bool cancel();
  /// Cancels the job only if it has not started, like Python's Future.cancel().
  bool cancel_if_waiting();
  /// Like cancel(), but kills the worker at once, without the two seconds it otherwise has to write its
  /// stack.
  bool kill();
  /// Calls `callback` once, after the job has ended (right away if it already has): on the pool's callback
  /// thread or, if the pool is already closed, on the calling thread before this returns. The callback may
  /// submit, cancel and take the result; it must not destroy the pool (errc::usage).
  void then(std::function<void(Job)> callback);

 private:
  friend struct job_access;
  std::shared_ptr<jobs::job_record> record_;
};

/// What workers on loader hosts ([loader.hosts] listen) need. Set
/// it only for worker programs that hosts can start (rule H13).
struct hosted_program {
  std::string kind{};                          ///< "Python"; empty: this pool has no workers on hosts
  std::map<std::string, std::string> facts{};  ///< versions that must be the same on both sides
  std::string code{};                          ///< contents of a file that each worker program reads first
  /// Descriptor of the file in which each job notes its current work, as a mark; the pool duplicates it. The file is an array of pairs
  /// of 64-bit numbers: a job's number and its mark. A job's pair is at its number modulo the count of pairs. Marks of jobs on
  /// hosts appear there too. -1: none.
  int marks = -1;
};

struct pool_options {
  bool control_socket = true;                   ///< like session_options::control_socket
  session_scope ends = session_scope::session;  ///< what `penstock stop --wait` waits for
  event_callback on_event{};
  /// Called on the callback thread with a function that runs the callbacks of up to 64 jobs, which it must
  /// call once. Meant for interpreters whose lock takes longer to acquire than a callback to run. Empty:
  /// the callbacks run directly.
  std::function<void(const std::function<void()>& callbacks)> around_callbacks{};
  std::map<std::string, std::string> files{};  ///< like session_options::files
  hosted_program hosted{};                     ///< for [loader.hosts]
  /// The jobs load the batches of a data loader. The program takes the batches in order, and reports this
  /// with await_batch() and batch_taken().
  bool of_batches = false;
  /// The program decides which jobs have succeeded. It calls judge() once for each job that ended
  /// without being cancelled, unless it submits the job again (job_options::again). Until judge() is
  /// called, the job counts as running.
  bool judged = false;
};

/// The progress of a worker on a batch.
enum class batch_step : std::uint8_t { unknown, setup, sample, collation };
struct batch_mark {
  batch_step step = batch_step::unknown;
  std::uint64_t number = 0;  ///< changes with each step: the batch's next sample, or its collation
  std::string sample{};      ///< the name of that sample: "sample 1237"
  bool in_order = true;      ///< false: the program takes whichever batch is loaded first
};

/// A sample of a data loader's dataset, as its sampler names it.
struct loader_sample {
  std::optional<std::uint64_t> index{};  ///< empty: the sampler gave no number
  std::string name{};                    ///< "sample 1237"; if the sampler gives no numbers, "sample 'cat.jpg'"
  std::uint64_t epoch = 0;
};

/// A batch of a data loader that the program does not get.
struct lost_batch {
  std::uint64_t epoch = 0;
  std::optional<std::uint64_t> sequence{};  ///< its number within the epoch, if known
  std::optional<std::uint64_t> blamed{};    ///< the sample that raised, or killed its workers
  std::uint64_t samples = 0;                ///< how many the program does not get
  std::uint64_t quarantined = 0;            ///< how many of them are in quarantine
  std::vector<std::uint64_t> numbers{};     ///< of those that have one
  std::string text{};                       ///< for the event
};

/// A batch of a data loader with samples that took much longer than usual (rule W32).
struct slow_batch {
  struct sample {
    std::optional<std::uint64_t> index{};  ///< as in loader_sample
    std::string name{};
    std::chrono::nanoseconds took{0};
  };
  std::uint64_t job = 0;
  std::uint32_t worker = 0;
  std::chrono::nanoseconds busy{0};  ///< how long its worker loaded it
  std::chrono::nanoseconds slow{0};  ///< the part of `busy` by which these samples took longer than usual
  std::vector<sample> slowest{};     ///< the slowest first
};

/// Thread-safe, except for destruction. Like Session, it installs no signal handler, reaps only its own
/// children, and cannot be used in a forked child.
class PENSTOCK_API Pool {
 public:
  /// Checks the config ([jobs], [loader], [supervisor], [log], name; [dataset] and [sampler] are ignored) and
  /// starts the workers. [loader] command is the worker program (job.hpp). Throws error (errc::config).
  explicit Pool(config settings, pool_options options = {});
  /// Cancels all jobs that have not ended and shuts down within half a second. Call finish() first to let
  /// jobs finish.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Queues a job. While [jobs] queue or memory is full, waits for at most `patience`. Throws error:
  /// errc::timed_out after that; errc::stopped once the pool is shutting down; the pool's own failure if it has
  /// failed; errc::out_of_memory for an argument larger than [jobs] memory; errc::usage if only this thread
  /// could end the wait, by freeing results. On the callback thread it never waits for results to be freed, and
  /// waits for other jobs to start only beyond twice [jobs] queue.
  Job submit(std::string_view function, Argument argument, job_options options = {},
             std::chrono::nanoseconds patience = std::chrono::hours(24));
  /// Like submit(), but does not wait. Empty while [jobs] queue or memory is full.
  std::optional<Job> try_submit(std::string_view function, Argument argument, job_options options = {});

  /// Produces the arguments of map(), one per call, on the thread that calls Mapping::next(). An empty return
  /// ends the input.
  using source = std::function<std::optional<Argument>()>;
  class Mapping;
  /// Yields results in the order of the inputs, with at most `ahead` jobs in flight (0: [jobs] queue).
  Mapping map(std::string_view function, source inputs, job_options options = {}, std::size_t ahead = 0);
  /// Like map(), but yields results in the order in which jobs end.
  Mapping map_unordered(std::string_view function, source inputs, job_options options = {},
                        std::size_t ahead = 0);

  /// Accepts no more jobs and waits for the submitted ones. Returns false if some have not ended in time;
  /// cancels none.
  bool finish(std::chrono::nanoseconds at_most);
  /// Cancels all jobs that have not ended and shuts the workers down, within [supervisor] shutdown.
  /// Idempotent.
  void close() noexcept;
  /// Like close(), but does not wait. `by`: as in Session::stop().
  void stop(std::optional<std::chrono::milliseconds> at_most = std::nullopt, std::string_view by = {}) noexcept;
  /// Like stop(), for a program that has failed: the outcome is `failed`, with this reason.
  void fail(std::string_view why, std::optional<std::chrono::milliseconds> at_most = std::nullopt) noexcept;

  void pause();
  void resume();
  void scale(std::uint32_t workers);
  void restart(std::uint32_t worker);
  void drain(std::uint32_t worker);

  /// Makes a file available to jobs on loader hosts that are submitted from now on; they open it with session_file()
  /// (job.hpp). Use each number only once. Duplicates the descriptor. Throws error (errc::usage) in a pool without hosts.
  void publish(std::uint64_t number, int file);
  /// Tells the pool that no job needs that file any more.
  void withdraw(std::uint64_t number) noexcept;

  // The following members are only for pool_options::of_batches. Call them on the thread that takes batches.

  /// The program now waits for the batch that this job loads. While it waits, it may call again with what the worker is now
  /// doing. The last call before batch_came() names the batch for which the whole wait counts. If nothing changes for 5 s, the pool is stalled (rule W28).
  void await_batch(std::uint64_t job, batch_mark doing = {}) noexcept;
  /// The program no longer waits for a batch.
  void batch_came() noexcept;
  /// Reports how far the program's pass over this epoch is: `done` of `expected` batches (0: unknown) are delivered or left out.
  /// Call it when the pass begins, and when a batch is left out.
  void pass_is_at(std::uint64_t epoch, std::uint64_t done, std::uint64_t expected) noexcept;
  /// How many samples the dataset has. Call it when a pass begins, unless the dataset has no length.
  void dataset_has(std::uint64_t samples) noexcept;
  /// The program has taken a batch of this epoch. `samples` is 0 if all samples were left out, or if the batch raised. `left_out`:
  /// samples missing from it.
  void batch_taken(std::uint64_t epoch, std::uint64_t samples, std::uint64_t left_out = 0) noexcept;
  /// A sample raised. `error`: "ValueError: no line 51"; `text`: the same as a sentence, for events; `traceback`: as Python prints it.
  void sample_failed(const loader_sample& which, std::string_view error, std::string text, std::string_view traceback = {}) noexcept;
  /// A sample is not tried again, because it killed workers or took too long. `known`: an earlier run had
  /// quarantined it.
  void sample_quarantined(const loader_sample& which, std::vector<std::string> causes, bool known) noexcept;
  /// The program gets an exception instead of a batch: a sample raised, killed its workers or took too
  /// long. Recorded as event_kind::batch_lost. Report failed and quarantined samples first.
  void batch_lost(lost_batch lost) noexcept;
  /// The program has got a batch with slow samples. Call it after batch_came(), if the program waited for that batch.
  void batch_was_slow(const slow_batch& batch) noexcept;
  /// Writes a warning to the pool's log.
  void warn(std::string_view text) noexcept;

  /// The function raised for one input of a job with several inputs; the job
  /// itself may succeed. Recorded as event_kind::job_raised. `index`: the input's
  /// index in the program's call, from 0; `error` and `traceback` as above.
  void input_raised(std::uint64_t job, std::uint64_t index, std::string_view error, std::string_view traceback) noexcept;

  /// Reports whether a job of this function has succeeded. Only with pool_options::judged.
  void judge(std::string_view function, job_verdict verdict) noexcept;

  [[nodiscard]] pool_statistics statistics() const;
  [[nodiscard]] session_status status() const;
  [[nodiscard]] run_report report() const;

 private:
  class body;
  [[nodiscard]] body& held() const;
  std::shared_ptr<body> body_;
};

/// A pass over the outcomes of map(). Not thread-safe. Destroying it cancels its jobs in flight.
class PENSTOCK_API Pool::Mapping {
 public:
  struct item {
    std::uint64_t index = 0;  ///< position of the input
    Job job;                  ///< has ended
  };
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();
  /// Waits for the next outcome; empty at the end. An input larger than [jobs] memory yields a job that is
  /// too_large. If the pool stops accepting jobs, next() yields the outcomes of those in flight, and then
  /// throws the reason. Throws error (errc::usage) after 10 s if only this thread could end the wait, by
  /// freeing results; next() may then be called again.
  std::optional<item> next();

 private:
  friend class Pool;
  struct body;
  explicit Mapping(std::unique_ptr<body> made) noexcept;
  std::unique_ptr<body> body_;
};

}  // namespace penstock
