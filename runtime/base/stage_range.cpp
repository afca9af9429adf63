#include "runtime/base/stage_range.hpp"

#ifdef PENSTOCK_HAVE_NVTX

#include <nvtx3/nvToolsExt.h>

namespace penstock {
namespace {

nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t ours = nvtxDomainCreateA("penstock");
  return ours;
}

}  // namespace

stage_range::stage_range(const char* name) noexcept {
  nvtxEventAttributes_t what{};
  what.version = NVTX_VERSION;
  what.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  what.messageType = NVTX_MESSAGE_TYPE_ASCII;
  what.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &what);
}
stage_range::~stage_range() {
  nvtxDomainRangePop(domain());
}

}  // namespace penstock

#else

namespace penstock {

stage_range::stage_range(const char*) noexcept {}
stage_range::~stage_range() = default;

}  // namespace penstock

#endif
