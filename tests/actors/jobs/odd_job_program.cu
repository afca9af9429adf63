// A device program for tests of pools: the first word of the job's result selects what it does. Without nvcc
// it is built for the host device only.
#include <penstock/job_program.hpp>

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace {

#ifdef __CUDACC__
__global__ void add_up(const unsigned char* bytes, unsigned long long count, unsigned long long* sum) {
  unsigned long long own = 0;
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < count;
       i += stride)
    own += bytes[i];
  atomicAdd(sum, own);
}
__global__ void write_nowhere(int* where) {
  *where = 1;
}
__global__ void spin(volatile int* never) {
  while (*never == 0) {
  }
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
#endif

bool exists(const std::string& file) {
  return ::access(file.c_str(), F_OK) == 0;
}

void rest_a_little() {
  const timespec pause{0, 1'000'000};
  ::nanosleep(&pause, nullptr);
}

class odd_job_program final : public penstock::JobProgram {
 public:
  void on_result(penstock::DeviceJob& job, penstock::stream_handle stream) override {
    stream_ = stream;
    const std::string text = beginning(job);
    const std::size_t gap = text.find(' ');
    const std::string verb = text.substr(0, gap);
    const std::string file = gap == std::string::npos ? "" : text.substr(gap + 1);
    if (verb == "nothing") return;
    if (verb == "sum" || verb.empty() || verb[0] == '\0') return sum(job);
    if (verb == "pid") return give(job, std::to_string(::getpid()));
    if (verb == "throw") throw std::invalid_argument("no good: " + file);
    if (verb == "throw_int") throw 7;
    if (verb == "memory") return static_cast<void>(job.memory(1ULL << 60U));
    if (verb == "allocate") return allocate(job, true);
    if (verb == "leave_error") return allocate(job, false);
    if (verb == "large") return static_cast<void>(job.result(2U << 20U));
    if (verb == "crash") ::raise(SIGSEGV);
    if (verb == "crash_once") {
      if (exists(file)) return give(job, "alive");
      ::close(::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
      ::raise(SIGSEGV);
    }
    if (verb == "illegal") return illegal(job);
    if (verb == "hang") return hang(job);
    if (verb == "wait") {
      ::close(::open((file + ".begun").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
      while (!exists(file)) rest_a_little();
      return give(job, "waited");
    }
    give(job, text);
  }

 private:
  static void give(penstock::DeviceJob& job, const std::string& text) {
    const auto room = job.result(text.size());
    std::memcpy(room.data(), text.data(), text.size());
  }

  /// The first 256 bytes of the result, or all if it has fewer.
  std::string beginning(penstock::DeviceJob& job) const {
    std::string text(job.bytes() < 256 ? job.bytes() : 256, '\0');
    if (text.empty()) return text;
    if (job.on_host()) {
      std::memcpy(text.data(), job.data(), text.size());
      return text;
    }
#ifdef __CUDACC__
    const auto on = static_cast<cudaStream_t>(stream_.native);
    check(cudaMemcpyAsync(text.data(), job.data(), text.size(), cudaMemcpyDeviceToHost, on), "reading the verb");
    check(cudaStreamSynchronize(on), "reading the verb");
#endif
    return text;
  }

  void sum(penstock::DeviceJob& job) const {
    const auto room = job.result(sizeof(unsigned long long));
    if (job.on_host()) {
      unsigned long long all = 0;
      for (std::uint64_t i = 0; i < job.bytes(); ++i) all += static_cast<const unsigned char*>(job.data())[i];
      std::memcpy(room.data(), &all, sizeof all);
      return;
    }
#ifdef __CUDACC__
    const auto on = static_cast<cudaStream_t>(stream_.native);
    auto* const total = static_cast<unsigned long long*>(job.memory(sizeof(unsigned long long)));
    check(cudaMemsetAsync(total, 0, sizeof *total, on), "clearing a sum");
    add_up<<<64, 256, 0, on>>>(static_cast<const unsigned char*>(job.data()), job.bytes(), total);
    check(cudaGetLastError(), "adding up");
    check(cudaMemcpyAsync(room.data(), total, sizeof *total, cudaMemcpyDeviceToHost, on), "fetching a sum");
#endif
  }

  /// Requests more memory than any device has.
  static void allocate(penstock::DeviceJob& job, bool says_so) {
    if (job.on_host()) {
      if (!says_so) return give(job, "left");
      throw std::bad_alloc();
    }
#ifdef __CUDACC__
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, 1ULL << 45U);
    if (says_so) check(status, "allocating 32 TiB");
    give(job, "left");
#endif
  }

  void illegal(penstock::DeviceJob& job) const {
    if (job.on_host()) ::raise(SIGSEGV);
#ifdef __CUDACC__
    write_nowhere<<<1, 1, 0, static_cast<cudaStream_t>(stream_.native)>>>(nullptr);
    check(cudaGetLastError(), "launching");
#endif
  }

  void hang(penstock::DeviceJob& job) const {
#ifdef __CUDACC__
    if (!job.on_host()) {
      auto* const never = static_cast<int*>(job.memory(sizeof(int)));
      const auto on = static_cast<cudaStream_t>(stream_.native);
      check(cudaMemsetAsync(never, 0, sizeof *never, on), "clearing");
      spin<<<1, 1, 0, on>>>(never);
      return;
    }
#endif
    static_cast<void>(job);
    while (true) rest_a_little();
  }

  penstock::stream_handle stream_;
};

}  // namespace

PENSTOCK_JOB_PROGRAM(odd_job_program)
