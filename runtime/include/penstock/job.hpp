// A worker program whose functions a Pool calls, in one line:
//   int main() { return penstock::job_main({{"thumbnail", thumbnail}}); }
// Link penstock::worker; no CUDA and no session comes with it.
#pragma once

#include <penstock/export.hpp>

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

/// One run of a function, in a worker process. Given to the function; must not be kept.
class PENSTOCK_API JobCall {
 public:
  /// What was submitted. Read only by agreement: it lies in memory of this worker alone, and a retry gets a copy of
  /// the original.
  [[nodiscard]] std::span<const std::byte> argument() const noexcept { return argument_; }
  [[nodiscard]] std::string_view text() const noexcept;  ///< the same as characters

  /// Room for a result of so many bytes, where the caller will read it: no copy is made. Contents are undefined. A
  /// second call replaces the first. In the slot if it fits there, else in a memfd of its own. Throws error
  /// (errc::out_of_memory) beyond [jobs] memory: the job ends as too_large.
  [[nodiscard]] std::span<std::byte> result(std::uint64_t bytes);
  /// The result turned out shorter. Throws error (errc::usage) if it is longer than result() made room for.
  void shorten_result(std::uint64_t bytes);
  /// Copies a result. No call of any of these: an empty result.
  void give(std::span<const std::byte> bytes);
  void give(std::string_view text);

  [[nodiscard]] std::uint64_t job() const noexcept { return job_; }  ///< number in the pool, from 1
  [[nodiscard]] std::uint32_t attempt() const noexcept {
    return attempt_;
  }  ///< 1 + deaths charged to the job
  [[nodiscard]] std::uint32_t worker() const noexcept { return worker_; }

  /// What the call's surroundings provide; made by job_main.
  class room {
   public:
    virtual ~room() = default;
    virtual std::span<std::byte> reserve(std::uint64_t bytes) = 0;
    virtual void shorten(std::uint64_t bytes) = 0;
  };
  JobCall(std::span<const std::byte> argument, room& result, std::uint64_t job, std::uint32_t attempt,
          std::uint32_t worker) noexcept
      : argument_(argument), room_(result), job_(job), attempt_(attempt), worker_(worker) {}

 private:
  std::span<const std::byte> argument_;
  room& room_;
  std::uint64_t job_;
  std::uint32_t attempt_;
  std::uint32_t worker_;
};

/// Anything it throws becomes the job's error: type, text, and for exceptions that carry one (error_with_traceback), a
/// traceback. Runs in the worker's main thread. Between two jobs the environment, the working directory, the signal
/// mask, the umask and the resource limits are set back to what they were before the first (semantics 49). A process that
/// it forks has a private copy of argument and result, and ends when it returns from the function.
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

/// The whole life of a job worker: talks to the pool that started it, runs what it is told to, and returns the exit
/// code for main. Call it from main, before any other thread exists. Started by hand, it runs one function in this
/// process (`my-worker --run thumbnail < in > out`; `my-worker --help`), for debuggers and profilers.
PENSTOCK_API int job_main(const std::map<std::string, job_function>& functions);

}  // namespace penstock
