// The slots of all workers: which worker may write which slot, under which generation, and whether a message
// about a lease is plausible. Shared by the ledger of a stream (batches) and the job book of a pool.
//
//            take()             lease_over()              release()
//   free ------------> leased ---------------> held --------------------> free
//                        |                                                  ^
//                        +--------------------------------------------------+
//
// A slot is leased while its worker may write it, and held while it may still be read. Slots belong to a
// place and outlive its processes: a held slot stays held when its worker dies. Pure: no clock, no I/O.
#pragma once

#include "runtime/base/check.hpp"
#include "runtime/base/ids.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace penstock::schedule {

/// An ordinary loader, or the sacrificial worker, which tries one suspect alone.
enum class worker_kind : std::uint8_t { loader, sacrificial };

/// How the table classifies a worker's message.
enum class arrival : std::uint8_t {
  accepted,
  late,       ///< from an earlier incarnation, or about a lease that is over; dropped and counted
  impossible  ///< a protocol violation by a living worker; dropped and counted, and the caller fences the worker
};

/// The state of the lease that a message names.
enum class lease_standing : std::uint8_t {
  current,
  over,    ///< this incarnation has finished it
  gone,    ///< the worker that held it is dead
  unknown  ///< a living worker names a lease that it never had
};

/// The default for `More`: no further data about a worker.
struct no_more {};

/// `Use`: what the ledger and the job book store for each slot in use; take() and release() do not change it.
/// `More`: what they store for each worker.
template <class Use, class More = no_more>
class slot_table {
 public:
  enum class stage : std::uint8_t { free, leased, held };

  struct slot {
    stage at = stage::free;
    std::uint32_t generation = 0;
    std::uint32_t given = 0;  ///< leases of this slot to the current incarnation; saturates at generation_mask
    Use use{};
  };

  struct worker {
    worker_kind kind = worker_kind::loader;
    std::uint32_t incarnation = 0;
    bool alive = false;
    bool draining = false;  ///< gets no new leases
    std::vector<slot> slots{};
    std::vector<std::uint32_t> free{};  ///< indices of free slots; the last one is leased first
    /// The number of slots without memory. These have the highest numbers, and stand first in `free`.
    std::uint32_t without_memory = 0;
    std::uint32_t leased = 0;
    std::optional<std::uint64_t> host{};  ///< the loader host that runs the worker; empty: this machine
    More more{};

    [[nodiscard]] bool takes_leases() const noexcept { return alive && !draining; }
    [[nodiscard]] std::size_t leasable() const noexcept { return free.size() - without_memory; }
  };

  /// Null if this incarnation or a later one has joined before.
  worker* join(worker_ref who, std::uint32_t slots, worker_kind kind, std::optional<std::uint64_t> host = {}) {
    worker& w = workers_[who.worker];
    if (who.incarnation <= w.incarnation) return nullptr;
    PENSTOCK_CHECK(!w.alive, "worker {}: incarnation {} joined before {} died", who.worker, who.incarnation,
                   w.incarnation);
    PENSTOCK_CHECK(w.slots.empty() || w.slots.size() == slots, "worker {}: {} slots, had {}", who.worker,
                   slots, w.slots.size());
    w.kind = kind;
    w.host = host;
    w.incarnation = who.incarnation;
    w.alive = true;
    w.draining = false;
    if (w.slots.empty()) {
      w.slots.resize(slots);
      for (std::uint32_t i = slots; i-- > 0;) w.free.push_back(i);
    }
    for (slot& s : w.slots) s.given = 0;
    return &w;
  }

  [[nodiscard]] const worker* living(worker_ref who) const {
    const auto it = workers_.find(who.worker);
    if (it == workers_.end() || !it->second.alive || it->second.incarnation != who.incarnation)
      return nullptr;
    return &it->second;
  }
  [[nodiscard]] worker* living(worker_ref who) {
    return const_cast<worker*>(std::as_const(*this).living(who));
  }

  /// Null if no worker ever joined in this place.
  [[nodiscard]] const worker* find(std::uint32_t index) const {
    const auto it = workers_.find(index);
    return it == workers_.end() ? nullptr : &it->second;
  }
  [[nodiscard]] worker* find(std::uint32_t index) {
    return const_cast<worker*>(std::as_const(*this).find(index));
  }
  [[nodiscard]] worker& at(std::uint32_t index) { return workers_.at(index); }
  [[nodiscard]] std::map<std::uint32_t, worker>& all() noexcept { return workers_; }
  [[nodiscard]] const std::map<std::uint32_t, worker>& all() const noexcept { return workers_; }

  /// Leases a free slot of this worker, which must be alive and have a free slot.
  lease_ref take(std::uint32_t index) {
    worker& w = workers_.at(index);
    PENSTOCK_CHECK(w.alive && w.leasable() > 0, "worker {} alive {}", index, w.alive);
    const std::uint32_t number = w.free.back();
    w.free.pop_back();
    slot& s = w.slots[number];
    PENSTOCK_CHECK(s.at == stage::free, "slot {} of worker {}", number, index);
    s.at = stage::leased;
    s.generation = (s.generation + 1) & generation_mask;
    s.given = std::min(s.given + 1, generation_mask);
    ++w.leased;
    if (w.host) ++leased_on_[*w.host];
    return {{index, w.incarnation}, number, s.generation};
  }

  /// The worker no longer writes to the slot, so it may be read.
  void lease_over(std::uint32_t index, std::uint32_t number) {
    worker& w = workers_.at(index);
    slot& s = w.slots[number];
    PENSTOCK_CHECK(s.at == stage::leased, "slot {} of worker {}", number, index);
    s.at = stage::held;
    one_less(w);
  }

  void release(std::uint32_t index, std::uint32_t number) {
    worker& w = workers_.at(index);
    slot& s = w.slots[number];
    PENSTOCK_CHECK(s.at != stage::free, "slot {} of worker {} freed twice", number, index);
    if (s.at == stage::leased) one_less(w);
    s.at = stage::free;
    w.free.push_back(number);
  }

  /// The leases of all workers of this worker's host; 0 for a worker on this machine.
  [[nodiscard]] std::uint32_t leased_on_host_of(const worker& w) const {
    const auto found = w.host ? leased_on_.find(*w.host) : leased_on_.end();
    return found == leased_on_.end() ? 0 : found->second;
  }

  [[nodiscard]] lease_standing standing_of(const lease_ref& lease) const {
    const worker* w = living(lease.holder);
    if (w == nullptr) return lease_standing::gone;
    if (lease.slot >= w->slots.size()) return lease_standing::unknown;
    const slot& s = w->slots[lease.slot];
    if (s.generation == lease.generation && s.at == stage::leased) return lease_standing::current;
    const std::uint32_t ago = (s.generation - lease.generation) & generation_mask;
    return ago < s.given ? lease_standing::over : lease_standing::unknown;
  }

 private:
  void one_less(worker& w) {
    --w.leased;
    if (w.host && --leased_on_.at(*w.host) == 0) leased_on_.erase(*w.host);
  }

  std::map<std::uint32_t, worker> workers_;
  std::map<std::uint64_t, std::uint32_t> leased_on_;  // by host; only hosts with leases
};

}  // namespace penstock::schedule
