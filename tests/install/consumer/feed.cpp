// An embedding program: one epoch of a dataset on the host device, one batch digest per line.
//   feed                    synthetic samples, loaded by the penstock-worker of the install tree
//   feed WORKER             the dataset of counting_worker.cpp, loaded by that program
#include <penstock/session.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t samples = 64;

penstock::config settings_for(const char* worker) {
  penstock::config c;
  c.name = "consumer";
  c.dataset.type = penstock::dataset_type::synthetic;
  c.dataset.samples = samples;
  c.dataset.bytes_per_sample = penstock::byte_size{4096};
  c.dataset.fill = penstock::fill_kind::random;
  if (worker != nullptr) {
    c.dataset.type = penstock::dataset_type::custom;
    c.dataset.options = {{"samples", std::to_string(samples)}};
    c.loader.command = {worker};
  }
  c.sampler.batch_size = 8;
  c.loader.workers = 2;
  c.gpu.device = "host";
  return c;
}

/// counting_worker.cpp writes the index four times.
bool counts_right(const penstock::Batch& batch) {
  const std::vector<std::byte> bytes = batch.read_back("data");
  std::vector<std::int32_t> values(bytes.size() / sizeof(std::int32_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<std::uint64_t>(values[i]) != batch.samples()[i / 4]) return false;
  }
  return values.size() == batch.rows() * 4;
}

int run(const char* worker) {
  penstock::Session session(settings_for(worker), {.digests = true, .control_socket = false});
  std::uint64_t rows = 0;
  for (const penstock::Batch& batch : session.epoch(0)) {
    if (worker != nullptr && !counts_right(batch)) {
      std::fprintf(stderr, "batch %llu has other values\n",
                   static_cast<unsigned long long>(batch.sequence()));
      return 1;
    }
    if (rows == 0) {
      for (const penstock::worker_status& w : session.status().workers) {
        if (!w.pid) continue;
        const auto exe = std::filesystem::path("/proc") / std::to_string(*w.pid) / "exe";
        std::printf("worker %s\n", std::filesystem::read_symlink(exe).c_str());
      }
    }
    rows += batch.rows();
  }
  const penstock::run_report report = session.report();
  for (const penstock::failure_report& f : report.failures) {
    std::printf("failed %s: %s\n", f.path.value_or("?").c_str(), f.error.c_str());
  }
  std::printf("rows %llu digest %s\n", static_cast<unsigned long long>(rows),
              report.epochs.at(0).digest.value_or("none").c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : nullptr);
  } catch (const penstock::error& e) {
    std::fprintf(stderr, "%s: %s\n", penstock::name_of(e.code()), e.what());
    return 1;
  }
}
