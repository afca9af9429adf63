// A fake driver controlled by FAKE_... variables: built once as libcuda.so.1 and once as libnvidia-ml.so.1,
// for doctor_test.py and the tests of runtime/device. By default it reports one H200.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

constexpr char first_uuid[] = "GPU-11111111-1111-1111-1111-111111111111";

std::string setting(const char* name, const char* usual) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : usual;
}

int number(const char* name, const char* usual) {
  return std::atoi(setting(name, usual).c_str());
}

int behave(const char* name) {
  const std::string how = setting(name, "0");
  if (how == "hang") {
    const int told = number("FAKE_HANG_FD", "-1");
    if (told >= 0 && ::write(told, "h", 1) != 1) std::abort();
    while (true) ::pause();
  }
  if (how == "crash") std::raise(SIGSEGV);
  return std::atoi(how.c_str());
}

void copy_text(const char* from, char* to, unsigned size) {
  std::snprintf(to, size, "%s", from);
}

}  // namespace

extern "C" {

// ---- libcuda
__attribute__((visibility("default"))) int cuInit(unsigned) {
  return behave("FAKE_CUINIT");
}
__attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", "99000");
  return 0;
}
__attribute__((visibility("default"))) int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_OF_THE_FAKE";
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = number("FAKE_GPUS", "1");
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetName(char* name, int size, int) {
  copy_text("NVIDIA H200", name, static_cast<unsigned>(size));
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, 0x11 * (device + 1), 16);
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? number("FAKE_CC_MAJOR", "9") : 0;
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetPCIBusId(char* address, int size, int) {
  copy_text("0000:3B:00.0", address, static_cast<unsigned>(size));
  return 0;
}

__attribute__((visibility("default"))) int cuDeviceCanAccessPeer(int* can, int, int) {
  *can = number("FAKE_PEERS", "1");
  return 0;
}

// ---- libnvidia-ml
__attribute__((visibility("default"))) int nvmlInit_v2() {
  return behave("FAKE_NVML");
}
__attribute__((visibility("default"))) int nvmlShutdown() {
  return 0;
}
__attribute__((visibility("default"))) const char* nvmlErrorString(int) {
  return "what the fake says";
}
__attribute__((visibility("default"))) int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(number("FAKE_GPUS", "1"));
  return 0;
}
// A handle is the GPU's number, counted from 1.
__attribute__((visibility("default"))) int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return 0;
}
// FAKE_NVLINKS: how many links each GPU has, all of them to a switch
__attribute__((visibility("default"))) int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  *active = static_cast<int>(link) < number("FAKE_NVLINKS", "0") ? 1 : 0;
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned,
                                                                               unsigned* kind) {
  constexpr unsigned a_switch = 2;
  *kind = a_switch;
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetP2PStatus(void*, void*, unsigned, unsigned* status) {
  *status = 0;
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetTopologyCommonAncestor(void*, void*,
                                                                               unsigned* ancestor) {
  *ancestor = static_cast<unsigned>(number("FAKE_ANCESTOR", "50"));
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  constexpr int not_found = 6;
  *device = device;
  return std::strcmp(uuid, first_uuid) == 0 ? 0 : not_found;
}
struct process_info {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
// FAKE_PROCESSES: "pid:MiB pid:MiB"
__attribute__((visibility("default"))) int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count,
                                                                                   process_info* list) {
  constexpr int insufficient_size = 7;
  std::istringstream words(setting("FAKE_PROCESSES", ""));
  const unsigned room = *count;
  *count = 0;
  for (std::string word; words >> word; ++*count) {
    if (list == nullptr || *count >= room) continue;
    const auto colon = word.find(':');
    list[*count] = {static_cast<unsigned>(std::atoi(word.c_str())),
                    std::strtoull(word.c_str() + colon + 1, nullptr, 10) << 20U, 0, 0};
  }
  return *count > room ? insufficient_size : 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetName(void*, char* name, unsigned size) {
  copy_text("NVIDIA H200", name, size);
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  std::string text = first_uuid;
  for (char& c : text) {
    if (c == '1') c = static_cast<char>('0' + reinterpret_cast<std::uintptr_t>(device));
  }
  copy_text(text.c_str(), uuid, size);
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetMemoryInfo(void*,
                                                                   unsigned long long* total_free_used) {
  total_free_used[0] = 140ULL << 30U;
  total_free_used[1] = static_cast<unsigned long long>(number("FAKE_FREE_MIB", "139000")) << 20U;
  total_free_used[2] = total_free_used[0] - total_free_used[1];
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetComputeMode(void*, unsigned* mode) {
  *mode = static_cast<unsigned>(number("FAKE_COMPUTE_MODE", "0"));
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetTotalEccErrors(void*, int, int,
                                                                       unsigned long long* errors) {
  *errors = static_cast<unsigned long long>(number("FAKE_ECC", "0"));
  return 0;
}
}
