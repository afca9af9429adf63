#include "runtime/base/number.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/host_device.hpp"
#include "runtime/device/make_choice.hpp"

#ifdef PENSTOCK_HAVE_CUDA
#include "runtime/device/cuda/cuda_device.hpp"
#endif

namespace penstock::device {
namespace {

result<device_choice> resolve_cuda([[maybe_unused]] const std::string& choice) {
#ifdef PENSTOCK_HAVE_CUDA
  cuda_choice selected;
  if (choice.starts_with("uuid:")) {
    selected.uuid = choice.substr(5);
  } else if (choice.starts_with("cuda:")) {
    selected.ordinal = whole_number<std::uint32_t>(std::string_view(choice).substr(5));
    if (!selected.ordinal) return refuse(errc::config, "'{}' names no device", choice);
  }
  return device_choice{selected};
#else
  return refuse(errc::device_unavailable,
                "[gpu] device = \"{}\": this build has no CUDA device (it was built without nvcc); use device = "
                "\"host\"",
                choice);
#endif
}

}  // namespace

result<device_choice> resolve_choice(const std::string& choice) {
  if (choice == "host") return device_choice{};
  if (choice != "auto") return resolve_cuda(choice);
#ifdef PENSTOCK_HAVE_CUDA
  if (cuda_is_there()) return resolve_cuda("cuda");
#endif
  return device_choice{};
}

result<std::unique_ptr<device>> make_device(const std::string& choice) {
  auto where = resolve_choice(choice);
  if (!where) return tl::unexpected(std::move(where.error()));
#ifdef PENSTOCK_HAVE_CUDA
  if (where->cuda) return make_cuda_device(*where->cuda);
#endif
  return make_host_device();
}

}  // namespace penstock::device
