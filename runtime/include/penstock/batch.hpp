// A batch on the device, held by the consumer. It owns one of the [gpu] buffers until it is released or
// destroyed; while the consumer holds all of them, no further batch arrives.
#pragma once

#include <penstock/export.hpp>
#include <penstock/stream.hpp>
#include <penstock/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

/// Move-only. Use from one thread at a time. It may outlive the session's iteration and stop(), but its
/// memory ends with Session::close() or the Session's destructor: from then on every member throws error
/// (errc::usage), except operator bool, moving and destruction. Spans obtained earlier from samples() and
/// records() stay readable while the Batch is held; those from tensors() do not.
class PENSTOCK_API Batch {
 public:
  Batch() noexcept;
  Batch(Batch&& other) noexcept;
  Batch& operator=(Batch&& other) noexcept;
  /// Releases the batch on the legacy default stream, unless it was released before. If you are capturing
  /// that stream, the buffer is returned after the capture, by the next call to the session or to any batch.
  ~Batch();

  /// Whether the batch is held: false after a release or a move.
  [[nodiscard]] explicit operator bool() const noexcept { return body_ != nullptr; }

  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] std::uint64_t sequence() const;  ///< within the epoch
  [[nodiscard]] std::size_t rows() const;  ///< samples in it; fewer than the batch size if some were lost
  [[nodiscard]] std::span<const std::uint64_t> samples() const;  ///< dataset indices of the rows

  /// The tensors on the device. `data` is a device pointer (a host pointer on the host device), valid until
  /// release.
  [[nodiscard]] std::span<const tensor_view> tensors() const;
  /// Throws error (errc::usage) that lists the names that exist.
  [[nodiscard]] const tensor_view& tensor(std::string_view name) const;

  /// Work queued on `stream` after this call sees the batch. A batch is handed out once it is complete on the
  /// device, so today there is nothing to wait for: this only checks that the batch is held. Programs that
  /// call it stay correct if batches are ever handed out while they are still being copied.
  void wait(stream_handle stream) const;
  /// Returns the buffer once all work queued on `stream` so far is done. Throws error: errc::usage if already
  /// released, or if the stream is being captured into a graph; the device's error if it cannot record the
  /// release. In the last two cases the batch is still held.
  void release(stream_handle stream);
  /// Like release(), for several streams: the buffer is returned once the work queued on all of them is done.
  /// No streams: like release_unused().
  void release_after(std::span<const stream_handle> streams);
  /// Returns the buffer at once. Correct only if no stream uses the batch any more, or none ever did: queued
  /// work would read the next batch's bytes. Throws error (errc::usage) if already released.
  void release_unused();
  [[deprecated(
      "use release(stream), which waits for the stream's work, or release_unused() if there is none")]] void
  release();

  /// Copies a tensor to host memory. Blocks until the copy is done.
  [[nodiscard]] std::vector<std::byte> read_back(std::string_view name) const;
  /// A record ("crop", "flip") of the rows. Records never leave the host: see tensor_role::record.
  [[nodiscard]] tensor_view record(std::string_view name) const;
  [[nodiscard]] std::span<const tensor_view> records() const;

  /// The digest of the batch, from which a session's digest is computed (docs/semantics, rule S17). Reads the whole
  /// batch back.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  friend struct batch_access;  // used by the runtime to make batches
  struct body;
  explicit Batch(std::unique_ptr<body> held) noexcept;
  [[nodiscard]] body& held() const;

  std::unique_ptr<body> body_;
};

}  // namespace penstock
