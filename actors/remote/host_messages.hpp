// The messages between a session and a connection of a loader host (actors/remote/host_stream.hpp). Raw bytes follow only the
// messages marked "raw bytes" here; each of them says how many.
//
//   host                                          session
//         <------------------------- session_calls   only if the session has connected
//     host_hello  ------------------------------->   version of penstock; or host_busy: all workers serve others, or the session has its share
//         <------------------------------ welcome    the config, and a pool's code as raw bytes; or refused
//     dataset_found, program_found --------------->   the host's own listing, or its versions; or cannot_join
//         <---------------------------- place_given   or refused
//     (any number of workers, one at a time)
//         <---------------------------- start_place
//     place_started, or place_not_started ---------->
//     from_place  <---- frames of the worker's link ---->  to_place
//     batch_follows, raw bytes, digest ---------->   send_again, if they were damaged
//         <---------------- job_follows, raw bytes   in a pool: one job at a time
//     job_over, raw bytes, digest --------------->   send_again
//         <--------------------------- file_offered   a file that jobs need
//     file_answer ------------------------------->   file_follows, raw bytes, if the host does not have it
//     flight_seen, output_line ------------------->   signal_place
//     place_ended --------------------------------->
//     host_leaves -------------------------------->   session_over
//         <---------------------------- please_leave
//     host_offers -------------------------------->   how many workers the session may have
//     pong <--------------------------------> ping
//
// `penstock doctor --host` only asks questions, as the magic number of its first message says, and gets no place:
//
//     probe_asked, raw bytes --------------------->   any number of times, also dataset_found and program_found
//         <---------------------- probe_told, raw bytes
#pragma once

#include "actors/protocol/messages.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace penstock::hosts {

// ---- host -> session ----------------------------------------------------------------------------------------

struct host_hello {
  static constexpr std::uint32_t expected_magic = 0x48545350;  // "PSTH"
  static constexpr std::uint32_t magic_of_probe = 0x44545350;  // "PSTD"
  std::uint32_t magic = expected_magic;
  std::uint32_t version = protocol::version;
  std::string penstock;  ///< version
  std::string name;
  std::int32_t pid = 0;
  std::uint64_t process = 0;
  std::uint32_t workers = 1;  ///< workers that the session may have
  std::uint32_t cores = 1;    ///< cores that these workers may use
  std::uint32_t workers_of_all = 1;  ///< workers for all sessions of this host
};

/// A fact about a program that must be the same on both sides: "Python", "3.11.2".
struct wire_fact {
  std::string name;
  std::string value;
};

struct dataset_found {
  protocol::dataset_described dataset;
  std::vector<wire_fact> program{};  ///< set only for a custom dataset
};

/// Sent instead of dataset_found for a pool.
struct program_found {
  std::vector<wire_fact> facts;
};

/// The host cannot work for the session. When sent later: no worker of this host can load anything.
struct cannot_join {
  std::string why;
};

struct place_started {
  std::int32_t pid = 0;
};

struct place_not_started {
  std::string why;
};

/// Frames of the worker's link, except those of loaded batches.
struct from_place {
  std::string frame;
};

/// A batch is loaded. The next `bytes` bytes are the beginning of its slot; then comes their xxHash3 (8 bytes), if the session
/// asked for it.
struct batch_follows {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t rows = 0;
  std::uint64_t bytes = 0;
  std::string report;   ///< the worker's batch_loaded, as a frame
  bool packed = false;  ///< the bytes are compressed (packing.hpp)
};

/// The running job has ended. The next `bytes` bytes are its result or its error (arena::job_exception_text);
/// their digest follows, as after batch_follows.
struct job_over {
  std::uint8_t how = 0;  ///< arena::row_state
  std::int64_t busy_ns = 0;
  std::uint64_t bytes = 0;
};

/// The host's answer to file_offered.
struct file_answer {
  std::uint64_t number = 0;
  bool wanted = false;  ///< true: the session must send the file; false: the host has the file, or the file was withdrawn
};

/// The worker's flight page. Times are ages, because the clocks differ.
struct flight_seen {
  std::uint64_t word = 0;
  std::uint64_t heartbeats = 0;
  std::uint64_t samples_done = 0;
  std::uint64_t private_bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::string sample_name;
  std::int64_t since_ns = 0;
  std::int64_t reads_since_ns = -1;  ///< -1: no read is in progress
  std::int64_t mark = -1;            ///< in a pool: what the job has marked as its progress; -1: nothing
  std::int64_t cpu_ns = 0;           ///< processor time of the thread that works on samples
  std::int64_t core_wait_ns = 0;     ///< how long that thread has waited for a core
  bool traced = false;  ///< a debugger is attached
  std::uint64_t sample = 0;   ///< the index of the sample with that name
  std::uint32_t attempt = 0;  ///< 0: the worker is loading no sample
};

struct output_line {
  std::string line;
};

struct place_ended {
  std::int32_t pid = 0;
  std::uint8_t how = 0;  ///< process::exit_report::how
  std::int32_t code = 0;
  std::string last_output;
};

struct host_leaves {};

/// Any other message is a sign of life, too.
struct pong {
  std::uint64_t number = 0;  ///< number of the ping that this answers; 0: unasked, while a long transfer is being received
  std::int64_t cpu_ns = 0;  ///< processor time of this connection and its workers, since it joined
};

/// How many workers of this host the session may have now (rule H14).
struct host_offers {
  std::uint32_t workers = 1;
};

/// The host has no worker for this call.
struct host_busy {
  std::string why;
};

// ---- session -> host ----------------------------------------------------------------------------------------

struct welcome {
  std::string session;
  std::string config;  ///< protocol::config_as_bytes
  bool digests = false;
  std::string program{};  ///< the kind of program that runs a pool's jobs: "Python"; empty: a stream's workers
  std::uint64_t code_bytes = 0;
  std::uint64_t marks_bytes = 0;  ///< size of the file in which jobs mark their progress
  std::uint64_t nonce = 0;        ///< distinguishes pools, whose files have the same numbers
};

/// `for_good`: trying again would not help.
struct refused {
  std::string why;
  bool for_good = true;
};

struct place_given {
  std::uint32_t place = 0;
};

struct start_place {};

struct to_place {
  std::string frame;
};

struct signal_place {
  std::int32_t number = 0;
};

/// Run this job. The next `bytes` bytes are its argument.
struct job_follows {
  std::uint64_t job = 0;
  std::uint32_t function = 0;
  std::uint32_t attempt = 1;
  std::int64_t limit_ns = 0;
  std::uint64_t bytes = 0;
};

/// Later jobs may need this file of the session's program.
struct file_offered {
  std::uint64_t number = 0;
};

struct file_follows {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
};

/// The bytes of this slot were damaged; in a pool, those of the last result.
struct send_again {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
};

struct session_over {};

struct ping {
  std::uint64_t number = 0;
  std::int64_t waited_ns = 0;  ///< how long the session's consumer has waited so far
  std::uint32_t workers = 0;   ///< how many workers of this host may run for the session (rule H16)
};

/// The first message of a session that has connected to a host.
struct session_calls {
  static constexpr std::uint32_t expected_magic = 0x53545350;  // "PSTS"
  static constexpr std::uint32_t magic_of_probe = 0x43545350;  // "PSTC"
  std::uint32_t magic = expected_magic;
  std::string session;
  std::uint64_t process = 0;  ///< a random number that distinguishes sessions with the same name
};

/// An operator wants this host to leave the session (rule H18).
struct please_leave {};

// ---- both, for penstock doctor ------------------------------------------------------------------------------

/// `bytes` raw bytes follow; the answer must contain `wanted` raw bytes.
struct probe_asked {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint64_t wanted = 0;
};

/// `bytes` raw bytes follow.
struct probe_told {
  std::uint64_t number = 0;
  std::int64_t unix_ns = 0;  ///< the peer's clock
  std::uint64_t bytes = 0;
  std::string difference;  ///< how the dataset or program that was found differs from the session's; empty: not at all
};

using from_host = std::variant<host_hello, dataset_found, cannot_join, place_started, place_not_started, from_place, batch_follows,
                               flight_seen, output_line, place_ended, host_leaves, pong, host_busy, program_found, job_over,
                               file_answer, host_offers, probe_asked, probe_told>;
using to_host = std::variant<welcome, refused, place_given, start_place, to_place, signal_place, send_again, session_over, ping,
                             session_calls, please_leave, job_follows, file_offered, file_follows, probe_asked, probe_told>;

}  // namespace penstock::hosts
