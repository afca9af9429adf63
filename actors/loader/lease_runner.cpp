#include "actors/loader/lease_runner.hpp"

#include "runtime/base/text.hpp"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace penstock::loader {
namespace {

using namespace std::chrono_literals;

constexpr std::array storage_pauses{50ms, 200ms, 800ms};  // storage is asked four times in all

// All names and reasons of a batch have to fit in a frame, however many rows fail.
constexpr std::size_t reasons_bytes_max = 1U << 20U;
constexpr std::size_t reason_bytes_max = 500;

void shorten_texts(std::vector<protocol::wire_row_failure>& failures) {
  if (failures.empty()) return;
  const std::size_t limit =
      std::clamp(reasons_bytes_max / failures.size(), std::size_t{16}, reason_bytes_max);
  for (protocol::wire_row_failure& f : failures) {
    f.name = shortened(printable(f.name), limit);
    f.reason = shortened(printable(f.reason), limit);
  }
}

struct library_search {
  unsigned long long additions = 0;
  bool cuda = false;
};

int look_at_library(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<library_search*>(data);
  search.additions = info->dlpi_adds;
  const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  search.cuda |= path.substr(path.rfind('/') + 1).starts_with("libcuda.so");
  return 0;
}

/// The number of libraries ever loaded is in the first entry: no need to walk the rest.
int look_at_count(dl_phdr_info* info, std::size_t, void* data) {
  static_cast<library_search*>(data)->additions = info->dlpi_adds;
  return 1;
}

}  // namespace

lease_runner::lease_runner(const workshop& shop, std::function<void(std::chrono::milliseconds)> pause)
    : shop_(shop), pause_(std::move(pause)) {
  static_cast<void>(brings_cuda());
}

result<std::optional<protocol::batch_loaded>> lease_runner::run(const protocol::load_batch& lease) {
  if (lease.slot >= shop_.slots.slots() || lease.samples.size() > shop_.layout.rows_max) {
    return refuse(errc::protocol, "a lease of slot {} with {} samples; there are {} slots for {} samples",
                  lease.slot, lease.samples.size(), shop_.slots.slots(), shop_.layout.rows_max);
  }
  const auto begin = std::chrono::steady_clock::now();
  protocol::batch_loaded report{lease.slot, lease.generation, 0, {}, 0};
  const std::span<std::byte> slot = shop_.slots.slot(lease.slot);
  for (std::uint32_t i = 0; i < lease.samples.size(); ++i) {
    if (shop_.stopping.load(std::memory_order_relaxed)) return std::nullopt;
    const protocol::wire_sample& sample = lease.samples[i];
    const std::string name = shop_.dataset.name_of(sample.index);
    shop_.flight.publish({arena::phase::loading, lease.slot, i, lease.generation}, name);
    // Survivors are compacted: a failed sample's row is written again by the next one.
    std::string reason = load_row(sample, lease.epoch, slot, report.rows);
    shop_.flight.publish(arena::phase::checking);
    if (brings_cuda()) {
      reason = fmt::format("it loaded CUDA into worker {} (pid {}); only the GPU owner uses the GPU{}{}",
                           shop_.me.worker, ::getpid(), reason.empty() ? "" : ": ", reason);
    }
    if (reason.empty()) {
      ++report.rows;
    } else {
      report.failures.push_back({i, name, std::move(reason)});
    }
    shop_.flight.sample_done();
  }
  shop_.flight.rest();
  shorten_texts(report.failures);
  report.busy_ns = static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
  return report;
}

std::string lease_runner::load_row(const protocol::wire_sample& sample, std::uint64_t epoch,
                                   std::span<std::byte> slot, std::uint32_t row) {
  std::vector<std::span<std::byte>> tensors;
  tensors.reserve(shop_.layout.tensors.size());
  for (const tensor_place& place : shop_.layout.tensors) {
    tensors.push_back(slot.subspan(place.offset + place.row_bytes * row, place.row_bytes));
  }
  for (std::size_t tries = 0;; ++tries) {
    random_source random(shop_.seed, epoch, sample.index);
    try {
      shop_.dataset.load({sample.index, epoch, sample.attempt, random}, sample_slot(tensors));
      return {};
    } catch (const transient_error& e) {
      if (tries < storage_pauses.size()) {
        pause_(storage_pauses[tries]);
        continue;
      }
      return *e.what() != '\0' ? fmt::format("{} (tried {} times)", e.what(), tries + 1)
                               : "storage gave no answer";
    } catch (const std::exception& e) {
      return *e.what() != '\0' ? e.what() : "an exception without a message";
    } catch (...) {
      return "an exception that is not a std::exception";
    }
  }
}

/// True once: for the sample during which CUDA appeared.
bool lease_runner::brings_cuda() {
  library_search search;
  ::dl_iterate_phdr(look_at_count, &search);
  if (search.additions == libraries_seen_) return false;
  libraries_seen_ = search.additions;
  ::dl_iterate_phdr(look_at_library, &search);
  const bool new_here = search.cuda && !cuda_came_in_;
  cuda_came_in_ |= search.cuda;
  return new_here;
}

}  // namespace penstock::loader
