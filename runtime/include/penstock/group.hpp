// A group of programs that a launcher has started as ranks of one job (penstock launch, torchrun, srun, mpirun, ...): who
// they are, barriers, small all-gathers, and the first cause when one is lost. For programs that embed penstock, with
// sessions or without.
//
//   penstock::Group group({.name = "train"});            // returns when all ranks have arrived
//   penstock::Session session(settings, {.join_group = true});
//   while (auto batch = session.next()) {
//     ...
//     auto losses = group.all_gather(bytes_of(loss), 30s);
//   }
//   group.barrier(30s);
//
// Collective operations - barrier() and all_gather() - are made by all ranks, in the same order. They are for control: to
// agree on a number, to let rank 0 write a file first. They travel through rank 0, over the group's control links. Gradients
// of real models belong to NCCL: with settings.communicator = communicator_kind::nccl the group has a communicator of all
// ranks' GPUs.
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
  /// The same in all ranks; groups of one job are told apart by it. Sessions have groups of their own, so it may be the
  /// name of one.
  std::string name = "program";
  /// As in a config file: on_lost_rank, join_timeout, lost_after, rejoin_timeout, secret_file, insecure, communicator,
  /// abort_timeout.
  ///
  /// on_lost_rank = "wait" says that this program can rejoin: if its launcher starts a lost rank again, it takes the place
  /// of the lost one, and the others wait for it in their next collective operation until their deadline.
  group_config settings{};
  /// How many collective operations this rank had done when it wrote the state from which it goes on: Group::collectives()
  /// of then. It may be at most one behind what the lost process had done.
  std::uint64_t collectives = 0;
  /// What all ranks have to have alike, by name: seed, number of epochs, ... A difference fails the start on every rank,
  /// and the error names both ranks and both values. At most 1000, 60 KiB in all.
  std::vector<std::pair<std::string, std::string>> agree{};
  /// Called about every 50 ms on the thread that waits. Exceptions from it leave the call; a collective operation that was
  /// left like this is continued by the next call.
  std::function<void()> while_waiting{};
};

/// Threads: collective operations and close() on one thread at a time (a second one gets errc::usage); everything else
/// from any thread. A thread of penstock's own answers the other ranks meanwhile, so a program that computes for minutes
/// is not lost. In a forked child every member throws errc::usage, and destroying the copy does nothing.
class PENSTOCK_API Group {
 public:
  /// Joins, and returns when all ranks are there and agree. Throws error: errc::config where no launcher has started this
  /// process (naming those that are known), or the links cannot be made; errc::group_failed with the first cause if the
  /// ranks disagree, or one does not arrive within join_timeout and is named.
  explicit Group(group_options options = {});
  /// close(); while an exception passes through, the others are told that this rank has failed.
  ~Group();
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;

  [[nodiscard]] std::uint32_t rank() const;
  [[nodiscard]] std::uint32_t world_size() const;
  /// This rank among those of its host: the number of its GPU. Throws error (errc::config) if the launcher does not say.
  [[nodiscard]] std::uint32_t local_rank() const;

  /// Returns when all ranks have entered it. Throws error: errc::group_failed with the first cause (a lost rank under
  /// on_lost_rank = "fail", ranks in different operations, a rank that has left); errc::timed_out when the deadline has
  /// passed first, naming the ranks that have not entered it. After that the operation is still open: only the same one
  /// can be called next, which continues it.
  void barrier(std::chrono::milliseconds deadline);
  /// The bytes of all ranks, by rank. Each may give other ones, of any size up to all_gather_max(): errc::usage beyond.
  /// Otherwise like barrier().
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> own,
                                                               std::chrono::milliseconds deadline);
  /// 64 KiB; less in groups of more than 256 ranks, 16 MiB in all.
  [[nodiscard]] std::size_t all_gather_max() const;
  /// How many collective operations are done, those of group_options::collectives included.
  [[nodiscard]] std::uint64_t collectives() const;

  /// Throws error (errc::group_failed) with the first cause if the group has failed. Does not wait.
  void check() const;
  /// This rank cannot go on: ends the group with `why` as its cause, in every rank. Does not wait.
  void fail(const std::string& why);
  /// Leaves: this rank makes no more collective operations. Others that need it for one are told so. Rank 0 waits until
  /// all have left, because the others meet there; with a communicator every rank does.
  void close() noexcept;
  /// close() for a program that does something else meanwhile, such as looking after signals. False: the others have not
  /// left within that time. The next call goes on, as do close() and the destructor.
  [[nodiscard]] bool close_within(std::chrono::milliseconds at_most) noexcept;

  /// The communicator of the ranks' GPUs (penstock/nccl.hpp says how to use it), as long as this Group is there. Null if
  /// settings.communicator asks for none.
  ///
  /// A rank's GPU is the one whose context is current on the thread that makes the Group (cudaSetDevice); if there is
  /// none, the one with the number local_rank(). Joining throws error: errc::config if there is no GPU, or
  /// errc::device_unavailable if there is no NCCL that fits; errc::group_failed if two ranks have one GPU.
  ///
  /// It is made when all ranks have joined, on a thread of penstock's, and again after a loss; a use waits for it, for
  /// twice join_timeout (and rejoin_timeout, under "wait"), then throws errc::timed_out. A lost rank ends it on all ranks; the
  /// group goes on with another one if on_lost_rank says so, or if it was an error of NCCL. errc::group_failed for all
  /// calls of all ranks if it cannot be made, or cannot be aborted within abort_timeout because a use is open, or NCCL
  /// hangs: this process then cannot have one again.
  ///
  /// The end: wait for the last work, ask is_lost(), make a barrier(), then close(). A rank that calls close() without the
  /// barrier waits there for the others, and after lost_after the communicator is aborted under them: is_lost() is then true
  /// for work that was done before, as it is for everything when close() has returned.
  [[nodiscard]] Communicator* communicator() const noexcept;

 private:
  class body;
  [[nodiscard]] body& held() const;
  std::unique_ptr<body> body_;
};

}  // namespace penstock
