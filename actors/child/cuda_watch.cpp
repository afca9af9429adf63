#include "actors/child/cuda_watch.hpp"

#include <fmt/core.h>
#include <link.h>
#include <unistd.h>

namespace penstock::child {
namespace {

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

/// The first entry has the number of libraries ever loaded; the rest need not be visited.
int look_at_count(dl_phdr_info* info, std::size_t, void* data) {
  static_cast<library_search*>(data)->additions = info->dlpi_adds;
  return 1;
}

}  // namespace

bool cuda_watch::newly_loaded() {
  library_search search;
  ::dl_iterate_phdr(look_at_count, &search);
  if (search.additions == libraries_seen_) return false;
  libraries_seen_ = search.additions;
  ::dl_iterate_phdr(look_at_library, &search);
  const bool new_here = search.cuda && !loaded_;
  loaded_ |= search.cuda;
  return new_here;
}

std::string cuda_text(std::uint32_t worker, std::string_view reason) {
  return fmt::format("it loaded CUDA into worker {} (pid {}); only the GPU owner uses the GPU{}{}", worker,
                     ::getpid(), reason.empty() ? "" : ": ", reason);
}

}  // namespace penstock::child
