// An NVTX tool like a profiler, loaded through NVTX_INJECTION64_PATH: writes each range's name once per
// process, as lines "program pid name", to the file PENSTOCK_TEST_NVTX_NAMES. For nvtx_test.py.
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

namespace {

void note(const nvtxEventAttributes_t* what) {
  static std::mutex mutex;
  static std::set<std::string> known;
  const std::lock_guard hold(mutex);
  if (!known.insert(what->message.ascii).second) return;
  const char* file = std::getenv("PENSTOCK_TEST_NVTX_NAMES");
  if (file == nullptr) return;
  const std::string line = std::string(program_invocation_short_name) + " " + std::to_string(::getpid()) +
                           " " + what->message.ascii + "\n";
  const int to = ::open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (::write(to, line.data(), line.size()) < 0) std::abort();
  ::close(to);
}

int NVTX_API push(nvtxDomainHandle_t, const nvtxEventAttributes_t* what) {
  note(what);
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int NVTX_API
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainRangePushEx)
    return 0;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  return 1;
}
