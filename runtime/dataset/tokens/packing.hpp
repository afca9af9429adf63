// Which documents share a sequence when [dataset] boundaries = "pack". Pure. Used by the session, which counts the
// sequences, and by workers, which fill them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

/// Documents that are packed together: each run of this many, in the order of the files.
inline constexpr std::uint64_t packing_window = 1024;

/// A run of a document's tokens, each of which has the next one as its target.
struct packed_piece {
  std::uint32_t document = 0;  ///< within the window
  std::uint32_t first = 0;     ///< token within the document
  std::uint32_t tokens = 0;    ///< with targets: the document has at least first + tokens + 1
};

/// The sequences that one window fills. A document of n tokens gives n - 1 tokens with targets. As many whole
/// sequences as fit are cut from its beginning; the rests share sequences, best fit in order of decreasing length:
/// each goes to the sequence with the least room that is enough, or to a new one.
class window_packing {
 public:
  /// `lengths`: tokens of each document. sequence_length >= 1.
  window_packing(std::span<const std::uint32_t> lengths, std::uint32_t sequence_length);

  [[nodiscard]] std::uint64_t sequences() const noexcept { return shared_ + whole_; }
  /// Most entries that the lengths of a sequence need, with one for unused places at its end.
  [[nodiscard]] std::uint32_t parts_max() const noexcept { return parts_max_; }
  /// Tokens with targets, over all sequences.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// The pieces of a sequence in the order of its places. sequence < sequences(). Valid until the next call.
  [[nodiscard]] std::span<const packed_piece> pieces(std::uint64_t sequence);

 private:
  struct placed {
    std::uint32_t sequence;
    packed_piece piece;
  };
  void share(std::vector<packed_piece> rests);

  std::uint32_t sequence_length_;
  std::uint64_t shared_ = 0;  ///< sequences of rests: the first ones
  std::uint64_t whole_ = 0;   ///< sequences of one document each
  std::uint64_t tokens_ = 0;
  std::uint32_t parts_max_ = 0;
  std::vector<packed_piece> shared_pieces_;   ///< sequence after sequence
  std::vector<std::uint32_t> shared_ends_;    ///< of each sequence in shared_pieces_
  std::vector<std::uint64_t> whole_ends_;     ///< cumulative number of whole sequences, including each document
  packed_piece one_;
};

}  // namespace penstock
