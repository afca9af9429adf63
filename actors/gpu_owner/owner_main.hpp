// The owner in its own process (placement = "process"): the implementation of penstock-gpu.
//
//   receives  open_owner, prepare_owner, map_partition, upload_slots, stop_owner        from the session
//   sends     hello, owner_opened, slots_copied, batches_delivered, owner_irreplaceable,
//             gpu_processes_seen, partition_attached, worker_gives_up
//   owns      the device (through the GPU owner actor), the sink
//
// owner_body.hpp contains the work itself; this is the process around it: the inherited descriptors, the
// heartbeat and the exit codes. The main thread is the consumer.
//
// After a sticky device error the process reports the error and exits 79 without destructors: nothing in a
// poisoned context can be freed. The session starts a new owner and resends everything not acknowledged.
#pragma once

namespace penstock {

/// The main() of penstock-gpu. Returns or exits with the exit codes of child processes.
int owner_main();

}  // namespace penstock
