// The batches that the sink of a run actually got, as recorded by its owners
// (actors/gpu_owner/journal_sink.hpp), for the checker of `penstock chaos`. Kept in memory, so nothing is
// left if chaos itself is killed.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "tools/penstock/chaos/stream_check.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

struct journal_reading {
  std::vector<delivered_batch> batches;
  std::vector<std::uint64_t> ends;  ///< where the batches' lines end, in bytes from the beginning
  std::uint64_t torn = 0;           ///< lines that an owner was writing when it was killed

  /// The number of batches in the journal's first `bytes` bytes.
  [[nodiscard]] std::size_t batches_within(std::uint64_t bytes) const;
};

/// Refuses (errc::io) lines that no owner writes: an incomplete line in the middle of an owner's life, or an
/// unannounced owner.
result<journal_reading> read_journal(std::string_view text);

class batch_journal {
 public:
  static result<batch_journal> create();

  /// The value of session_options::sink.
  [[nodiscard]] std::string sink() const;
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] result<journal_reading> read() const;

 private:
  explicit batch_journal(unique_fd memory) : memory_(std::move(memory)) {}
  unique_fd memory_;
};

}  // namespace penstock::cli
