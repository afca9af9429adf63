#include "runtime/nccl/program_gpu.hpp"

#include "runtime/device/driver_library.hpp"

#include <fmt/core.h>

#include <string_view>

namespace penstock::group {
namespace {

// Values from cuda.h.
constexpr int success = 0;
constexpr int relaxed_captures = 2;
struct gpu_uuid {
  unsigned char bytes[16];
};

struct driver {
  const device::driver_library library{"libcuda.so.1"};
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*retain_primary)(void**, int) = nullptr;
  int (*current)(void**) = nullptr;
  int (*make_current)(void*) = nullptr;
  int (*device_of_current)(int*) = nullptr;
  int (*uuid)(gpu_uuid*, int) = nullptr;
  int (*exchange_capture_mode)(int*) = nullptr;
  bool complete = false;

  driver() {
    complete = library && library.find("cuInit", init) && library.find("cuDeviceGetCount", count) &&
               library.find("cuDeviceGet", get) && library.find("cuDevicePrimaryCtxRetain", retain_primary) &&
               library.find("cuCtxGetCurrent", current) && library.find("cuCtxSetCurrent", make_current) &&
               library.find("cuCtxGetDevice", device_of_current);
    if (!library) return;
    // The second version names the instance of a partitioned GPU.
    if (!library.find("cuDeviceGetUuid_v2", uuid)) static_cast<void>(library.find("cuDeviceGetUuid", uuid));
    static_cast<void>(library.find("cuThreadExchangeStreamCaptureMode", exchange_capture_mode));
  }
};

const driver& the_driver() {
  static const driver opened;
  return opened;
}

tl::unexpected<failure> refuse_without(std::string_view why) {
  return refuse(errc::config,
                "group.communicator: \"nccl\" needs a GPU for each rank, but this process has none ({})",
                why);
}

std::string uuid_text(int device) {
  gpu_uuid uuid{};
  if (the_driver().uuid == nullptr || the_driver().uuid(&uuid, device) != success) return {};
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

result<program_gpu> program_gpu::find(std::optional<std::uint32_t> local_rank) {
  const driver& d = the_driver();
  if (!d.library) return refuse_without(d.library.trouble());
  if (!d.complete) return refuse_without("libcuda.so.1 lacks functions");
  int gpus = 0;
  if (const int status = d.init(0); status != success)
    return refuse_without(fmt::format("cuInit: error {}", status));
  if (d.count(&gpus) != success || gpus == 0) return refuse_without("the driver sees no GPU");
  program_gpu found;
  int device = 0;
  if (d.current(&found.context_) == success && found.context_ != nullptr) {
    if (d.device_of_current(&device) == success) found.uuid_ = uuid_text(device);
    return found;
  }
  if (!local_rank) {
    return refuse(errc::config,
                  "group.communicator: this thread has selected no GPU, and the launcher does not give this "
                  "rank's number on its host: call cudaSetDevice first");
  }
  if (d.get(&device, static_cast<int>(*local_rank % static_cast<std::uint32_t>(gpus))) != success)
    return refuse_without("the driver does not report which GPU this thread uses");
  if (const int status = d.retain_primary(&found.context_, device); status != success) {
    return refuse(errc::device_unavailable, "creating a context on GPU {}: error {} from the CUDA driver",
                  device, status);
  }
  found.uuid_ = uuid_text(device);
  return found;
}

void program_gpu::select() const {
  if (context_ == nullptr) return;
  const driver& d = the_driver();
  if (int mode = relaxed_captures; d.exchange_capture_mode != nullptr)
    static_cast<void>(d.exchange_capture_mode(&mode));
  static_cast<void>(d.make_current(context_));
}

}  // namespace penstock::group
