// The messages between the members of a group and its coordinator, as plain values. Used by group_book (the
// coordinator's side), member_book (a rank's side) and the links between them.
//
// Every message contains the whole state of its sender. So the next message replaces a lost one, a repeated or
// late one is recognised by its number, and a new coordinator learns from the remaining ranks' reports what the
// group had agreed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::group {

inline constexpr std::uint32_t group_protocol = 5;

/// A process of a rank; fixed for its lifetime.
struct rank_card {
  std::uint32_t protocol = group_protocol;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::uint64_t process = 0;   ///< random number, chosen when the process starts; distinguishes two processes of one rank
  std::uint32_t starts = 0;    ///< earlier starts of this rank, if its launcher counts them
  bool one_at_a_time = false;  ///< whether its launcher ends one process of this rank before it starts the next
  std::string host{};
  std::int32_t pid = 0;
  std::string device{};  ///< UUID of its GPU; empty: the host device
  bool shares_device = false;
  /// All settings that define the stream and how the group handles
  /// losses. Names and values, in the same order in every rank.
  std::vector<std::pair<std::string, std::string>> settings{};
};

/// "rank 2 (node7, pid 4711)"
[[nodiscard]] std::string name_of(const rank_card& card);

/// What a rank knows after its dataset has been described.
struct stream_facts {
  std::string fingerprint;
  std::uint64_t epoch = 0;  ///< where the group starts
  std::uint64_t position = 0;
  bool operator==(const stream_facts&) const = default;
};

/// What ended a group, as all of its ranks report it.
struct group_cause {
  std::uint32_t rank = 0;
  std::string host{};
  std::int32_t pid = 0;
  std::string cause{};
  bool operator==(const group_cause&) const = default;
};

/// "rank 2 (node7, pid 4711): its process has ended"; "rank 3 did not arrive within 2m; ..."
[[nodiscard]] std::string in_words(const group_cause& cause);

enum class group_phase : std::uint8_t {
  gathering,   ///< ranks are arriving
  describing,  ///< all have arrived with equal settings; their datasets are compared next
  running,
  stopping,  ///< ranks pause before the next batch that they would hand out, then deliver up to a common step
  over,
};

enum class group_outcome : std::uint8_t { none, finished, stopped, failed };

/// What the group has agreed on. Every order contains it; every report returns it as its rank knows it.
struct group_view {
  std::uint64_t generation = 0;   ///< the coordinator's generation; 0: it does not know enough yet to act as coordinator
  std::uint64_t coordinator = 0;  ///< its process
  group_phase phase = group_phase::gathering;
  std::vector<std::uint32_t> incarnations{};  ///< by rank
  std::optional<stream_facts> facts{};
  std::optional<std::uint64_t> limit{};  ///< while stopping, all deliver up to this step; it never shrinks
  std::uint64_t communicator = 0;        ///< the last number given to a communicator
  /// Steps that no rank repeats, because all ranks had a snapshot that contains them. Never shrinks.
  std::uint64_t agreed = 0;
  group_outcome outcome = group_outcome::none;
  std::optional<group_cause> cause{};  ///< the first cause of a failure
  bool operator==(const group_view&) const = default;
};

/// A communicator's number as shown to people: each coordinator counts its
/// communicators from 1, modulo 65536.
[[nodiscard]] constexpr std::uint64_t communicator_ordinal(std::uint64_t communicator) noexcept {
  return communicator & 0xFFFFU;
}

/// The state of a rank's communicator (rule C1).
struct communicator_state {
  enum class how : std::uint8_t {
    none,
    making,
    made,
    broken,    ///< an asynchronous error; new scopes are refused
    aborting,  ///< waits for open scopes
    aborted,
  };
  std::uint64_t number = 0;
  how at = how::none;
  std::string cause{};
  bool operator==(const communicator_state&) const = default;
};

[[nodiscard]] const char* name_of(communicator_state::how at) noexcept;

/// A rank whose list is full takes no further snapshot until one of its snapshots is agreed on.
inline constexpr std::size_t held_max = 32;

/// Sent by a rank to the coordinator, at once when something changes, and at least every beat.
struct member_report {
  rank_card card;
  std::uint64_t number = 0;       ///< increases with each report
  std::uint32_t incarnation = 0;  ///< assigned by the group; 0: none yet
  /// The process's right to hand out batches has ended, so another process may have the rank.
  bool lapsed = false;
  group_view view;                ///< what the rank has heard from the coordinator
  std::optional<stream_facts> facts{};
  std::uint64_t steps = 0;  ///< steps delivered, counted from the stream's beginning
  bool stream_over = false;
  bool frozen = false;
  bool stop_wanted = false;
  bool left = false;                    ///< the rank leaves voluntarily, before the others
  std::optional<group_cause> failed{};  ///< why the rank cannot continue, or has stopped waiting for rank 0
  communicator_state communicator{};
  std::uint64_t settled = 0;          ///< steps that this rank has acknowledged and never repeats
  std::vector<std::uint64_t> held{};  ///< steps at which the rank has a snapshot, ascending; at most held_max
};

enum class rank_standing : std::uint8_t {
  waiting,  ///< not counted as a member yet
  member,
  lost,     ///< was a member; is one again when this report is answered
  refused,  ///< will never be a member; see `refusal`
};

/// What a rank must do about the communicator.
struct communicator_order {
  enum class act : std::uint8_t { none, make, use, abort };
  act what = act::none;
  std::uint64_t number = 0;
  std::string id{};  ///< only for `make`
  bool operator==(const communicator_order&) const = default;
};

/// Sent by the coordinator to a rank, at once when something changes, and at least every beat.
struct group_order {
  group_view view;
  std::uint64_t number = 0;  ///< increases with each order
  std::uint64_t heard = 0;   ///< number of the rank's last report
  rank_standing standing = rank_standing::waiting;
  std::string refusal{};
  std::uint32_t incarnation = 0;  ///< the rank's
  bool go = false;                ///< whether the rank may hand out batches
  bool everybody_knows = false;   ///< all processes know the outcome, so none needs to stay to report it
  std::vector<std::uint32_t> lost{};
  communicator_order communicator{};
  std::string host{};    ///< the coordinator's host; empty: rank 0 has not reported to the coordinator
  std::int32_t pid = 0;  ///< the coordinator's
};

}  // namespace penstock::group
