// Data-parallel training in your own program: softmax regression on a folder of images. Each rank gets its
// share of every epoch from its session. After each step the ranks add their gradients, so all have the same
// weights. If a rank is lost, the other ranks end and report which one it was.
//
//   penstock launch --gpus host:4 -- 08_train_ranks FOLDER        (each folder in it is a class)
//   penstock launch --gpus all -- 08_train_ranks FOLDER           (NCCL: one GPU per rank)
//   mpirun -n 4 08_train_ranks FOLDER
//
// To keep the example short, gradients are computed on the CPU. If the ranks have GPUs, NCCL's all-reduce
// adds the gradients there, as a real model needs. Without GPUs (or with CUDA_VISIBLE_DEVICES= ) they pass
// through Group::all_gather, which is made for control messages: it suits models of a few thousand weights.
#include "08_sums.hpp"

#include <penstock/group.hpp>
#include <penstock/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr std::size_t side = 8;
constexpr std::size_t inputs = 3 * side * side;

std::size_t count_folders(const char* path) {
  std::size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) folders += entry.is_directory() ? 1 : 0;
  if (folders < 2 || folders > 16) throw std::runtime_error("there must be 2 to 16 folders of images");
  return folders;
}

/// Sums over the rows of a batch: the gradient, the loss, and the number of rows.
std::vector<double> sums_of(const penstock::Batch& batch, const std::vector<double>& weights,
                            std::size_t classes) {
  std::vector<double> sums(inputs * classes + 2);
  const auto* image = static_cast<const float*>(batch.tensor("image").data);
  const auto* label = static_cast<const std::int64_t*>(batch.tensor("label").data);
  std::vector<double> score(classes);
  for (std::size_t row = 0; row < batch.rows(); ++row, image += inputs) {
    std::fill(score.begin(), score.end(), 0.0);
    for (std::size_t i = 0; i < inputs; ++i)
      for (std::size_t c = 0; c < classes; ++c)
        score[c] += static_cast<double>(image[i]) * weights[i * classes + c];
    const double most = *std::max_element(score.begin(), score.end());
    double total = 0;
    for (double& s : score) total += s = std::exp(s - most);
    const auto right = static_cast<std::size_t>(label[row]);
    sums[inputs * classes] -= std::log(score[right] / total);
    for (std::size_t c = 0; c < classes; ++c) {
      const double error = score[c] / total - (c == right ? 1.0 : 0.0);
      for (std::size_t i = 0; i < inputs; ++i) sums[i * classes + c] += error * static_cast<double>(image[i]);
    }
  }
  sums.back() = static_cast<double>(batch.rows());
  return sums;
}

void train(const char* folder) {
  penstock::config settings;
  settings.name = "train-ranks";
  settings.dataset.path = folder;  // an image folder by default
  settings.image.size = {side, side};
  settings.image.augment = penstock::augment_kind::none;
  settings.sampler.batch_size = 16;  // per rank
  settings.sampler.epochs = 5;
  settings.gpu.device = "host";
  settings.gpu.dtype = penstock::dtype::float32;
  const std::size_t classes = count_folders(folder);

  // All ranks must be present and train the same thing.
  penstock::group_options options{.name = "train-ranks", .agree = {{"classes", std::to_string(classes)}}};
  if (gpu_is_there()) options.settings.communicator = penstock::communicator_kind::nccl;
  penstock::Group group(options);
  penstock::Session session(settings, {.join_group = true});

  std::vector<double> weights(inputs * classes);
  std::vector<double> losses(settings.sampler.epochs);
  std::vector<double> rows(settings.sampler.epochs);
  // With [sampler] uneven = "pad", the default in a group, every rank gets the same number of batches.
  while (auto batch = session.next()) {
    const std::vector<double> sums = sum_of_all(group, sums_of(*batch, weights, classes));
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] -= 0.05 * sums[i] / std::max(sums.back(), 1.0);
    losses[batch->epoch()] += sums[inputs * classes];
    rows[batch->epoch()] += sums.back();
  }
  // Wait for all ranks before this one leaves: a rank that is still busy may need the others.
  group.barrier(60s);
  if (group.rank() == 0)
    std::printf("gradients were added %s\n",
                group.communicator() != nullptr ? "by NCCL" : "over the group's links");
  for (std::size_t epoch = 0; epoch < losses.size(); ++epoch)
    std::printf("rank %u of %u  epoch %zu  loss %.17g\n", group.rank(), group.world_size(), epoch,
                losses[epoch] / rows[epoch]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER, under penstock launch, torchrun, srun or mpirun\n", argv[0]);
    return 2;
  }
  try {
    train(argv[1]);
    return 0;
  } catch (const std::exception& e) {  // includes penstock::error
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
