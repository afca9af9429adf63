// One function per row of the table of checks: facts in, finding out. Used only by checks.cpp.
#pragma once

#include "runtime/base/counted.hpp"
#include "tools/penstock/doctor/checks.hpp"

namespace penstock::doctor {

// If one row fails, rows that depend on it are skipped and name it: one cause, one failed row.

// Drivers and libraries (check_driver.cpp).
finding check_build(const facts& f);
finding check_driver_module(const facts& f);
finding check_device_nodes(const facts& f);
finding check_libcuda(const facts& f);
finding check_driver_runtime(const facts& f);
finding check_toolkit(const facts& f);
finding check_init(const facts& f);
finding check_nvml(const facts& f);
finding check_visible_devices(const facts& f);

// The GPU of the job (check_gpu.cpp).
finding check_selected(const facts& f);
finding check_architecture(const facts& f);
finding check_mig(const facts& f);
finding check_compute_mode(const facts& f);
finding check_device_memory(const facts& f);
finding check_ecc(const facts& f);
finding check_xid(const facts& f);
finding check_numa(const facts& f);
finding check_pcie(const facts& f);
finding check_links(const facts& f);  // check_links.cpp
finding check_nvjpeg(const facts& f);  // check_links.cpp
finding check_deep(const facts& f);
finding check_pinning(const facts& f);

// Machine, loader and data (check_host.cpp).
finding check_arena_memory(const facts& f);
finding check_open_files(const facts& f);
finding check_pids(const facts& f);
finding check_cpus(const facts& f);
finding check_pidfd(const facts& f);
finding check_parent_death(const facts& f);
finding check_memfd_seals(const facts& f);
finding check_orphans(const facts& f);
finding check_dead_sockets(const facts& f);
finding check_left_folders(const facts& f);
finding check_config(const facts& f);
finding check_worker_program(const facts& f);
finding check_worker_protocol(const facts& f);
finding check_worker_cuda_free(const facts& f);
finding check_dataset(const facts& f);
finding check_sample(const facts& f);
finding check_isolation(const facts& f);

// A rank of a group (check_group.cpp). Skipped if no launcher has made this process a rank.
finding check_rank(const facts& f);
finding check_rank_gpus(const facts& f);
finding check_meeting_place(const facts& f);
finding check_secret(const facts& f);
finding check_nccl(const facts& f);

// A session or a loader host on another machine (check_loader_host.cpp).
finding check_reach(const facts& f);
finding check_hosts_secret(const facts& f);
finding check_versions(const facts& f);
finding check_round_trip(const facts& f);
finding check_bandwidth(const facts& f);
finding check_clocks(const facts& f);
finding check_data_here(const facts& f);
finding check_same_data(const facts& f);
finding check_cores(const facts& f);

/// Skips rows about a GPU unless the job wants one.
[[nodiscard]] std::optional<finding> not_asked(const facts& f);
[[nodiscard]] finding skipped(std::string why);
/// How a child ended: the step at which it hung or died.
[[nodiscard]] std::string hang_or_death(const child_outcome& child);

}  // namespace penstock::doctor
