#include "actors/child/cuda_watch.hpp"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>
#include <unistd.h>

namespace penstock::child {
namespace {

struct library_search {
  unsigned long long additions = 0;
  std::string cuda{};  // path; empty: not loaded
};

int look_at_library(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<library_search*>(data);
  search.additions = info->dlpi_adds;
  const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  if (path.substr(path.rfind('/') + 1).starts_with("libcuda.so")) search.cuda = path;
  return 0;
}

/// The first entry holds the number of libraries ever loaded; the rest need not be visited.
int look_at_count(dl_phdr_info* info, std::size_t, void* data) {
  static_cast<library_search*>(data)->additions = info->dlpi_adds;
  return 1;
}

}  // namespace

void cuda_watch::closer::operator()(void* library) const {
  ::dlclose(library);
}

bool cuda_watch::newly_found() {
  if (found_) return false;
  library_search search;
  ::dl_iterate_phdr(look_at_count, &search);
  if (search.additions != libraries_seen_) {
    libraries_seen_ = search.additions;
    ::dl_iterate_phdr(look_at_library, &search);
    if (!search.cuda.empty() && count_devices_ == nullptr) {
      if (what_ == sign::initialised) library_.reset(::dlopen(search.cuda.c_str(), RTLD_LAZY | RTLD_NOLOAD));
      void* const function = library_ ? ::dlsym(library_.get(), "cuDeviceGetCount") : nullptr;
      if (function == nullptr) return found_ = true;
      count_devices_ = reinterpret_cast<device_count>(function);
    }
  }
  // CUDA_SUCCESS is 0. The call fails before cuInit(), and after a cuInit() that found no device; it
  // initialises nothing.
  int devices = 0;
  return found_ = count_devices_ != nullptr && count_devices_(&devices) == 0;
}

std::string cuda_text(std::uint32_t worker, std::string_view reason) {
  return fmt::format("it loaded CUDA into worker {} (pid {}); only the GPU owner uses the GPU{}{}", worker,
                     ::getpid(), reason.empty() ? "" : ": ", reason);
}

}  // namespace penstock::child
