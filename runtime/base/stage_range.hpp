// NVTX ranges: Nsight Systems shows by name what our threads and processes do, every stage of a batch first
// of all. Used wherever a stage is; docs/operating.md lists the names.
#pragma once

namespace penstock {

/// Names the time until its end, on this thread. Ranges nest. Costs a call and a branch when no tool is
/// attached, and in a build without NVTX's header the call alone. Loads nothing unless a tool asks for it in
/// the environment.
class stage_range {
 public:
  explicit stage_range(const char* name) noexcept;
  ~stage_range();
  stage_range(const stage_range&) = delete;
  stage_range& operator=(const stage_range&) = delete;
};

}  // namespace penstock
