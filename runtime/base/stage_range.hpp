// NVTX ranges, which show the stages of a batch by name in Nsight Systems. Used by every stage;
// docs/operating.md lists the names.
#pragma once

namespace penstock {

/// A named range on this thread, from construction to destruction. Ranges nest. Costs a call and a branch
/// when no tool is attached, and only the call in a build without NVTX's header. Loads no library unless a
/// tool requests it in the environment.
class stage_range {
 public:
  explicit stage_range(const char* name) noexcept;
  ~stage_range();
  stage_range(const stage_range&) = delete;
  stage_range& operator=(const stage_range&) = delete;
};

}  // namespace penstock
