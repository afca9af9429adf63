// tar_tool: what the tar dataset makes of shards, for the comparison with Python's readers, and rates.
//
//   tar_tool dump PATH SIZE NAME=EXTENSIONS...   one line for each sample and tensor: sample, name, tensor, bytes in hex
//   tar_tool index PATH                          how long finding or building the index takes
//   tar_tool make FOLDER SHARDS SAMPLES BYTES    shards of samples with a member of BYTES bytes and a class
//   tar_tool load TYPE PATH SAMPLES              samples a second of a dataset of this type, in one thread
#include "runtime/base/dataset_type.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/dataset/tar/tar_writer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

using namespace penstock;

namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point begin) {
  return std::chrono::duration<double>(clock::now() - begin).count();
}

/// Loads samples into its own memory.
class loader {
 public:
  explicit loader(const config& settings) {
    const prepared_dataset prepared = value_or_throw(prepare_dataset(settings));
    dataset_ = value_or_throw(make_dataset(settings, prepared.index.get()));
    described = dataset_->describe();
    for (const tensor_spec& spec : described.tensors) memory_.emplace_back(bytes_of(spec));
    for (std::size_t i = 0; i < memory_.size(); ++i) spans_.emplace_back(memory_[i]);
  }

  void load(std::uint64_t sample) {
    lengths_.clear();
    for (const tensor_spec& spec : described.tensors)
      lengths_.push_back({0, spec.length == length_rule::exact ? 0 : spec.shape.front()});
    random_source random(1, 0, sample);
    dataset_->load({sample, 0, 1, random}, sample_slot(spans_, lengths_, described.tensors));
  }
  [[nodiscard]] std::span<const std::byte> tensor(std::size_t i) const {
    return std::span<const std::byte>(memory_[i])
        .first(lengths_[i].max != 0 ? lengths_[i].entries : memory_[i].size());
  }
  [[nodiscard]] std::string name_of(std::uint64_t sample) const { return dataset_->name_of(sample); }

  dataset_description described;

 private:
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::span<std::byte>> spans_;
  std::vector<sample_length> lengths_;
};

int dump(std::span<char*> arguments) {
  config settings;
  settings.dataset.type = dataset_type::tar;
  settings.dataset.path = arguments[0];
  settings.image.augment = augment_kind::none;
  const auto side = static_cast<std::uint32_t>(std::atoi(arguments[1]));
  settings.image.size = {side, side};
  for (const std::string_view member : arguments.subspan(2)) {
    const std::size_t equals = member.find('=');
    settings.dataset.members[std::string(member.substr(0, equals))] = member.substr(equals + 1);
  }
  loader samples(settings);
  for (std::uint64_t sample = 0; sample < samples.described.samples; ++sample) {
    samples.load(sample);
    for (std::size_t i = 0; i < samples.described.tensors.size(); ++i) {
      std::string hex;
      for (const std::byte b : samples.tensor(i)) hex += fmt::format("{:02x}", std::to_integer<unsigned>(b));
      fmt::print("{}\t{}\t{}\t{}\n", sample, samples.name_of(sample), samples.described.tensors[i].name, hex);
    }
  }
  return 0;
}

int index(const std::string& path) {
  const shard_list shards = value_or_throw(list_shards(path));
  const auto begin = clock::now();
  const found_index found = value_or_throw(find_index(shards, ""));
  fmt::print("{} in {:.4f} s: {} samples, {} bytes\n", found.built ? "built" : "opened", seconds_since(begin),
             found.index.samples(), found.index.file_bytes());
  return 0;
}

int make(std::span<char*> arguments) {
  const int shards = std::atoi(arguments[1]);
  const int samples = std::atoi(arguments[2]);
  const std::string contents(static_cast<std::size_t>(std::atoi(arguments[3])), 'x');
  constexpr std::size_t flushed_at = 4U << 20U;
  for (int shard = 0; shard < shards; ++shard) {
    std::ofstream out(fmt::format("{}/{:04}.tar", arguments[0], shard), std::ios::binary);
    std::string text;
    for (int i = shard; i < samples; i += shards) {
      append_tar_member(text, fmt::format("{:04}/{:09}.jpg", i / 1000, i), contents);
      append_tar_member(text, fmt::format("{:04}/{:09}.cls", i / 1000, i), "7");
      if (text.size() >= flushed_at) out << std::exchange(text, {});
    }
    append_tar_end(text);
    out << text;
  }
  return 0;
}

int load(std::span<char*> arguments) {
  config settings;
  settings.dataset.type =
      std::strcmp(arguments[0], "tar") == 0 ? dataset_type::tar : dataset_type::image_folder;
  settings.dataset.path = arguments[1];
  loader samples(settings);
  const auto count = static_cast<std::uint64_t>(std::atoll(arguments[2]));
  const auto begin = clock::now();
  // Load the samples in scattered order, as after a shuffle.
  for (std::uint64_t i = 0; i < count; ++i) samples.load(i * 7919 % samples.described.samples);
  fmt::print("{:.1f} samples/s\n", static_cast<double>(count) / seconds_since(begin));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::span<char*> all(arguments, static_cast<std::size_t>(count));
  try {
    const std::string_view what = count > 2 ? all[1] : "";
    if (what == "dump" && count > 4) return dump(all.subspan(2));
    if (what == "index") return index(all[2]);
    if (what == "make" && count == 6) return make(all.subspan(2));
    if (what == "load" && count == 5) return load(all.subspan(2));
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  fmt::print(stderr, "see the first lines of tar_tool.cpp\n");
  return 2;
}
