// Your own code that runs in the GPU owner and processes the results of a pool's jobs on the device;
// job_options::program selects it. Build it as a shared library, and name it in the pool's config:
// [jobs.programs] NAME = "PATH". Needs only this header and no library.
//
//   class embedding final : public penstock::JobProgram { void on_result(...) override { ... } };
//   PENSTOCK_JOB_PROGRAM(embedding)
#pragma once

#include <penstock/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace penstock {

/// The result of one job on the device, borrowed for one call.
class DeviceJob {
 public:
  /// In device memory (host memory on the host device), 256-byte aligned. Only work on the call's stream may
  /// use it, to read or to write. An empty result has no bytes.
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool on_host() const noexcept {
    return on_host_;
  }  ///< on the host device: plain memory, no stream
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }  ///< number of the job, from 1
  /// The worker's function that made this result.
  [[nodiscard]] std::string_view function() const noexcept { return function_; }

  /// Room in host memory for the caller's result, at most 1 MiB. It is sent when the work on the stream is
  /// done, so copies to it may still be queued when on_result() returns. A second call replaces the first;
  /// without any call, the caller gets an empty result. Throws for more than 1 MiB; the job then ends as
  /// too_large.
  [[nodiscard]] std::span<std::byte> result(std::uint64_t bytes) { return room_.result(bytes); }
  /// Device memory to work with until the job is over; contents are undefined. A second call may replace the
  /// first. The memory is reused for the next job. Throws if the device has too little. Do not catch that
  /// exception: the job then ends as `device`.
  [[nodiscard]] void* memory(std::uint64_t bytes) { return room_.memory(bytes); }

  /// Where result() and memory() get their memory. Implemented by the GPU owner.
  class room {
   public:
    virtual ~room() = default;
    virtual std::span<std::byte> result(std::uint64_t bytes) = 0;
    virtual void* memory(std::uint64_t bytes) = 0;
  };
  struct facts {
    void* data = nullptr;
    std::uint64_t bytes = 0;
    bool on_host = false;
    std::uint64_t number = 0;
    std::string_view function;
  };
  DeviceJob(const facts& what, room& around) noexcept
      : data_(what.data),
        bytes_(what.bytes),
        on_host_(what.on_host),
        number_(what.number),
        function_(what.function),
        room_(around) {}

 private:
  void* data_;
  std::uint64_t bytes_;
  bool on_host_;
  std::uint64_t number_;
  std::string_view function_;
  room& room_;
};

/// Each process that runs the program has one object, and calls it from one thread, job after job. State kept between
/// jobs must not change any result: if the process dies, a new one repeats the unanswered jobs.
class JobProgram {
 public:
  JobProgram() = default;
  JobProgram(const JobProgram&) = delete;
  JobProgram& operator=(const JobProgram&) = delete;
  virtual ~JobProgram() = default;

  /// Queues work on `stream`; need not wait for it. An exception ends the job (`device`, with its text), and
  /// so does an error that a CUDA call leaves behind (cudaGetLastError), if the context survives it.
  virtual void on_result(DeviceJob& job, stream_handle stream) = 0;
};

/// Increases when JobProgram or DeviceJob change; programs built for another version are refused.
inline constexpr std::uint32_t job_program_version = 1;

struct job_program_entry {
  std::uint32_t version = job_program_version;
  JobProgram* (*make)() = nullptr;  ///< may throw
};

#ifdef __CUDACC__
/// Each program has its own CUDA runtime. So only code compiled into the program can
/// read the error that one of its calls left behind, and clear it for the next job.
template <class Program>
class checked_program final : public JobProgram {
 public:
  void on_result(DeviceJob& job, stream_handle stream) override {
    // Without a GPU, asking for the error would itself be an error.
    if (job.on_host()) return program_.on_result(job, stream);
    try {
      program_.on_result(job, stream);
    } catch (...) {
      static_cast<void>(cudaGetLastError());
      throw;
    }
    if (const cudaError_t left = cudaGetLastError(); left != cudaSuccess)
      throw std::runtime_error(std::string("a CUDA call of the device program failed: ") + cudaGetErrorString(left));
  }

 private:
  Program program_;
};
#else
template <class Program>
using checked_program = Program;
#endif

}  // namespace penstock

#define PENSTOCK_JOB_PROGRAM(type)                                                                          \
  extern "C" __attribute__((visibility("default"))) const penstock::job_program_entry penstock_job_program{ \
      penstock::job_program_version,                                                                        \
      []() -> penstock::JobProgram* { return new penstock::checked_program<type>; }};
