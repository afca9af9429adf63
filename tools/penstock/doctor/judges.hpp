// The functions of the table of checks, one per row: facts in, finding out. Used only by checks.cpp.
#pragma once

#include "tools/penstock/doctor/checks.hpp"

namespace penstock::doctor {

// The GPU (judge_gpu.cpp). A row that cannot be judged because another one failed is skipped and names that
// one: one cause, one failed row.
finding judge_build(const facts& f);
finding judge_driver_module(const facts& f);
finding judge_device_nodes(const facts& f);
finding judge_libcuda(const facts& f);
finding judge_driver_runtime(const facts& f);
finding judge_toolkit(const facts& f);
finding judge_init(const facts& f);
finding judge_nvml(const facts& f);
finding judge_visible_devices(const facts& f);
finding judge_selected(const facts& f);
finding judge_architecture(const facts& f);
finding judge_mig(const facts& f);
finding judge_compute_mode(const facts& f);
finding judge_device_memory(const facts& f);
finding judge_ecc(const facts& f);
finding judge_xid(const facts& f);
finding judge_numa(const facts& f);
finding judge_pcie(const facts& f);
finding judge_links(const facts& f);  // judge_links.cpp
finding judge_deep(const facts& f);
finding judge_pinning(const facts& f);

// Machine, loader and data (judge_host.cpp).
finding judge_arena_memory(const facts& f);
finding judge_open_files(const facts& f);
finding judge_pids(const facts& f);
finding judge_cpus(const facts& f);
finding judge_pidfd(const facts& f);
finding judge_parent_death(const facts& f);
finding judge_memfd_seals(const facts& f);
finding judge_orphans(const facts& f);
finding judge_dead_sockets(const facts& f);
finding judge_left_folders(const facts& f);
finding judge_config(const facts& f);
finding judge_worker_program(const facts& f);
finding judge_worker_protocol(const facts& f);
finding judge_worker_cuda_free(const facts& f);
finding judge_dataset(const facts& f);
finding judge_sample(const facts& f);
finding judge_isolation(const facts& f);

// A rank of a group (judge_group.cpp). Skipped where no launcher has made this process a rank.
finding judge_rank(const facts& f);
finding judge_rank_gpus(const facts& f);
finding judge_meeting_place(const facts& f);
finding judge_secret(const facts& f);
finding judge_nccl(const facts& f);

/// Rows about a GPU are judged only if one is wanted.
[[nodiscard]] std::optional<finding> not_asked(const facts& f);
/// "9 GPUs", "1 GPU".
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view noun);
[[nodiscard]] finding skipped(std::string why);

}  // namespace penstock::doctor
