#include "actors/gpu_owner/npy_sink.hpp"

#include "runtime/sink/npy_manifest.hpp"
#include "runtime/sink/npy_writer.hpp"

namespace penstock::gpu_owner {

result<npy_sink> npy_sink::create(std::filesystem::path folder, config settings) {
  if (auto ok = sink::claim_npy_folder(folder, settings); !ok) return tl::unexpected(std::move(ok.error()));
  return npy_sink(std::move(folder), std::move(settings));
}

result<void> npy_sink::write_manifest(const Batch& batch) const {
  std::vector<sink::manifest_tensor> tensors;
  for (const tensor_view& t : batch.tensors()) tensors.push_back({t, false});
  for (const tensor_view& r : batch.records()) tensors.push_back({r, true});
  return sink::write_npy_manifest(folder_, settings_, tensors);
}

result<void> npy_sink::write(const Batch& batch) {
  if (!has_manifest_) {
    if (auto ok = write_manifest(batch); !ok) return ok;
    has_manifest_ = true;
  }
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
  return sink::write_npy(file(sink::index_name),
                         {sink::index_name, dtype::int64, {indices.size()}, indices.data()});
}

}  // namespace penstock::gpu_owner
