#include "runtime/device/cuda/cuda_choice.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/device/cuda/convert.hpp"
#include "runtime/device/cuda/cuda_context.hpp"
#include "runtime/device/cuda/cuda_error.hpp"
#include "runtime/device/nvml.hpp"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock::device {
namespace {

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
  }
  return text;
}

std::string list_of_devices(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp facts{};
    if (cudaGetDeviceProperties(&facts, i) != cudaSuccess) continue;
    list += fmt::format("{}cuda:{} {} {}", list.empty() ? "" : ", ", i, facts.name, uuid_text(facts.uuid));
  }
  return list.empty() ? "none" : list;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// A driver with an older major version does not work; one with an older minor version usually does.
result<void> check_versions() {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return refuse(
        errc::device_unavailable,
        "looking for CUDA devices: this machine has no NVIDIA driver (libcuda.so.1 is missing or does "
        "not load). `--device host` runs without a GPU; `penstock doctor` shows what is missing");
  }
  if (driver / 1000 < runtime / 1000) {
    return refuse(errc::device_unavailable,
                  "the driver supports CUDA {}, but this build's runtime is {}: install a driver for CUDA {} or "
                  "later, or build with a toolkit of CUDA {}",
                  version_text(driver), version_text(runtime), runtime / 1000, driver / 1000);
  }
  if (driver < runtime) {
    log::warn("gpu", "the driver supports CUDA {}, but this build's runtime is {}: newer features may be refused",
              version_text(driver), version_text(runtime));
  }
  return {};
}

result<int> find_ordinal(const cuda_choice& choice, int count) {
  if (choice.uuid) {
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp facts{};
      if (cudaGetDeviceProperties(&facts, i) == cudaSuccess &&
          uuid_text(facts.uuid).starts_with(*choice.uuid)) {
        return i;
      }
    }
    return refuse(errc::device_unavailable, "no GPU has the UUID {}; available: {}", *choice.uuid,
                  list_of_devices(count));
  }
  const auto ordinal = choice.ordinal.value_or(0);
  if (ordinal < static_cast<std::uint32_t>(count)) return static_cast<int>(ordinal);
  return refuse(errc::device_unavailable, "cuda:{} does not exist; available: {}", ordinal,
                list_of_devices(count));
}

std::string compute_mode_text(int ordinal) {
  int mode = 0;
  if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, ordinal) != cudaSuccess) return "unknown";
  switch (mode) {
    case cudaComputeModeDefault: return "default";
    case cudaComputeModeProhibited: return "prohibited";
    default: return "exclusive process";
  }
}

/// The processes visible to us that have a GPU open: "pid 4127 (python3)". Only for messages: an open device file
/// does not prove that the process uses the GPU.
std::string who_has_a_gpu_open() {
  std::string holders;
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(::getpid()))
      continue;
    for (const auto& fd : std::filesystem::directory_iterator(process.path() / "fd", ignored)) {
      const std::string target = std::filesystem::read_symlink(fd.path(), ignored).string();
      if (!target.starts_with("/dev/nvidia") || target.find_first_of("0123456789") == std::string::npos)
        continue;
      std::string name;
      std::getline(std::ifstream(process.path() / "comm"), name);
      holders += fmt::format("{}pid {} ({})", holders.empty() ? "" : ", ", pid, printable(name));
      break;
    }
  }
  return holders.empty() ? "not visible from here (nvidia-smi may show it)" : holders;
}

/// Asks NVML if it works, else looks for device files that processes have open.
std::string who_uses(int ordinal) {
  cudaDeviceProp facts{};
  if (cudaGetDeviceProperties(&facts, ordinal) == cudaSuccess) {
    const auto seen = processes_on_gpu(uuid_text(facts.uuid));
    if (seen && !seen->empty()) return in_words(*seen);
  }
  cudaGetLastError();
  return who_has_a_gpu_open();
}

/// The failure if this build has no code for the GPU's architecture.
failure no_image(cudaError_t status, const cudaDeviceProp& facts) {
  cudaGetLastError();
  failure why = cuda_failure(status, fmt::format("looking for kernels for {}", facts.name));
  if (why.code == errc::device_image) {
    why.message += fmt::format(
        "; the GPU has compute capability {}.{}, this build holds code for {}: rebuild with "
        "-DPENSTOCK_CUDA_ARCHITECTURES={}{}-real",
        facts.major, facts.minor, PENSTOCK_CUDA_BUILT_FOR, facts.major, facts.minor);
  }
  return why;
}

failure cannot_use(cudaError_t status, int ordinal) {
  cudaGetLastError();
  if (kind_of(status) == errc::device_busy)
    return taken_failure(status, ordinal, compute_mode_text(ordinal), who_uses(ordinal));
  cudaDeviceProp facts{};
  if (kind_of(status) == errc::device_image && cudaGetDeviceProperties(&facts, ordinal) == cudaSuccess)
    return no_image(status, facts);  // the environment may request that kernels are loaded with the context
  return cuda_failure(status, fmt::format("creating a context on cuda:{}", ordinal));
}

}  // namespace

result<selected_gpu> select_gpu(const cuda_choice& choice) {
  if (auto ok = check_versions(); !ok) return tl::unexpected(std::move(ok.error()));
  int count = 0;
  if (const auto status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    cudaGetLastError();
    failure why = cuda_failure(status, "looking for CUDA devices");
    why.message +=
        "; nvidia-smi and CUDA_VISIBLE_DEVICES show which GPUs there are, and `penstock doctor` shows what "
        "is wrong";
    return tl::unexpected(std::move(why));
  }
  relax_captures_of_this_thread();  // otherwise the next calls are forbidden while another thread captures
  const auto ordinal = find_ordinal(choice, count);
  if (!ordinal) return tl::unexpected(ordinal.error());
  if (const auto status = cudaSetDevice(*ordinal); status != cudaSuccess)
    return tl::unexpected(cannot_use(status, *ordinal));
  if (const auto status = cudaFree(nullptr); status != cudaSuccess)
    return tl::unexpected(cannot_use(status, *ordinal));
  cudaDeviceProp facts{};
  if (const auto status = cudaGetDeviceProperties(&facts, *ordinal); status != cudaSuccess) {
    cudaGetLastError();
    return refuse_cuda(status, "reading the device's properties");
  }
  if (const auto status = probe_kernels(); status != cudaSuccess)
    return tl::unexpected(no_image(status, facts));
  return selected_gpu{*ordinal, {"cuda", facts.name, uuid_text(facts.uuid)}};
}

std::string name_of_gpu(const cuda_choice& choice) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) {
    const relaxed_captures relaxed;
    cudaDeviceProp facts{};
    const auto ordinal = find_ordinal(choice, count);
    if (ordinal && cudaGetDeviceProperties(&facts, *ordinal) == cudaSuccess) return facts.name;
  }
  cudaGetLastError();
  return {};
}

bool cuda_is_there() {
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  // Any error other than "no driver" and "no device" means a broken GPU. Choose it, so that opening it reports the error.
  return status != cudaErrorInsufficientDriver && status != cudaErrorNoDevice &&
         (status != cudaSuccess || count > 0);
}

}  // namespace penstock::device
