#include "runtime/device/nccl.hpp"

#include <fmt/core.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace penstock::device {
namespace {

constexpr const char* usual_name = "libnccl.so.2";
constexpr int oldest_version = 21800;
constexpr unsigned int settings_magic = 0xcafebeef;

}  // namespace

result<std::shared_ptr<const nccl_library>> nccl_library::open() {
  const char* const named = std::getenv("PENSTOCK_NCCL");
  const std::string file = named != nullptr && *named != '\0' ? named : usual_name;
  std::shared_ptr<nccl_library> made(new nccl_library(file));
  const driver_library& library = made->library_;
  if (!library) {
    return refuse(
        errc::device_unavailable,
        "[group] communicator = \"nccl\": {}; install NCCL, or name its library in PENSTOCK_NCCL (PyTorch's "
        "is in site-packages/nvidia/nccl/lib)",
        library.trouble());
  }
  int (*version_of)(int*) = nullptr;
  if (!library.find("ncclGetVersion", version_of) || version_of(&made->version_) != nccl_abi::success ||
      made->version_ < oldest_version) {
    return refuse(errc::device_unavailable, "[group] communicator = \"nccl\": {} is older than 2.18",
                  library.path());
  }
  if (!library.find("ncclGetUniqueId", made->draw_) ||
      !library.find("ncclCommInitRankConfig", made->begin_) ||
      !library.find("ncclCommGetAsyncError", made->state_) || !library.find("ncclCommAbort", made->abort_) ||
      !library.find("ncclGetErrorString", made->text_)) {
    return refuse(errc::device_unavailable,
                  "[group] communicator = \"nccl\": {} lacks functions of NCCL", library.path());
  }
  static_cast<void>(library.find("ncclGetLastError", made->last_error_));
  return std::shared_ptr<const nccl_library>(std::move(made));
}

std::string nccl_library::version_text() const {
  return fmt::format("{}.{}.{}", version_ / 10000, version_ / 100 % 100, version_ % 100);
}

bool nccl_library::works_on_host() const {
  int (*marker)() = nullptr;
  return library_.find("penstock_nccl_works_on_host", marker);
}

void* nccl_library::function(const char* name) const {
  void (*found)() = nullptr;
  return library_.find(name, found) ? reinterpret_cast<void*>(found) : nullptr;
}

std::string nccl_library::text_of(int status) const {
  return fmt::format("{} ({})", text_(status), status);
}

result<std::string> nccl_library::draw_id() const {
  nccl_abi::unique_id id{};
  if (const int status = draw_(&id); status != nccl_abi::success)
    return refuse(errc::group_failed, "creating an id for a communicator: {}", text_of(status));
  return std::string(id.bytes, sizeof id.bytes);
}

result<std::unique_ptr<nccl_communicator>> nccl_communicator::begin(
    std::shared_ptr<const nccl_library> library, const std::string& id, std::uint32_t rank,
    std::uint32_t world_size) {
  nccl_abi::unique_id number{};
  if (id.size() != sizeof number.bytes)
    return refuse(errc::protocol, "a communicator's id has {} bytes, not {}", id.size(), sizeof number.bytes);
  std::memcpy(number.bytes, id.data(), sizeof number.bytes);
  nccl_abi::settings settings{};
  settings.size = sizeof settings;
  settings.magic = settings_magic;
  settings.version = static_cast<unsigned int>(oldest_version);
  settings.blocking = 0;
  settings.cga_cluster_size = settings.ctas_min = settings.ctas_max = settings.split_share = INT_MIN;
  ncclComm* handle = nullptr;
  const int status =
      library->begin_(&handle, static_cast<int>(world_size), number, static_cast<int>(rank), &settings);
  if (status != nccl_abi::success && status != nccl_abi::in_progress)
    return refuse(errc::group_failed, "creating a communicator: {}", library->text_of(status));
  return std::unique_ptr<nccl_communicator>(new nccl_communicator(std::move(library), handle));
}

result<bool> nccl_communicator::state() const {
  int state = nccl_abi::success;
  const int asked = library_->state_(handle_, &state);
  const int status = asked != nccl_abi::success ? asked : state;
  if (status == nccl_abi::success) return true;
  if (status == nccl_abi::in_progress) return false;
  const char* const more = library_->last_error_ != nullptr ? library_->last_error_(handle_) : nullptr;
  return refuse(errc::group_failed, "{}{}{}", library_->text_of(status),
                more != nullptr && *more != '\0' ? ": " : "", more != nullptr ? more : "");
}

void nccl_communicator::abort() noexcept {
  if (handle_ == nullptr) return;
  static_cast<void>(library_->abort_(std::exchange(handle_, nullptr)));
}

}  // namespace penstock::device
