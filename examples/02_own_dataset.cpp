// Uses your own dataset: the lines of a text file, loaded by worker processes that run 02_lines_worker.
// The config is built in code instead of read from a file.
//
//   02_own_dataset FILE
#include <penstock/session.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

template <class T>
std::vector<T> read(const penstock::Batch& batch, std::string_view tensor) {
  const std::vector<std::byte> bytes = batch.read_back(tensor);  // works on every device
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  try {
    penstock::config settings;
    settings.name = "own-dataset";
    settings.dataset.type = penstock::dataset_type::custom;
    settings.dataset.options["file"] = argv[1];     // any options that your dataset needs
    settings.loader.command = {"02_lines_worker"};  // looked up next to this program, then in PATH
    settings.loader.workers = 2;
    settings.sampler.batch_size = 4;
    settings.gpu.device = "host";
    penstock::Session session(settings);

    for (const penstock::Batch& batch : session.epoch(0)) {
      // [rows, length of the longest line of this batch]
      const penstock::tensor_view& text = batch.tensor("text");
      const auto bytes = read<char>(batch, "text");
      const auto lengths = read<std::int64_t>(batch, "text_length");
      const auto numbers = read<std::int64_t>(batch, "number");
      std::printf("batch %llu, %llu bytes a line:\n", static_cast<unsigned long long>(batch.sequence()),
                  static_cast<unsigned long long>(text.shape[1]));
      for (std::size_t row = 0; row < batch.rows(); ++row) {
        std::printf("  %4lld %.*s\n", static_cast<long long>(numbers[row] + 1),
                    static_cast<int>(lengths[row]), bytes.data() + row * text.shape[1]);
      }
    }
    for (const penstock::failure_report& f : session.report().failures)
      std::printf("failed: sample %llu (%s): %s\n", static_cast<unsigned long long>(f.sample),
                  f.path.value_or("?").c_str(), f.error.c_str());
    return 0;
  } catch (const penstock::error& e) {
    std::fprintf(stderr, "%s: %s\n", penstock::name_of(e.code()), e.what());
    return 1;
  }
}
