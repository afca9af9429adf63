#include "tools/penstock-probe/probes.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <vector>

namespace penstock::probe {
namespace {

// The few functions of the driver API that we need, declared here, because this program is also built without
// the toolkit. A CUresult is an int, a CUdevice an int, a CUdeviceptr 64 bits.
struct cuda_functions {
  int (*init)(unsigned) = nullptr;
  int (*driver_version)(int*) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*device_uuid)(unsigned char*, int) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*device_pci)(char*, int, int) = nullptr;
  int (*can_access_peer)(int*, int, int) = nullptr;

  explicit cuda_functions(const device::driver_library& cuda) {
    cuda.find("cuInit", init);
    cuda.find("cuDriverGetVersion", driver_version);
    cuda.find("cuGetErrorName", error_name);
    cuda.find("cuDeviceGetCount", device_count);
    cuda.find("cuDeviceGet", device_get);
    cuda.find("cuDeviceGetName", device_name);
    if (!cuda.find("cuDeviceGetUuid_v2", device_uuid)) cuda.find("cuDeviceGetUuid", device_uuid);
    cuda.find("cuDeviceGetAttribute", device_attribute);
    cuda.find("cuDeviceGetPCIBusId", device_pci);
    cuda.find("cuDeviceCanAccessPeer", can_access_peer);
  }

  [[nodiscard]] std::string name_of(int code) const {
    const char* name = nullptr;
    if (error_name != nullptr && error_name(code, &name) == 0 && name != nullptr) return name;
    return "unknown to this driver";
  }
};

constexpr int compute_capability_major = 75;
constexpr int compute_capability_minor = 76;

std::string uuid_text(const std::array<unsigned char, 16>& bytes) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", bytes[i]);
    text += digits.data();
  }
  return text;
}

nlohmann::json facts_of(const cuda_functions& cuda, int ordinal) {
  nlohmann::json facts{{"ordinal", ordinal}};
  int device = 0;
  if (cuda.device_get == nullptr || cuda.device_get(&device, ordinal) != 0) return facts;
  std::array<char, 256> text{};
  if (cuda.device_name != nullptr && cuda.device_name(text.data(), text.size(), device) == 0)
    facts["name"] = text.data();
  std::array<unsigned char, 16> uuid{};
  if (cuda.device_uuid != nullptr && cuda.device_uuid(uuid.data(), device) == 0)
    facts["uuid"] = uuid_text(uuid);
  if (cuda.device_pci != nullptr && cuda.device_pci(text.data(), text.size(), device) == 0)
    facts["pci"] = text.data();
  int major = 0;
  int minor = 0;
  if (cuda.device_attribute != nullptr &&
      cuda.device_attribute(&major, compute_capability_major, device) == 0 &&
      cuda.device_attribute(&minor, compute_capability_minor, device) == 0) {
    facts["major"] = major;
    facts["minor"] = minor;
  }
  return facts;
}

/// Pairs of GPUs, by their numbers: whether both can read and write each other's memory. Needs no context.
nlohmann::json peers_among(const cuda_functions& cuda, int count) {
  nlohmann::json peers = nlohmann::json::array();
  if (cuda.can_access_peer == nullptr) return peers;
  const auto reaches = [&cuda](int from, int to) {
    int yes = 0;
    int one = 0;
    int other = 0;
    return cuda.device_get(&one, from) == 0 && cuda.device_get(&other, to) == 0 &&
           cuda.can_access_peer(&yes, one, other) == 0 && yes != 0;
  };
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b)
      peers.push_back({{"a", a}, {"b", b}, {"access", reaches(a, b) && reaches(b, a)}});
  }
  return peers;
}

}  // namespace

int ask_cuda(const std::string& root) {
  const device::driver_library library = open_library("libcuda.so.1", root);
  if (!library) return 0;
  const cuda_functions cuda(library);
  int version = 0;
  begin_step("cuDriverGetVersion");
  if (cuda.driver_version != nullptr && cuda.driver_version(&version) == 0)
    tell({{"driver_version", version}});
  begin_step("cuInit");
  if (cuda.init == nullptr) {
    tell({{"load_error", "the library has no cuInit"}});
    return 0;
  }
  const int code = cuda.init(0);
  tell({{"init_code", code}, {"init_name", code == 0 ? "CUDA_SUCCESS" : cuda.name_of(code)}});
  if (code != 0 || cuda.device_count == nullptr) return 0;
  begin_step("cuDeviceGetCount");
  int count = 0;
  if (cuda.device_count(&count) != 0) count = 0;
  begin_step("querying the GPUs' properties");
  nlohmann::json devices = nlohmann::json::array();
  for (int i = 0; i < count; ++i) devices.push_back(facts_of(cuda, i));
  tell({{"devices", devices}});
  if (count > 1 && cuda.device_get != nullptr) {
    begin_step("querying which GPUs can access each other");
    tell({{"peers", peers_among(cuda, count)}});
  }
  return 0;
}

int copy_with_cuda(int ordinal) {
  const device::driver_library library = open_library("libcuda.so.1", "/");
  if (!library) return 1;
  const cuda_functions cuda(library);
  int (*context_retain)(void**, int) = nullptr;
  int (*context_set)(void*) = nullptr;
  int (*allocate)(std::uint64_t*, std::size_t) = nullptr;
  int (*to_device)(std::uint64_t, const void*, std::size_t) = nullptr;
  int (*to_host)(void*, std::uint64_t, std::size_t) = nullptr;
  const bool complete =
      cuda.init != nullptr && cuda.device_get != nullptr &&
      library.find("cuDevicePrimaryCtxRetain", context_retain) &&
      library.find("cuCtxSetCurrent", context_set) && library.find("cuMemAlloc_v2", allocate) &&
      library.find("cuMemcpyHtoD_v2", to_device) && library.find("cuMemcpyDtoH_v2", to_host);
  if (!complete) {
    tell({{"error", "this libcuda lacks functions"}});
    return 1;
  }
  std::vector<unsigned char> there(std::size_t{8} << 20U);
  for (std::size_t i = 0; i < there.size(); ++i)
    there[i] = static_cast<unsigned char>(i * 2654435761U >> 13U);
  std::vector<unsigned char> back(there.size());
  int device = 0;
  void* context = nullptr;
  std::uint64_t memory = 0;
  int status = 0;
  const auto step = [&](const char* name, auto call) {
    if (status != 0) return;
    begin_step(name);
    status = call();
    if (status != 0) tell({{"error", std::string(name) + ": " + cuda.name_of(status)}, {"code", status}});
  };
  step("cuInit", [&] { return cuda.init(0); });
  step("selecting the device", [&] { return cuda.device_get(&device, ordinal); });
  step("creating the context", [&] { return context_retain(&context, device); });
  step("making the context current", [&] { return context_set(context); });
  step("allocating 8 MiB", [&] { return allocate(&memory, there.size()); });
  step("copying to the device", [&] { return to_device(memory, there.data(), there.size()); });
  step("copying back", [&] { return to_host(back.data(), memory, back.size()); });
  if (status != 0) return 1;
  if (there != back) {
    tell({{"error", "the bytes that came back differ from those sent"}});
    return 1;
  }
  return 0;
}

}  // namespace penstock::probe
