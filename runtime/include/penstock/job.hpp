// A worker program whose functions a Pool calls, in one line:
//   int main() { return penstock::job_main({{"thumbnail", thumbnail}}); }
// Link penstock::worker, which needs neither CUDA nor a session.
#pragma once

#include <penstock/export.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A call of a function in a worker process. Valid only during the call.
class PENSTOCK_API JobCall {
 public:
  /// The submitted bytes. Treat them as read-only. They are in memory that only
  /// this worker uses. A retry in another worker gets a fresh copy of the original.
  [[nodiscard]] std::span<const std::byte> argument() const noexcept { return argument_; }
  [[nodiscard]] std::string_view text() const noexcept;  ///< the argument as characters

  /// Space for a result of `bytes` bytes, in memory that the caller will read directly: in the slot if it
  /// fits, else in a separate memfd. Contents are undefined. A second call replaces the first, whose memory
  /// must not be used any more. Throws error (errc::out_of_memory) for more than [jobs] memory: the job then
  /// ends as too_large.
  [[nodiscard]] std::span<std::byte> result(std::uint64_t bytes);
  /// Sets the final size of a result that turned out shorter. Throws error (errc::usage) for more bytes than
  /// result() provided.
  void shorten_result(std::uint64_t bytes);
  /// Copies `bytes` as the result; they may lie in the memory from result(). A function that calls none of
  /// these members has an empty result.
  void give(std::span<const std::byte> bytes);
  void give(std::string_view text);

  /// Describes this call's work to people: `penstock status`, events and death reports show this text
  /// instead of the function's name. Costs only the copy of the text; its first 450 bytes are kept.
  void describe(std::string_view work);

  /// For a data loader: the call now loads this sample. Its name is shown like the text of
  /// describe(), and its time counts until the next call to sample(), describe() or slow_samples().
  void sample(std::uint64_t index, std::string_view name);

  /// The samples of this call that took much longer than this worker's samples usually do (rule W32).
  struct slow_load {
    struct slow_sample {
      std::uint64_t index = 0;
      std::string name;
      std::chrono::nanoseconds took{0};
    };
    std::chrono::nanoseconds busy{0};  ///< time since the call began
    std::chrono::nanoseconds slow{0};  ///< the part of `busy` by which slow samples took longer than usual; 0 if there were none
    std::vector<slow_sample> slowest{};  ///< at most three, the slowest first
  };
  [[nodiscard]] slow_load slow_samples();

  [[nodiscard]] std::uint64_t job() const noexcept { return job_; }  ///< number in the pool, from 1
  [[nodiscard]] std::uint32_t attempt() const noexcept { return attempt_; }  ///< 1 + deaths blamed on the job
  [[nodiscard]] std::uint32_t worker() const noexcept { return worker_; }

  /// Where result() gets its memory. Implemented by job_main.
  class room {
   public:
    virtual ~room() = default;
    virtual std::span<std::byte> reserve(std::uint64_t bytes) = 0;
    virtual void shorten(std::uint64_t bytes) = 0;
    virtual void describe(std::string_view) {}
    virtual void sample(std::uint64_t, std::string_view) {}
    virtual slow_load slow_samples() { return {}; }
  };
  JobCall(std::span<const std::byte> argument, room& result, std::uint64_t job, std::uint32_t attempt,
          std::uint32_t worker) noexcept
      : argument_(argument), room_(result), job_(job), attempt_(attempt), worker_(worker) {}

 private:
  std::span<const std::byte> argument_;
  room& room_;
  std::span<const std::byte> result_;  // from the last call to result()
  std::uint64_t job_;
  std::uint32_t attempt_;
  std::uint32_t worker_;
};

/// Anything it throws becomes the job's error: its type, its text, and the traceback of a job_exception. Runs
/// in the worker's main thread. Between jobs, the environment, working directory, signal mask, umask and
/// resource limits are restored to what they were before the first job (docs/semantics, rule J18). A child
/// that it forks has private copies of argument and result, and exits when it returns from the function.
using job_function = std::function<void(JobCall&)>;

/// Throw this to give the caller a type and a traceback of your own, as other languages' workers do.
class PENSTOCK_API job_exception : public std::exception {
 public:
  job_exception(std::string type, std::string text, std::string traceback);
  ~job_exception() override;
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] const std::string& type() const noexcept { return type_; }
  [[nodiscard]] const std::string& traceback() const noexcept { return traceback_; }

 private:
  std::string type_, text_, traceback_;
};

/// Runs a job worker: serves the pool that started the process, and returns the exit code for main. Call it
/// from main, before any other thread exists. Started by hand, it runs one function in the current process
/// (`my-worker --run thumbnail < in > out`; `my-worker --help`), for debuggers and profilers.
PENSTOCK_API int job_main(const std::map<std::string, job_function>& functions);

/// Opens a file that the program published (Pool::publish) before it submitted the current job. Call it only in a worker on a
/// loader host, while it runs a job. The caller closes the descriptor. Throws error (errc::usage) if there is no such file.
PENSTOCK_API int session_file(std::uint64_t number);

/// The hooks of a language runtime that must act around a fork.
struct fork_hooks {
  /// Called before each fork; returns why this process must not fork; empty: it may.
  std::function<std::string()> unsafe;
  std::function<void()> before, in_parent, in_child;
};

/// Makes this process a template: it forks a worker whenever the session orders one. Returns in the workers only,
/// with the worker's number; call job_main there next. The workers are children of the session, not of this process.
/// `socket` is the number that the session has put into PENSTOCK_TEMPLATE. Call it on the main thread. Does not run
/// the handlers of pthread_atfork: the process has one thread, so no other thread holds a lock. Exits when the
/// session closes the socket, or when the process must not fork (the session then starts workers with exec).
PENSTOCK_API std::uint32_t fork_on_order(int socket, const fork_hooks& hooks);

}  // namespace penstock
