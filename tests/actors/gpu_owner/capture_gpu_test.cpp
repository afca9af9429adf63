// A program that captures its training step into CUDA graphs while a session in the same process uploads
// batches. Needs a GPU (label gpu); links the library as users do.
#include "tests/runtime/device/test_kernels.hpp"

#include <penstock/cuda.hpp>
#include <penstock/session.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cuda_runtime_api.h>

#include <atomic>
#include <numeric>
#include <optional>
#include <thread>

using namespace penstock;

namespace {

constexpr int steps = 300;

config uploading() {
  config c;
  c.name = "capture-test";
  c.dataset.type = dataset_type::synthetic;
  c.dataset.samples = 100'000;
  c.dataset.bytes_per_sample = byte_size{16 * 1024};
  c.dataset.fill = fill_kind::random;
  c.sampler.batch_size = 4;
  c.loader.workers = 2;
  c.gpu.device = "cuda";
  c.gpu.buffers = 6;
  c.log.level = log_level::off;
  return c;
}

session_options quietly() {
  session_options o;
  o.control_socket = false;
  return o;
}

void good(cudaError_t status) {
  INFO(cudaGetErrorName(status));
  REQUIRE(status == cudaSuccess);
}

/// A training step: sums a batch that was copied to the address that the graph uses.
class captured_step {
 public:
  explicit captured_step(unsigned stream_flags) {
    good(cudaStreamCreateWithFlags(&stream, stream_flags));
    good(cudaMalloc(&input_, bytes_max));
    good(cudaMalloc(reinterpret_cast<void**>(&sums_), sizeof(unsigned long long)));
    // Launch once before capturing: the first launch loads the kernel, which is not allowed inside a capture.
    good(device_test::launch_sum(static_cast<const std::uint8_t*>(input_), 0, sums_, stream));
    good(device_test::launch_busy(1, stream));
    good(cudaStreamSynchronize(stream));
    good(cudaMemset(sums_, 0, sizeof(unsigned long long)));
    good(cudaDeviceSynchronize());
  }
  ~captured_step() {
    cudaStreamSynchronize(stream);
    for (cudaGraphExec_t g : graphs_) cudaGraphExecDestroy(g);
    cudaFree(input_);
    cudaFree(sums_);
    cudaStreamDestroy(stream);
  }
  captured_step(const captured_step&) = delete;
  captured_step& operator=(const captured_step&) = delete;

  /// Copies the batch to the address that the graph reads.
  void give(const Batch& batch) {
    const tensor_view& data = batch.tensor("data");
    REQUIRE(data.bytes() <= bytes_max);
    bytes_ = data.bytes();
    batch.wait({stream});
    good(cudaMemcpyAsync(input_, data.data, bytes_, cudaMemcpyDeviceToDevice, stream));
  }
  void begin(cudaStreamCaptureMode mode) {
    good(cudaStreamBeginCapture(stream, mode));
    good(device_test::launch_sum(static_cast<const std::uint8_t*>(input_), bytes_, sums_, stream));
  }
  void end_and_replay() {
    cudaGraph_t graph = nullptr;
    good(cudaStreamEndCapture(stream, &graph));  // an error means that a call has invalidated the capture
    cudaGraphExec_t executable = nullptr;
    good(cudaGraphInstantiate(&executable, graph, 0));
    good(cudaGraphDestroy(graph));
    graphs_.push_back(executable);
    good(cudaGraphLaunch(executable, stream));
  }
  [[nodiscard]] bool is_capturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    good(cudaStreamIsCapturing(stream, &status));
    return status == cudaStreamCaptureStatusActive;
  }
  [[nodiscard]] unsigned long long sum_of_all() const {
    unsigned long long sum = 0;
    good(cudaStreamSynchronize(stream));
    good(cudaMemcpy(&sum, sums_, sizeof sum, cudaMemcpyDeviceToHost));
    return sum;
  }

  cudaStream_t stream = nullptr;

 private:
  static constexpr std::size_t bytes_max = 64 * 1024;
  void* input_ = nullptr;
  unsigned long long* sums_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<cudaGraphExec_t> graphs_;
};

unsigned long long sum_of(const std::vector<std::byte>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0ULL,
                         [](unsigned long long sum, std::byte b) { return sum + static_cast<unsigned>(b); });
}

std::optional<failure> refused(Batch& batch, cudaStream_t stream) {
  try {
    batch.release({stream});
    return std::nullopt;
  } catch (const error& e) {
    return e.as_failure();
  }
}

Batch next_of(Session& session) {
  auto batch = session.next();
  REQUIRE(batch);
  return std::move(*batch);
}

/// The operations on batches that a program may do inside a capture, one per step.
void use_batches_inside(Session& session, Batch& held, const captured_step& step, int number) {
  switch (number % 5) {
    case 0: {
      const auto no = refused(held, step.stream);
      REQUIRE(no);
      CHECK(no->code == errc::usage);
      CHECK(no->message.find("is being captured") != std::string::npos);
      REQUIRE(held);
      break;
    }
    case 1: next_of(session).release_unused(); break;
    case 2: next_of(session); break;  // destroyed
    case 3: {
      Batch other = next_of(session);
      CHECK(other.read_back("data").size() == other.tensor("data").bytes());
      other.wait({step.stream});
      other.release_unused();
      break;
    }
    default: break;
  }
  CHECK(step.is_capturing());
}

}  // namespace

TEST_CASE("300 steps are captured and replayed in each capture mode without disturbing the session") {
  const auto mode =
      GENERATE(cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed);
  // Batches that are destroyed are released on the legacy default stream, which is ordered with blocking
  // streams.
  const auto flags = GENERATE(cudaStreamNonBlocking, cudaStreamDefault);
  CAPTURE(mode, flags);
  captured_step step(flags);
  Session session(uploading(), quietly());
  unsigned long long expected = 0;
  for (int i = 0; i < steps; ++i) {
    Batch batch = next_of(session);
    expected += sum_of(batch.read_back("data"));
    step.give(batch);
    step.begin(mode);
    use_batches_inside(session, batch, step, i);
    step.end_and_replay();
    batch.release({step.stream});
    CHECK_FALSE(batch);
    if (i % 7 == 0) next_of(session);  // the batch is destroyed between captures
  }
  CHECK(step.sum_of_all() == expected);
  CHECK(session.report().outcome == run_outcome::running);
}

TEST_CASE(
    "a consumer on one thread and captures on another do not disturb each other, in each capture mode") {
  const auto mode =
      GENERATE(cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed);
  CAPTURE(mode);
  Session session(uploading(), quietly());
  next_of(session).release_unused();
  captured_step captured(cudaStreamNonBlocking);
  captured.give(next_of(session));
  cudaStream_t mine = nullptr;
  good(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking));
  std::atomic<bool> over{false};
  std::atomic<int> captures{0};
  std::atomic<int> broken{0};
  std::thread capturing([&] {
    while (!over || captures < steps) {
      cudaGraph_t graph = nullptr;
      const bool ok = cudaStreamBeginCapture(captured.stream, mode) == cudaSuccess &&
                      device_test::launch_busy(1000, captured.stream) == cudaSuccess &&
                      cudaStreamEndCapture(captured.stream, &graph) == cudaSuccess &&
                      cudaGraphDestroy(graph) == cudaSuccess;
      if (!ok) ++broken;
      ++captures;
    }
  });
  for (int i = 0; i < steps; ++i) {
    Batch batch = next_of(session);
    CHECK(batch.read_back("data").size() == batch.tensor("data").bytes());
    batch.wait({mine});
    if (i % 3 != 0) batch.release({mine});
  }
  over = true;
  capturing.join();
  CHECK(broken == 0);
  cudaStreamDestroy(mine);
}

TEST_CASE(
    "a session that starts during a capture on another thread opens its device, and the capture survives") {
  captured_step step(cudaStreamNonBlocking);
  good(cudaStreamBeginCapture(step.stream, cudaStreamCaptureModeGlobal));
  std::thread([&] {
    Session session(uploading(), quietly());
    for (int i = 0; i < 20; ++i) next_of(session).release_unused();
  }).join();
  CHECK(step.is_capturing());
  good(device_test::launch_busy(1000, step.stream));
  step.end_and_replay();
}

TEST_CASE("buffers of batches destroyed inside a capture of a blocking stream return after it") {
  captured_step step(cudaStreamDefault);
  config few = uploading();
  few.gpu.buffers = 2;
  Session session(few, quietly());
  for (int round = 0; round < 50; ++round) {
    Batch first = next_of(session);
    Batch second = next_of(session);
    step.give(first);
    step.begin(cudaStreamCaptureModeGlobal);
    first = Batch();
    second = Batch();
    step.end_and_replay();
    // The next steps need both buffers of the ring.
  }
  CHECK(session.report().outcome == run_outcome::running);
}
