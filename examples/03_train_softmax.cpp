// A training loop on the GPU: softmax regression on a folder of images, with its own kernels and stream.
// Watch the loss fall. No framework needed: a batch is a device pointer, a shape, and two calls that order it
// with your stream.
//
//   03_train_softmax FOLDER        (each folder in it is a class)
#include "03_softmax.hpp"

#include <penstock/session.hpp>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>

namespace {

constexpr int side = 32;
constexpr int inputs = 3 * side * side;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// The program's own memory and stream. Created when the first batch has arrived: by then the session has
/// opened the device and reported any problem with the driver or the GPU in plain words.
struct softmax {
  softmax(int classes, std::size_t rows_max) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    step.inputs = inputs;
    step.classes = classes;
    step.rate = 2e-3F;
    step.weights = zeros(static_cast<std::size_t>(inputs) * classes);
    step.error = zeros(rows_max * classes);
    step.loss = zeros(1);
    check(cudaDeviceSynchronize());  // the zeros were written on another stream
  }
  static float* zeros(std::size_t count) {
    float* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(float)));
    check(cudaMemset(memory, 0, count * sizeof(float)));
    return memory;
  }
  /// The loss of all rows since the last call.
  float take_loss() {
    float loss = 0;
    check(cudaMemcpyAsync(&loss, step.loss, sizeof loss, cudaMemcpyDeviceToHost, stream));
    check(cudaMemsetAsync(step.loss, 0, sizeof loss, stream));
    check(cudaStreamSynchronize(stream));
    return loss;
  }

  cudaStream_t stream = nullptr;
  softmax_step step{};
};

int count_folders(const char* path) {
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) folders += entry.is_directory() ? 1 : 0;
  if (folders < 2 || folders > 16) throw std::runtime_error("there must be 2 to 16 folders of images");
  return folders;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  try {
    penstock::config settings;
    settings.name = "train-softmax";
    settings.dataset.path = argv[1];  // an image folder by default
    settings.image.size = {side, side};
    settings.image.augment = penstock::augment_kind::none;
    settings.sampler.batch_size = 64;
    settings.sampler.epochs = 20;
    settings.gpu.device = "cuda";                   // without a GPU: an error instead of the host device
    settings.gpu.dtype = penstock::dtype::float32;  // [rows, 3, side, side], normalised on the GPU
    penstock::Session session(settings);

    const int classes = count_folders(argv[1]);
    // The session shares the primary context with this program: use memory and streams as usual.
    std::optional<softmax> model;
    float first = 0;
    float last = 0;
    for (std::uint64_t epoch = 0; epoch < settings.sampler.epochs; ++epoch) {
      std::size_t samples = 0;
      for (penstock::Batch& batch : session.epoch(epoch)) {
        if (batch.rows() == 0) continue;  // all its files were bad
        if (!model) model.emplace(classes, settings.sampler.batch_size);
        softmax_step& step = model->step;
        step.rows = static_cast<int>(batch.rows());
        step.images = static_cast<const float*>(batch.tensor("image").data);
        step.labels = static_cast<const std::int64_t*>(batch.tensor("label").data);
        batch.wait({model->stream});  // later work on the stream sees the batch; the host does not wait
        check(train(step, model->stream));
        batch.release({model->stream});  // the buffer is reused once the stream gets here
        samples += static_cast<std::size_t>(step.rows);
      }
      if (samples == 0) throw std::runtime_error("no image could be loaded");
      last = model->take_loss() / static_cast<float>(samples);
      if (epoch == 0) first = last;
      std::printf("epoch %2llu  loss %.4f\n", static_cast<unsigned long long>(epoch), last);
    }
    return last < first ? 0 : 1;
  } catch (const std::exception& e) {  // includes penstock::error
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
