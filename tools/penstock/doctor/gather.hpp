// Gathers the facts. Reads files and starts throwaway processes; changes nothing. Used by the doctor command.
#pragma once

#include "tools/penstock/doctor/facts.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

namespace penstock::doctor {

struct gather_options {
  std::filesystem::path root = "/";  ///< /proc, /sys, /dev and library folders are read below it
  std::chrono::milliseconds probe_deadline = machine::probe_deadline;
};

/// How this program was built.
[[nodiscard]] build_facts facts_of_this_build();

/// Facts from /proc, /sys, /dev, libcuda and NVML.
[[nodiscard]] gpu_facts look_at_gpu(const gather_options& options);
/// Runs penstock-probe's `deep` mode on the configured device, with the job's arena.
[[nodiscard]] deep_facts go_deep(const std::string& device, const config& settings, std::uint32_t workers,
                                 std::uint64_t slot_bytes);

/// Copies to the GPU and back through pageable memory. Returns the error; empty on success.
[[nodiscard]] std::string copy_without_pinning(int ordinal);

[[nodiscard]] machine_facts look_at_machine(const gather_options& options);

/// Examines this process as a rank of a group and fills `group`. Connects to rank 0's address if it is on
/// another host, within 3 s; opens NCCL if [group] uses it.
void look_at_group(const config& settings, group_facts& to);
/// Opens nvJPEG if [image] decoder uses it.
void look_at_decoder(const config& settings, gpu_facts& to);

struct hosts_request {
  std::string address;
  std::string secret_file;
  bool insecure = false;
  string_map data{};  ///< for each folder of the session, its path on this machine
  std::string version;
  std::string program{};  ///< "Python": the program that this command can start for a session
  string_map program_facts{};
  std::vector<std::string> dataset_program{};  ///< the command of custom datasets; empty: none
  std::chrono::milliseconds deadline = machine::probe_deadline;  ///< the limit for listing the dataset
};
/// Asks the session or the loader host that listens at an address, and lists the session's dataset here. Returns true if a
/// thread is still listing it, which the caller must not wait for.
[[nodiscard]] bool look_at_loader_host(const hosts_request& request, hosts_facts& to);

struct job_request {
  bool has_config = false;
  bool cpu_only = false;
  std::filesystem::path root = "/";
};
/// Examines the job's needs, its dataset and its worker program: fills job, data and worker.
void look_at_job(const config& settings, const job_request& request, facts& to);

/// Starts one worker as a session would; if `load` is set, the worker loads the first samples. `description`:
/// what the listing of the dataset found here; `index`: the dataset's sealed list (-1: none).
struct probation_result {
  worker_facts worker;
  std::optional<dataset_description> described;
};
[[nodiscard]] probation_result try_a_worker(const config& settings, bool load,
                                            const std::vector<int>& indexes);

/// Runs the job step by step: `file` and `sets` as `penstock run` takes them.
struct isolation_request {
  std::string file;
  std::vector<std::string> sets;
  std::uint32_t workers = 1;
  bool gpu = false;        ///< whether a GPU is requested and was found
  std::string why_no_gpu;  ///< the reason if `gpu` is false
  int ordinal = 0;
  deep_facts deep;  ///< results of --deep, used for the pinning step
  bool custom_dataset = false;
};
[[nodiscard]] std::vector<isolation_step> isolate(const isolation_request& request);
/// The first step, run in a throwaway process: loads the first samples without a worker. Returns the exit
/// code.
int load_without_workers(const config& settings);

}  // namespace penstock::doctor
