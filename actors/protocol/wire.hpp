// Messages as bytes: a frame is a length, a type and a payload (message_bytes.hpp). The reader protects the
// session from broken or hostile children and is therefore strict: it refuses unknown types, wrong lengths,
// left-over bytes and invalid enumerators, and never allocates memory just because a length announces it.
#pragma once

#include "actors/protocol/message_bytes.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/base/result.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace penstock::protocol {

using from_worker = std::variant<hello, dataset_described, worker_ready, batch_loaded, worker_gives_up,
                                 functions_described, jobs_done, samples_named>;
using to_worker = std::variant<open_dataset, assign_slots, load_batch, stop_work, run_jobs, drop_batch, name_samples>;
using from_owner =
    std::variant<hello, owner_opened, slots_copied, batches_delivered, worker_gives_up, owner_irreplaceable,
                 gpu_processes_seen, jobs_answered, communicator_changed, partition_attached>;
using to_owner = std::variant<open_owner, prepare_owner, map_partition, upload_slots, stop_owner, upload_jobs,
                              wire_communicate>;

/// Whether the sending thread always writes the message itself, because a job's caller is waiting for it.
template <class Message>
inline constexpr bool written_at_once = false;
template <>
inline constexpr bool written_at_once<run_jobs> = true;
template <>
inline constexpr bool written_at_once<upload_jobs> = true;
template <>
inline constexpr bool written_at_once<jobs_answered> = true;

/// The largest payload that a reader accepts, and so the largest that may be sent. The largest message that
/// cannot be split is a lease: 65536 samples x (8 bytes index + 4 bytes attempt) = 0.8 MB. Senders split
/// lists of uploads and cut the reasons of failures (fit.hpp). A sink's snapshot is at most 1 MiB
/// (gpu_owner/batch_sink.hpp), which leaves 3 MiB for the config in open_owner and the deliveries in
/// batches_delivered. functions_described has at most 10 000 names of 200 bytes, samples_named
/// 1000 of 4000.
inline constexpr std::uint32_t frame_bytes_max = 4U << 20U;

struct frame_header {
  std::uint32_t payload_bytes = 0;
  std::uint32_t type = 0;  ///< index in the variant: add new messages at its end
};

/// Appends a message as a frame. Refuses (errc::protocol) a message larger than frame_bytes_max, which the
/// peer would treat as a protocol violation, and then appends nothing.
template <class Variant>
result<void> append_frame(std::vector<char>& to, const Variant& message);

/// Turns bytes from a socket into complete messages. After a refusal it returns nothing more.
template <class Variant>
class frame_reader {
 public:
  /// Calls `take(Variant&&)` for each complete message. Refuses (errc::protocol), saying what is wrong and
  /// where.
  template <class Take>
  result<void> feed(std::span<const char> bytes, Take&& take);

  [[nodiscard]] bool in_the_middle() const noexcept { return !pending_.empty(); }

 private:
  // Incomplete: at most frame_bytes_max and a header. A string, because GCC 14 wrongly reports an append to a
  // vector as out of bounds (-Wstringop-overflow).
  std::string pending_;
  std::uint64_t frames_ = 0;
};

// ---- implementation ---------------------------------------------------------------------------------------

namespace detail {

template <class Variant, std::size_t I = 0>
result<Variant> decode(std::uint32_t type, std::span<const char> payload) {
  if constexpr (I == std::variant_size_v<Variant>) {
    return refuse(errc::protocol, "unknown message type {}", type);
  } else {
    if (type != I) return decode<Variant, I + 1>(type, payload);
    std::variant_alternative_t<I, Variant> message;
    byte_reader source(payload);
    if (!source(message)) return refuse(errc::protocol, "a message of type {} is truncated or corrupt", type);
    if (source.remaining() != 0) {
      return refuse(errc::protocol, "a message of type {} is followed by {} stray bytes", type,
                    source.remaining());
    }
    return Variant(std::in_place_index<I>, std::move(message));
  }
}

}  // namespace detail

template <class Variant>
result<void> append_frame(std::vector<char>& to, const Variant& message) {
  byte_counter counted;
  std::visit(counted, message);
  if (counted.bytes() > frame_bytes_max) {
    return refuse(errc::protocol, "a message of type {} has {} bytes, but at most {} can be sent",
                  message.index(), counted.bytes(), frame_bytes_max);
  }
  const frame_header header{static_cast<std::uint32_t>(counted.bytes()),
                            static_cast<std::uint32_t>(message.index())};
  const std::size_t begin = to.size();
  to.resize(begin + sizeof header + counted.bytes());
  std::memcpy(to.data() + begin, &header, sizeof header);
  byte_writer written(to.data() + begin + sizeof header);
  std::visit(written, message);
  return {};
}

template <class Variant>
template <class Take>
result<void> frame_reader<Variant>::feed(std::span<const char> bytes, Take&& take) {
  std::span<const char> rest = bytes;
  if (!pending_.empty()) {
    pending_.append(bytes.data(), bytes.size());
    rest = pending_;
  }
  while (rest.size() >= sizeof(frame_header)) {
    frame_header header;
    std::memcpy(&header, rest.data(), sizeof header);
    if (header.payload_bytes > frame_bytes_max) {
      return refuse(errc::protocol, "message {} announces {} bytes, but at most {} are allowed", frames_,
                    header.payload_bytes, frame_bytes_max);
    }
    if (rest.size() - sizeof header < header.payload_bytes) break;
    auto message = detail::decode<Variant>(header.type, rest.subspan(sizeof header, header.payload_bytes));
    if (!message) return tl::unexpected(std::move(message.error()));
    rest = rest.subspan(sizeof header + header.payload_bytes);
    ++frames_;
    take(std::move(*message));
  }
  const bool untouched =
      !pending_.empty() && rest.size() == pending_.size();  // a long frame is still arriving
  if (!untouched) pending_ = std::string(rest.begin(), rest.end());
  return {};
}

}  // namespace penstock::protocol
