// NVTX ranges: Nsight shows the stages of a batch by name. Costs nothing when no tool listens.
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace penstock::device {

class stage_range {
 public:
  explicit stage_range(const char* name) noexcept {
    nvtxEventAttributes_t what{};
    what.version = NVTX_VERSION;
    what.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    what.messageType = NVTX_MESSAGE_TYPE_ASCII;
    what.message.ascii = name;
    nvtxDomainRangePushEx(domain(), &what);
  }
  ~stage_range() { nvtxDomainRangePop(domain()); }
  stage_range(const stage_range&) = delete;
  stage_range& operator=(const stage_range&) = delete;

 private:
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t ours = nvtxDomainCreateA("penstock");
    return ours;
  }
};

}  // namespace penstock::device
