// Your own dataset: the lines of a text file, of any length. This is the worker program; the program that
// uses it is 02_own_dataset.cpp. Links penstock::worker, which needs neither CUDA nor a session.
#include <penstock/worker.hpp>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t longest_line = 256;

class lines final : public penstock::Dataset {
 public:
  explicit lines(const std::string& file) : file_(file), text_(file, std::ios::binary) {
    // Find where each line begins. An exception here or in describe() ends the run with its message.
    if (!text_) throw std::runtime_error("cannot open " + file);
    for (std::string line; std::getline(text_, line);) {
      begins_.push_back(end_);
      end_ += line.size() + 1;
    }
    text_.clear();
  }

  penstock::dataset_description describe() override {
    penstock::dataset_description d;
    d.type = "lines";
    d.samples = begins_.size();
    // Lines differ in length: each batch is padded with zeros to its longest line, and has a tensor
    // "text_length".
    d.tensors = {{"text",
                  penstock::dtype::uint8,
                  {longest_line},
                  penstock::tensor_role::data,
                  penstock::length_rule::batch_maximum},
                 {"number", penstock::dtype::int64, {}}};
    // Must change when the samples change: saved states and workers with another fingerprint are refused.
    d.fingerprint = "lines/" + std::to_string(begins_.size()) + "/" + std::to_string(end_);
    return d;
  }

  void load(const penstock::sample_request& sample, const penstock::sample_slot& slot) override {
    std::string line;
    text_.clear();
    text_.seekg(static_cast<std::streamoff>(begins_[sample.index]));
    // An exception costs only this sample: the run reports it by name and leaves it out of its batch.
    if (!std::getline(text_, line)) throw std::runtime_error("cannot be read");
    if (line.size() > longest_line)
      throw std::runtime_error("the line has " + std::to_string(line.size()) + " bytes");
    // Upper or lower case, at random. sample.random depends only on seed, epoch and sample, so this line is
    // the same in every worker, even when it is loaded again because a worker died.
    if (sample.random.uniform() < 0.5)
      std::ranges::transform(line, line.begin(), [](unsigned char c) { return std::toupper(c); });
    // Write directly to the memory that the device reads.
    std::memcpy(slot.bytes(0).data(), line.data(), line.size());
    slot.set_length(0, line.size());
    slot.as<std::int64_t>(1)[0] = static_cast<std::int64_t>(sample.index);
  }

  std::string name_of(std::uint64_t index) const override { return "line " + std::to_string(index + 1) + " of " + file_; }

 private:
  std::string file_;
  std::ifstream text_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t end_ = 0;
};

}  // namespace

int main() {
  return penstock::worker_main([](const penstock::config& settings) {
    return std::make_unique<lines>(penstock::option_of(settings, "file"));
  });
}
