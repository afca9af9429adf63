// Decides which documents share a sequence when [dataset] boundaries = "pack". Pure. Used by the session, which counts
// the sequences, and by workers, which fill them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

/// The number of consecutive documents that are packed together, in the order of the files.
inline constexpr std::uint64_t packing_window = 1024;

/// Consecutive tokens of one document. The target of each is the token after it.
struct packed_piece {
  std::uint32_t document = 0;  ///< within the window
  std::uint32_t first = 0;     ///< token within the document
  std::uint32_t tokens = 0;    ///< tokens that have a target, so the document has at least first + tokens + 1
};

/// The sequences that one window of documents fills. A document of n tokens gives n - 1 tokens with targets. Whole
/// sequences are cut from its beginning, as many as fit. The remainders share sequences: in order of decreasing length, each
/// goes to the sequence with the least sufficient room, or to a new one (best fit).
class window_packing {
 public:
  /// `lengths`: tokens of each document. sequence_length >= 1.
  window_packing(std::span<const std::uint32_t> lengths, std::uint32_t sequence_length);

  [[nodiscard]] std::uint64_t sequences() const noexcept { return shared_ + whole_; }
  /// The most entries that the lengths of a sequence need, including one for unused places at its end.
  [[nodiscard]] std::uint32_t parts_max() const noexcept { return parts_max_; }
  /// The number of tokens with targets in all sequences.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// The pieces of a sequence, in the order of their positions in it. sequence < sequences(). Valid until the next call.
  [[nodiscard]] std::span<const packed_piece> pieces(std::uint64_t sequence);

 private:
  struct placed {
    std::uint32_t sequence;
    packed_piece piece;
  };
  void share(std::vector<packed_piece> rests);

  std::uint32_t sequence_length_;
  std::uint64_t shared_ = 0;  ///< sequences that remainders share; they come first
  std::uint64_t whole_ = 0;   ///< sequences of a single document
  std::uint64_t tokens_ = 0;
  std::uint32_t parts_max_ = 0;
  std::vector<packed_piece> shared_pieces_;   ///< sequence by sequence
  std::vector<std::uint32_t> shared_ends_;    ///< where each sequence ends in shared_pieces_
  std::vector<std::uint64_t> whole_ends_;     ///< running total of whole sequences, up to and including each document
  packed_piece one_;
};

}  // namespace penstock
