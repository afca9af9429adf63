// A device program for the ranks of a group: data-parallel softmax regression on a folder of images. The sum of all
// ranks' gradients gives every rank the same weights after each step. Kill a rank: the others go back to the last step
// that all have kept, the rank restarts, and training continues.
//
//   penstock launch 07_softmax_ranks.toml --gpus all --sink plugin:./07_softmax_ranks.so
//
// SOFTMAX_CLASSES: the number of folders (16). SOFTMAX_LOG=DIR: each rank appends a line per step to DIR/rank-R.txt.
#include "07_softmax.hpp"

#include <penstock/device_program.hpp>
#include <penstock/nccl.hpp>

#include <cstdio>
#include <utility>

namespace {
constexpr std::size_t rows_max = 1024;

class softmax_ranks final : public penstock::DeviceProgram {
 public:
  softmax_ranks() {
    if (const char* classes = std::getenv("SOFTMAX_CLASSES")) step_.classes = std::atoi(classes);
    if (step_.classes < 2 || step_.classes > softmax::classes_max) throw std::runtime_error("2 to 16 classes");
  }

  void on_batch(const penstock::DeviceBatch& batch, penstock::stream_handle stream) override {
    if (batch.communicator == nullptr) throw std::runtime_error("set [group] communicator = \"nccl\"");
    log_last();
    prepare(batch);
    share_state(*batch.communicator, stream);
    memory_->clear(step_.sums, (weights() + 2) * sizeof(float));
    softmax::run_forward(step_, batch.on_host);
    {
      const penstock::communicator_use group(*batch.communicator);
      group.all_reduce(step_.sums, step_.sums, weights() + 2, penstock::reduction::sum, stream);
    }  // the use ends here; the work on the stream continues
    softmax::run_update(step_, batch.on_host);
    ++steps_;
    not_logged_ = true;
  }

  std::optional<std::vector<std::byte>> snapshot() override {
    log_last();
    std::vector<std::byte> state(sizeof steps_ + weights() * sizeof(float));
    std::memcpy(state.data(), &steps_, sizeof steps_);
    if (memory_) memory_->to_host(state.data() + sizeof steps_, step_.weights, weights() * sizeof(float));
    return state;
  }
  void restore(std::span<const std::byte> state) override {
    std::memcpy(&steps_, state.data(), sizeof steps_);
    restored_.assign(state.begin() + sizeof steps_, state.end());
  }
  void finish() override { log_last(); }

 private:
  [[nodiscard]] std::size_t weights() const { return static_cast<std::size_t>(step_.inputs) * step_.classes; }

  void prepare(const penstock::DeviceBatch& batch) {
    const penstock::tensor_view* const images = batch.find("image");
    const penstock::tensor_view* const labels = batch.find("label");
    if (images == nullptr || labels == nullptr || images->type != penstock::dtype::float32 || batch.rows() > rows_max)
      throw std::runtime_error("needs images with labels, [gpu] dtype = \"float32\" and at most 1024 rows");
    step_.rows = static_cast<int>(batch.rows());
    step_.images = static_cast<const float*>(images->data);
    step_.labels = static_cast<const std::int64_t*>(labels->data);
    if (memory_) return;
    memory_.emplace(batch.on_host);
    step_.inputs = static_cast<int>(images->shape[1] * images->shape[2] * images->shape[3]);
    step_.weights = static_cast<float*>(memory_->zeros(weights() * sizeof(float)));
    step_.sums = static_cast<float*>(memory_->zeros((weights() + 2) * sizeof(float)));
    step_.error = static_cast<float*>(memory_->zeros(rows_max * step_.classes * sizeof(float)));
    step_.losses = static_cast<float*>(memory_->zeros(rows_max * sizeof(float)));
    if (restored_.size() == weights() * sizeof(float))
      memory_->from_host(step_.weights, restored_.data(), restored_.size());
  }

  /// After a new communicator: a restarted rank gets the weights of a rank that has them.
  void share_state(penstock::Communicator& with, penstock::stream_handle stream) {
    const std::uint32_t ranks = with.world_size();
    if (all_steps_ == nullptr) all_steps_ = static_cast<std::uint64_t*>(memory_->zeros((ranks + 1) * sizeof steps_));
    {
      const penstock::communicator_use group(with);
      if (std::exchange(shared_with_, group.number()) == group.number()) return;
      rank_ = group.rank();
      memory_->from_host(all_steps_ + ranks, &steps_, sizeof steps_);
      group.all_gather(all_steps_ + ranks, all_steps_, 1, stream);
    }
    std::vector<std::uint64_t> steps(ranks);
    memory_->to_host(steps.data(), all_steps_, ranks * sizeof steps_);  // waits, outside a use
    const auto most = std::max_element(steps.begin(), steps.end());
    const penstock::communicator_use group(with);
    group.broadcast(step_.weights, weights(), static_cast<std::uint32_t>(most - steps.begin()), stream);
    steps_ = *most;
  }

  /// Logs the last step when the next one starts or a snapshot is due: the step's work is done by then.
  void log_last() {
    const char* const folder = std::getenv("SOFTMAX_LOG");
    if (!std::exchange(not_logged_, false) || folder == nullptr) return;
    float sums[2] = {};  // the loss of all rows of all ranks, and the number of rows
    memory_->to_host(sums, step_.sums + weights(), sizeof sums);
    const std::string path = std::string(folder) + "/rank-" + std::to_string(rank_) + ".txt";
    if (std::FILE* file = std::fopen(path.c_str(), "a")) {
      std::fprintf(file, "%llu %a %llu\n", static_cast<unsigned long long>(steps_), double{sums[0] / sums[1]},
                   static_cast<unsigned long long>(shared_with_));
      std::fclose(file);
    }
  }

  std::optional<softmax::memory> memory_;
  softmax::step_data step_;
  std::vector<std::byte> restored_;
  std::uint64_t* all_steps_ = nullptr;
  std::uint64_t steps_ = 0;
  std::uint64_t shared_with_ = 0;  // the communicator over which the ranks last shared their state
  std::uint32_t rank_ = 0;
  bool not_logged_ = false;
};
}  // namespace
PENSTOCK_DEVICE_PROGRAM(softmax_ranks)
