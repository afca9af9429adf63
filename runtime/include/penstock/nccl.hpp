// The communicator of a group: one rank's end of the NCCL communicator between the GPUs of all ranks. Device
// programs get it with each batch if the config says `[group] communicator = "nccl"`; programs that embed
// penstock get it from Group::communicator(). Header-only: a program needs neither NCCL's header nor its
// library, which penstock loads; programs that have the header may use `handle()` with NCCL's own functions.
//
//   void on_batch(const penstock::DeviceBatch& batch, penstock::stream_handle stream) override {
//     ...                                                           // gradients of this rank's rows
//     penstock::communicator_use group(*batch.communicator);       // waits; throws if the communicator is lost
//     group.all_reduce(gradients, gradients, count, penstock::reduction::sum, stream);
//   }                                                              // the use ends; the work may continue
//
// Rules. All ranks take the same steps, and call the same operations in the same order in each step. Use the
// communicator only inside a communicator_use, and end the use before you wait for the work. When a rank is
// lost, the communicator is aborted on all ranks, after every use has ended; the abort ends work that waits
// for the lost rank. Discard what such work has written.
//
// Device programs: do not catch the exception that reports a loss. A use that stays open for [group]
// abort_timeout ends the owner's process. After a loss, programs return to their snapshot of the last step that
// all ranks have. A restarted rank has none: in the first step with a new `number()`, let a rank that has state
// `broadcast` it to those that have none.
//
// Programs that embed penstock: when the work is done (wait for the stream), check is_lost() before you use its
// results. A loss is thrown once (errc::group_failed): by the use that notices it, or by the next one. Catch it
// if the group continues ([group] on_lost_rank = "wait", or an error of NCCL): the next use waits for the next
// communicator, which has a higher number(). Use it to bring all ranks to the same state, as above. Queued work
// uses its memory until it is done, even after a loss: wait for the stream before you free the memory. A use
// that stays open for abort_timeout ends the group on all ranks.
#pragma once

#include <penstock/stream.hpp>

#include <cstddef>
#include <cstdint>

struct ncclComm;  // behind ncclComm_t

namespace penstock {

/// One rank's end. Lent by DeviceBatch::communicator and Group::communicator(); used through
/// communicator_use.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t world_size() const noexcept = 0;

 protected:
  struct entry {
    ncclComm* handle = nullptr;
    std::uint64_t number = 0;
  };
  virtual ~Communicator() = default;

 private:
  friend class communicator_use;
  virtual entry enter() = 0;
  virtual void leave() noexcept = 0;
  virtual void* function(const char* name) = 0;
  virtual void settle(int status, const char* what) = 0;

 public:
  /// Whether the communicator with this communicator_use::number() is lost: work that used it may then be
  /// incomplete. Thread-safe.
  [[nodiscard]] virtual bool is_lost(std::uint64_t number) const = 0;
};

/// NCCL's ncclRedOp_t.
enum class reduction : int { sum = 0, product = 1, maximum = 2, minimum = 3 };

namespace detail {

/// NCCL's ncclDataType_t; not defined for any other type.
template <class T>
struct nccl_type_of;
template <>
struct nccl_type_of<std::int8_t> {
  static constexpr int value = 0;
};
template <>
struct nccl_type_of<std::uint8_t> {
  static constexpr int value = 1;
};
template <>
struct nccl_type_of<std::int32_t> {
  static constexpr int value = 2;
};
template <>
struct nccl_type_of<std::uint32_t> {
  static constexpr int value = 3;
};
template <>
struct nccl_type_of<std::int64_t> {
  static constexpr int value = 4;
};
template <>
struct nccl_type_of<std::uint64_t> {
  static constexpr int value = 5;
};
template <>
struct nccl_type_of<float> {
  static constexpr int value = 7;
};
template <>
struct nccl_type_of<double> {
  static constexpr int value = 8;
};

}  // namespace detail

/// A section of a program in which it may call NCCL with the communicator. For use on one thread. Buffers are
/// in the device's memory; work is queued on the stream and not waited for. Every function throws if NCCL
/// refuses, or if the communicator is lost.
class communicator_use {
 public:
  explicit communicator_use(Communicator& of) : of_(&of), now_(of.enter()) {}
  communicator_use(const communicator_use&) = delete;
  communicator_use& operator=(const communicator_use&) = delete;
  ~communicator_use() { of_->leave(); }

  [[nodiscard]] std::uint32_t rank() const noexcept { return of_->rank(); }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return of_->world_size(); }
  /// The same on all ranks; increases each time the communicator is made again.
  [[nodiscard]] std::uint64_t number() const noexcept { return now_.number; }
  /// An ncclComm_t, for calls to NCCL's own functions. Pass their results to check().
  [[nodiscard]] ncclComm* handle() const noexcept { return now_.handle; }
  /// A function of the NCCL library that penstock loaded, by name:
  /// function<ncclResult_t(...)>("ncclReduceScatter").
  template <class Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(of_->function(name));
  }
  /// Waits until NCCL has accepted the call (the communicator is non-blocking).
  void check(int status, const char* what) const { of_->settle(status, what); }

  template <class T>
  void all_reduce(const T* from, T* to, std::size_t count, reduction how, stream_handle stream) const {
    using call = int(const void*, void*, std::size_t, int, int, ncclComm*, void*);
    check(function<call>("ncclAllReduce")(from, to, count, detail::nccl_type_of<T>::value,
                                          static_cast<int>(how), now_.handle, stream.native),
          "ncclAllReduce");
  }
  /// Copies `root`'s memory to all ranks.
  template <class T>
  void broadcast(T* memory, std::size_t count, std::uint32_t root, stream_handle stream) const {
    using call = int(const void*, void*, std::size_t, int, int, ncclComm*, void*);
    check(function<call>("ncclBroadcast")(memory, memory, count, detail::nccl_type_of<T>::value,
                                          static_cast<int>(root), now_.handle, stream.native),
          "ncclBroadcast");
  }
  /// `to` has room for `count` elements of each rank, in rank order.
  template <class T>
  void all_gather(const T* from, T* to, std::size_t count, stream_handle stream) const {
    using call = int(const void*, void*, std::size_t, int, ncclComm*, void*);
    check(function<call>("ncclAllGather")(from, to, count, detail::nccl_type_of<T>::value, now_.handle,
                                          stream.native),
          "ncclAllGather");
  }

 private:
  Communicator* of_;
  Communicator::entry now_;
};

}  // namespace penstock
