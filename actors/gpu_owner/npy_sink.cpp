#include "actors/gpu_owner/npy_sink.hpp"

#include "runtime/base/text.hpp"
#include "runtime/sink/npy_writer.hpp"

namespace penstock::gpu_owner {

result<npy_sink> npy_sink::create(std::filesystem::path folder) {
  std::error_code status;
  std::filesystem::create_directories(folder, status);
  if (status)
    return refuse_os(errc::sink, status.value(),
                     fmt::format("making the folder '{}'", printable(folder.native())));
  return npy_sink(std::move(folder));
}

result<void> npy_sink::write(const Batch& batch) const {
  const std::string stem = fmt::format("e{}-b{:06}", batch.epoch(), batch.sequence());
  const auto file = [&](std::string_view tensor) { return folder_ / fmt::format("{}.{}.npy", stem, tensor); };
  for (const tensor_view& t : batch.tensors()) {
    std::vector<std::byte> copy = batch.read_back(t.name);
    tensor_view on_host = t;
    on_host.data = copy.data();
    if (auto ok = sink::write_npy(file(t.name), on_host); !ok) return ok;
  }
  for (const tensor_view& r : batch.records()) {
    if (auto ok = sink::write_npy(file(r.name), r); !ok) return ok;
  }
  std::vector<std::int64_t> indices(batch.samples().begin(), batch.samples().end());
  return sink::write_npy(file("index"), {"index", dtype::int64, {indices.size()}, indices.data()});
}

}  // namespace penstock::gpu_owner
