// Trains a small convolutional network with libtorch on a folder of images. Batches become torch::Tensors without a copy: a tensor
// borrows a batch's memory, on the GPU or on the host, and the batch goes back to the session when its last tensor is gone.
//
//   train FOLDER [EPOCHS]          (each folder in it is a class)
//
// It exits with 1 if the last epoch's loss is not below the first one's. CMakeLists.txt next to it says how to build
// it. It needs an installed penstock and libtorch, with CUDA or without.
#include <penstock/session.hpp>

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

torch::ScalarType scalar_type_of(penstock::dtype type) {
  switch (type) {
    case penstock::dtype::float32: return torch::kFloat32;
    case penstock::dtype::float16: return torch::kFloat16;
    case penstock::dtype::uint8: return torch::kUInt8;
    case penstock::dtype::int64: return torch::kInt64;
    default: throw std::runtime_error("no type of torch for " + std::string(penstock::name_of(type)));
  }
}

/// A torch tensor over the memory of a tensor of the batch. It keeps the batch alive, as do tensors made from it that share the memory.
///
/// The last one releases the batch on the legacy default stream, which is torch's current stream unless the program has chosen another:
/// then call batch->release({stream}) before the tensors are destroyed. The session must outlive them all.
torch::Tensor borrow(const std::shared_ptr<penstock::Batch>& batch, std::string_view name) {
  const penstock::tensor_view& view = batch->tensor(name);
  const std::vector<std::int64_t> shape(view.shape.begin(), view.shape.end());
  const auto options = torch::TensorOptions().dtype(scalar_type_of(view.type)).device(view.on_host ? torch::kCPU : torch::kCUDA);
  return torch::from_blob(view.data, shape, [batch](void*) {}, options);
}

struct net_impl : torch::nn::Module {
  explicit net_impl(std::int64_t classes)
      : layers(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).stride(2)), torch::nn::BatchNorm2d(16), torch::nn::ReLU(),
               torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).stride(2)), torch::nn::BatchNorm2d(32), torch::nn::ReLU(),
               torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(), torch::nn::Linear(32, classes)) {
    register_module("layers", layers);
  }
  torch::Tensor forward(const torch::Tensor& images) { return layers->forward(images); }

  torch::nn::Sequential layers;
};

penstock::config settings_for(const char* folder, std::uint64_t epochs) {
  penstock::config settings;
  settings.name = "libtorch";
  settings.dataset.path = folder;  // an image folder by default
  settings.image.size = {64, 64};
  settings.image.augment = penstock::augment_kind::random_resized_crop;
  settings.sampler.batch_size = 16;
  settings.sampler.epochs = epochs;
  settings.gpu.device = torch::cuda::is_available() ? "cuda" : "host";
  settings.gpu.dtype = penstock::dtype::float32;  // [rows, 3, 64, 64], normalised
  return settings;
}

int run(const char* folder, std::uint64_t epochs) {
  std::int64_t classes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) classes += entry.is_directory() ? 1 : 0;
  torch::manual_seed(1);
  penstock::Session session(settings_for(folder, epochs));
  net_impl net(classes);
  net.to(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  double first = 0;
  double last = 0;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    double sum = 0;
    std::size_t images = 0;
    for (penstock::Batch& batch : session.epoch(epoch)) {
      if (batch.rows() == 0) continue;  // all its files were bad
      images += batch.rows();
      const auto rows = static_cast<double>(batch.rows());
      const auto held = std::make_shared<penstock::Batch>(std::move(batch));
      const torch::Tensor loss =
          torch::nn::functional::cross_entropy(net.forward(borrow(held, "image")), borrow(held, "label"));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      sum += loss.item<double>() * rows;
    }
    if (images == 0) throw std::runtime_error("no image could be loaded");
    last = sum / static_cast<double>(images);
    if (epoch == 0) first = last;
    std::printf("epoch %2llu: %zu images, loss %.4f\n", static_cast<unsigned long long>(epoch), images, last);
  }
  return epochs < 2 || last < first ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [EPOCHS]\n", argv[0]);
    return 2;
  }
  try {
    return run(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10);
  } catch (const std::exception& e) {  // includes penstock::error
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
