// Every message that crosses a process boundary: small plain structs without floats. Sample bytes are never
// sent here; they stay in the arena. Only the results of device programs are sent in messages, at most 1 MiB each.
// docs/ARCHITECTURE.md lists who sends what to whom.
#pragma once

#include "runtime/base/ids.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::protocol {

/// Increment with every change of a message: each side refuses any other version (exit 82).
inline constexpr std::uint32_t version = 14;

/// The descriptors that a child inherits. Descriptor 0 is /dev/null; 1 and 2 are its log.
namespace child_fd {
inline constexpr int link = 3;      ///< socket to the session
inline constexpr int lifeline = 4;  ///< end of file when the session ends
inline constexpr int arena = 5;     ///< memfd of the slots; sized and sealed before it is used
inline constexpr int flight = 6;    ///< memfd of the flight recorders
/// Memory file with the dataset's index; absent if the dataset has none. In a mixture, this is the first dataset's
/// index; the next numbers are the indexes of the others. If the device decodes the files of an image folder, the next
/// number is the memory of checked_files.
inline constexpr int index = 7;
inline constexpr int indexes_max = 256;
inline constexpr int parcels =
    7;  ///< in a pool, which has no dataset: socket for large arguments and results
}  // namespace child_fd

// ---- worker -> session ------------------------------------------------------------------------------------

/// The first message of every child. `magic` distinguishes a penstock program from any other program that
/// writes to descriptor 3.
struct hello {
  static constexpr std::uint32_t expected_magic = 0x4b545350;  // "PSTK"
  std::uint32_t magic = expected_magic;
  std::uint32_t version = protocol::version;
  std::int32_t pid = 0;
};

struct wire_tensor {
  std::string name;
  std::uint8_t type = 0;  ///< penstock::dtype
  std::uint8_t role = 0;  ///< penstock::tensor_role
  std::vector<std::uint32_t> shape;
  std::uint8_t length = 0;  ///< penstock::length_rule
};

/// A worker describes its dataset.
struct dataset_described {
  std::string type;
  std::uint64_t samples = 0;
  std::vector<wire_tensor> tensors;
  std::string fingerprint;
};

/// The slots are mapped and the dataset is set up: ready for leases.
struct worker_ready {};

struct wire_row_failure {
  std::uint32_t row = 0;
  std::string name;  ///< the dataset's name for the sample
  std::string reason;
};

struct wire_timed_sample {
  std::uint64_t index = 0;
  std::string name;
  std::uint64_t took_ns = 0;
};

/// A lease is complete: the first `rows` rows of the slot hold the samples that did not fail.
struct batch_loaded {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t rows = 0;
  std::vector<wire_row_failure> failures;
  std::uint64_t busy_ns = 0;     ///< time spent on the batch
  std::uint64_t reading_ns = 0;  ///< the part of busy_ns spent waiting for storage
  std::vector<std::uint32_t> sample_us{};  ///< with [loader] hedge: how long each sample took, in microseconds
  std::uint64_t slow_ns = 0;     ///< the part of busy_ns by which slow samples took longer than usual
  std::vector<wire_timed_sample> slowest{};  ///< at most sample_times::named_max, the slowest first
};

/// A pool's worker sends this instead of dataset_described: the functions that it provides. A job refers to
/// its function by the index in this list; later workers of the same pool must send the same list.
struct functions_described {
  static constexpr std::size_t functions_max = 10'000;
  static constexpr std::size_t name_bytes_max = 200;

  std::vector<std::string> names;  ///< unique, not empty
};

/// The first `rows` rows of a lease are done: finished, failed, too large, or revoked before they started.
/// Sent at the end of the lease; before that, at most once per millisecond, and with each result in a memory
/// file. `rows` increases with each message, so run_jobs bounds the number of messages.
struct jobs_done {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t rows = 0;
};

/// The answer to name_samples: the names in the same order, cut to name_bytes_max.
struct samples_named {
  static constexpr std::size_t name_bytes_max = 4000;

  std::vector<std::string> names;
};

/// A worker or the owner cannot continue, and the reason. It then exits with `exit_code`.
struct worker_gives_up {
  std::int32_t exit_code = 0;
  std::uint8_t kind = 0;  ///< penstock::errc
  std::string reason;
};

// ---- session -> worker ------------------------------------------------------------------------------------

/// The answer to hello: the worker's identity and the dataset to open.
struct open_dataset {
  std::uint32_t version = protocol::version;
  worker_ref you;
  std::string config;  ///< the whole effective config, see config_bytes.hpp
  bool pool = false;   ///< a pool: no dataset; describe the functions instead
};

/// The answer to dataset_described or functions_described: where the worker's slots are.
struct assign_slots {
  std::uint64_t slot_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t partitions = 0;
  std::uint32_t partition = 0;
  std::uint32_t batch_size = 0;     ///< 0 in a pool
  std::uint64_t elsewhere_max = 0;  ///< in a pool: maximum bytes of a result outside its slot
};

struct wire_sample {
  std::uint64_t index = 0;
  std::uint32_t attempt = 1;
};

/// Fill a slot. A worker processes its leases in order of arrival, urgent ones before others; it has at most
/// `slots` of them.
struct load_batch {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint64_t epoch = 0;
  std::vector<wire_sample> samples;
  bool urgent = false;  ///< the stream waits for this batch
};

/// Another worker has loaded the batch of this lease: report the lease at once; its rows are not used. It may have ended
/// already.
struct drop_batch {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
};

/// Asks for the dataset's names of these samples, without loading them. Sent only after worker_ready.
struct name_samples {
  static constexpr std::size_t samples_max = 1000;

  std::vector<std::uint64_t> samples;
};

/// Run the jobs in this slot's table (runtime/arena/job_slot.hpp), in order. A worker processes its leases in
/// order of arrival; it has at most `slots` of them.
struct run_jobs {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t rows = 0;
};

/// Finish the current sample or job, drop the leases and exit 0.
struct stop_work {};

// ---- session -> owner process -----------------------------------------------------------------------------

/// The answer to hello: which device to open, and what to do with batches there.
struct open_owner {
  std::uint32_t version = protocol::version;
  std::uint32_t incarnation = 0;
  std::uint32_t flight_page = 0;  ///< number of the owner's flight page, which follows the workers' pages
  std::string config;             ///< the whole effective config, see config_bytes.hpp
  std::string sink;               ///< null, npy, journal:PATH or plugin:PATH
  std::string out;                ///< folder of the npy sink
  bool digests = false;
  bool restores = false;  ///< `snapshot` is from an earlier incarnation's sink
  std::string snapshot;
  bool pool = false;  ///< no batches and no sink: only job results arrive, for the programs in the config
  std::uint64_t base =
      0;  ///< batches before this position are in `snapshot`: the sink does not get them again
};

/// The group's order about the owner's communicator (rules C1-C5).
struct wire_communicate {
  std::uint32_t what = 0;  ///< gpu_owner::communicate::act
  std::uint64_t number = 0;
  std::string id;
  std::uint64_t agreed = 0;
};

/// Contents and layout of the slots.
struct prepare_owner {
  std::vector<wire_tensor> tensors;
  std::uint32_t batch_size = 0;
  std::uint64_t slot_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t partitions = 0;
};

/// This partition is reserved: map it for the device.
struct map_partition {
  std::uint32_t partition = 0;
};

struct wire_upload {
  std::uint64_t upload = 0;
  std::uint64_t position = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t partition = 0;
  std::uint32_t slot = 0;
  std::vector<std::uint64_t> samples;
};

struct upload_slots {
  std::vector<wire_upload> uploads;
};

struct wire_job_upload {
  std::uint64_t upload = 0;
  std::uint64_t job = 0;
  std::uint32_t partition = 0;
  std::uint32_t slot = 0;
  std::uint64_t offset = 0;  ///< within the slot
  std::uint64_t bytes = 0;
  std::uint32_t program = 0;  ///< index in [jobs.programs], sorted by name
  std::string function;       ///< name of the function that made the result; for log and error texts
};

/// In a pool: job results, each for a device program.
struct upload_jobs {
  std::vector<wire_job_upload> uploads;
};

/// Nothing more will follow: finish work in progress, let the sink finish if the stream is complete, and exit
/// 0.
struct stop_owner {
  bool whole = false;
};

// ---- owner process -> session -----------------------------------------------------------------------------

/// The communicator's state, or the id of a new one.
struct communicator_changed {
  std::uint64_t number = 0;
  std::uint32_t at = 0;  ///< group::communicator_state::how
  std::string cause;
  std::string id;  ///< if not empty: the answer to draw_id
};

struct owner_opened {
  std::string kind;
  std::string name;
  std::string uuid;  ///< empty: none
};

/// The device has copied these slots.
struct slots_copied {
  std::vector<std::uint64_t> uploads;
};

struct wire_delivery {
  std::uint64_t upload = 0;
  std::uint64_t digest = 0;
  // When the batch passed the owner's stages, in nanoseconds of the steady clock, which owner and session
  // share.
  std::int64_t submitted_ns = 0;
  std::int64_t copied_ns = 0;
  std::int64_t ready_ns = 0;
  std::int64_t taken_ns = 0;
  std::int64_t released_ns = 0;
  std::int64_t demanded_ns = 0;  ///< when the sink became free for this batch
};

/// The sink has taken these batches. Counts are of this incarnation.
struct batches_delivered {
  std::vector<wire_delivery> deliveries;
  bool digests = false;
  std::uint64_t uploads = 0;  ///< since the previous such message
  std::uint64_t bytes = 0;
  bool pinned = false;
  bool snapshots = false;  ///< `snapshot` covers everything up to the last of `deliveries`
  std::string snapshot;
};

struct wire_job_answer {
  std::uint64_t upload = 0;
  std::uint32_t how = 0;  ///< 0: ok, 1: device, 2: too_large
  std::string text;       ///< why there is no result
  std::string bytes;      ///< the program's result
};

/// In a pool, instead of batches_delivered: the results of device programs for these jobs.
struct jobs_answered {
  std::vector<wire_job_answer> answers;
  std::uint64_t uploads = 0;  ///< since the previous such message
  std::uint64_t bytes = 0;
  bool pinned = false;
};

/// The sink cannot be replayed: the run fails if this process dies.
struct owner_irreplaceable {};

struct wire_gpu_process {
  std::uint64_t pid = 0;
  std::uint64_t bytes = 0;
};

/// The answer to map_partition: the device can read the partition.
struct partition_attached {
  std::uint32_t partition = 0;
  std::uint64_t bytes = 0;
  bool pinned = false;
  std::uint64_t took_ns = 0;
};

/// The processes that NVML sees on the GPU; first sent some time after owner_opened, then repeatedly.
struct gpu_processes_seen {
  std::vector<wire_gpu_process> processes;
};

}  // namespace penstock::protocol
