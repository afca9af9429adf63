// A group of programs that a launcher started as ranks of one job (penstock launch, torchrun, srun, mpirun,
// ...). Tells each process its rank, provides barriers and small all-gathers, and reports the
// first cause when a rank is lost. For programs that embed penstock, with or without sessions.
//
//   penstock::Group group({.name = "train"});            // returns when all ranks have arrived
//   penstock::Session session(settings, {.join_group = true});
//   while (auto batch = session.next()) {
//     ...
//     auto losses = group.all_gather(bytes_of(loss), 30s);
//   }
//   group.barrier(30s);
//
// All ranks make the same collective operations - barrier() and all_gather() - in the same order. They are
// for control: agreeing on a number, or letting rank 0 write a file first. They pass through rank 0, over
// the group's control links. Gradients of real models belong to NCCL: with settings.communicator =
// communicator_kind::nccl the group has a communicator of all ranks' GPUs.
#pragma once

#include <penstock/config.hpp>
#include <penstock/error.hpp>
#include <penstock/export.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

class Communicator;  // one rank's end of NCCL: penstock/nccl.hpp

struct group_options {
  /// The same in all ranks; it distinguishes the groups of one job. Sessions have their own groups, so it may
  /// equal the name of a session.
  std::string name = "program";
  /// The keys of [group] in a config file: on_lost_rank, join_timeout, lost_after, rejoin_timeout, secret_file, insecure,
  /// communicator, abort_timeout.
  ///
  /// on_lost_rank = "wait" declares that this program can rejoin: if its launcher restarts a lost rank, the
  /// new process takes its place, and the others wait for it in their next collective operation until their
  /// deadline.
  group_config settings{};
  /// How many collective operations this rank had completed when it wrote the state from which it continues:
  /// the value of Group::collectives() then. It may be at most one less than what the
  /// lost process had completed.
  std::uint64_t collectives = 0;
  /// Values that all ranks must have in common, by name: seed, number of epochs, ... A difference fails the
  /// start on every rank, and the error names both ranks and both values. At most 1000 entries, 60 KiB in
  /// total.
  std::vector<std::pair<std::string, std::string>> agree{};
  /// Called about every 50 ms on the waiting thread. Its exceptions leave the call
  /// that waits; the next call continues the interrupted collective operation.
  std::function<void()> while_waiting{};
};

/// Threads: collective operations and close() on one thread at a time (a second one gets errc::usage);
/// everything else from any thread. One of penstock's threads answers the other ranks meanwhile, so a program
/// that computes for minutes is not considered lost. In a forked child every member throws errc::usage, and
/// destroying the copy does nothing.
class PENSTOCK_API Group {
 public:
  /// Joins, and returns when all ranks have arrived and agree. Throws error: errc::config if no launcher
  /// started this process (the message names the known ones) or the links cannot be made; errc::group_failed
  /// with the first cause if the ranks disagree, or if one does not arrive within join_timeout; the message
  /// names it.
  explicit Group(group_options options = {});
  /// Calls close(). While an exception propagates, first tells the others that this rank has failed.
  ~Group();
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;

  [[nodiscard]] std::uint32_t rank() const;
  [[nodiscard]] std::uint32_t world_size() const;
  /// This rank's number among the ranks of its host, which is also the number of
  /// its GPU. Throws error (errc::config) if the launcher does not provide it.
  [[nodiscard]] std::uint32_t local_rank() const;

  /// Returns when all ranks have entered the barrier. Throws error: errc::group_failed with the first cause
  /// (a lost rank under on_lost_rank = "fail", ranks in different operations, a rank that has left);
  /// errc::timed_out if the deadline passes first, naming the ranks that have not entered it. The operation
  /// then stays open: the next call must be the same operation, and continues it.
  void barrier(std::chrono::milliseconds deadline);
  /// The bytes of all ranks, by rank. Contents and sizes may differ between ranks; a size beyond
  /// all_gather_max() is errc::usage. Otherwise like barrier().
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> own,
                                                               std::chrono::milliseconds deadline);
  /// 64 KiB; less in groups of more than 256 ranks, so that the total is at most 16 MiB.
  [[nodiscard]] std::size_t all_gather_max() const;
  /// How many collective operations are complete, including group_options::collectives.
  [[nodiscard]] std::uint64_t collectives() const;

  /// Throws error (errc::group_failed) with the first cause if the group has failed. Does not wait.
  void check() const;
  /// Reports that this rank cannot continue. Ends the group on every rank, with `why` as the cause. Does not wait.
  void fail(const std::string& why);
  /// Leaves the group: this rank makes no more collective operations, and a rank that needs it for one gets
  /// an error. Rank 0 waits until all have left, because the others connect to it; with a communicator every
  /// rank waits.
  void close() noexcept;
  /// Like close(), for a program that must do other work while it waits, such as handling signals.
  /// Returns false if the others have not left within `at_most`; the next call, close() or the
  /// destructor continues the wait.
  [[nodiscard]] bool close_within(std::chrono::milliseconds at_most) noexcept;

  /// The communicator of the ranks' GPUs (usage: penstock/nccl.hpp), valid as long as this Group exists. Null
  /// if settings.communicator asks for none.
  ///
  /// A rank's GPU is the one whose context is current on the thread that makes the Group (cudaSetDevice);
  /// without a current context, the GPU numbered local_rank(). Joining throws error: errc::config if there is
  /// no GPU; errc::device_unavailable if there is no suitable NCCL; errc::group_failed if two ranks have the
  /// same GPU.
  ///
  /// One of penstock's threads makes the communicator once all ranks have joined, and again after a loss. A use
  /// waits for it for up to twice join_timeout (plus rejoin_timeout under "wait"), then throws errc::timed_out.
  /// The loss of a rank ends the communicator on all ranks. The group continues with a new one if on_lost_rank
  /// says so, or if the cause was an error of NCCL. If the communicator cannot be made, or cannot be aborted
  /// within abort_timeout because a use is open or NCCL hangs, all calls on all ranks throw errc::group_failed,
  /// and this process can never have a communicator again.
  ///
  /// To end: wait for the last work, check is_lost(), call barrier(), then close(). A rank that skips the
  /// barrier waits in close() for the others. After lost_after, the communicator is aborted even if they still
  /// use it: is_lost() is then true even for completed work. Once close() has returned, is_lost() is true for
  /// all work.
  [[nodiscard]] Communicator* communicator() const noexcept;

 private:
  class body;
  [[nodiscard]] body& held() const;
  std::unique_ptr<body> body_;
};

}  // namespace penstock
