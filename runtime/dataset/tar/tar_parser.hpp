// Parses the headers of a tar archive: ustar, GNU and PAX. Pure: it says which bytes it needs next, and the caller
// passes them, so the contents of members are never read. Used by the scan of shards.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// Headers and contents begin at multiples of this.
inline constexpr std::uint64_t tar_block = 512;

enum class tar_kind : std::uint8_t {
  file,
  folder,
  link,    ///< hard or symbolic: its contents are elsewhere
  sparse,  ///< a file whose holes were left out (GNU, or PAX's GNU.sparse): its bytes are not in one piece
  other,   ///< a device, a FIFO, or a type outside the standards
};

/// A member of the archive. Its name can contain any bytes and is never used as a path.
struct tar_member {
  std::string_view name;  ///< valid until the next call to the parser
  tar_kind kind = tar_kind::file;
  std::uint64_t header_at = 0;
  std::uint64_t data_at = 0;
  std::uint64_t size = 0;  ///< size of the contents as stored; they lie within the archive
};

struct tar_range {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
};

/// Whether a block has the magic of ustar and a correct checksum. It is then a header, or the contents of a member that
/// is an archive itself.
bool looks_like_header(std::span<const std::byte> block) noexcept;

class tar_parser {
 public:
  /// `at`: where to begin, which is a header or a block that looks like one.
  explicit tar_parser(std::uint64_t archive_bytes, std::uint64_t at = 0) : archive_bytes_(archive_bytes), at_(at) {}

  /// The bytes that take() needs next, all within the archive: one block (less at the end of the archive), or a long
  /// name or PAX record of at most 1 MiB. Empty once the archive has ended.
  [[nodiscard]] std::optional<tar_range> wanted() const noexcept;

  /// Takes the bytes of wanted(). Returns a member when its header is complete. Refuses (errc::dataset, with offset and
  /// member) a checksum that does not match, a number or PAX record that cannot be read, a header or contents that end
  /// beyond the archive, and names or records above 1 MiB. After a refusal, the parser must not be used.
  result<std::optional<tar_member>> take(std::span<const std::byte> bytes);

  /// Takes the plain members at the beginning of `bytes`, which must begin at wanted(). Plain members are regular files
  /// that their header describes completely, as in most archives. Calls use(member) for each; its name is valid during
  /// the call. Stops at anything else (call take() for it), at the end of `bytes`,
  /// and at the first header at or after `until`. Returns false if it took no member.
  template <class Use>
  bool take_plain(std::span<const std::byte> bytes, std::uint64_t until, const Use& use) {
    const std::uint64_t begin = at_;
    tar_member member;
    const auto takes_next = [&] {
      const std::uint64_t passed = at_ - begin;
      return state_ == state::header && at_ < until && passed + tar_block <= bytes.size() && take_plain_header(bytes.subspan(passed, tar_block), member);
    };
    if (!is_between_members()) return false;
    while (takes_next()) use(member);
    return at_ != begin;
  }

  /// Whether the parser expects a header and has read nothing that affects later members. A parser that begins there
  /// finds the same members.
  [[nodiscard]] bool is_between_members() const noexcept;

  /// Whether the archive ended with a block of zeros. Without it, the archive may have been cut between members.
  [[nodiscard]] bool has_end_marker() const noexcept { return state_ == state::marked_end; }
  /// A range that may be padding after the end marker: zeros, unless another archive
  /// was appended. Empty if there is nothing, or more than the usual padding.
  [[nodiscard]] std::optional<tar_range> padding() const noexcept;
  /// Bytes after the end marker, if there are more than the usual padding: another archive may have been appended.
  [[nodiscard]] std::uint64_t bytes_after_end() const noexcept;

 private:
  enum class state : std::uint8_t { header, long_name, pax, skipped_text, sparse_map, marked_end, ended };
  struct attributes {
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
    bool sparse = false;

    [[nodiscard]] bool none() const noexcept { return !name && !size && !sparse; }
  };

  bool take_plain_header(std::span<const std::byte> block, tar_member& member) noexcept;
  result<std::optional<tar_member>> take_header(std::span<const std::byte> block);
  result<std::optional<tar_member>> finish_member(tar_member member, std::uint64_t data_at);
  result<void> take_pax(std::string_view text, attributes& to);
  result<void> expect_text(state what, std::uint64_t size);
  void go_to(std::uint64_t at) noexcept;
  [[nodiscard]] tl::unexpected<failure> wrong(std::string_view what) const;

  std::uint64_t archive_bytes_;
  std::uint64_t at_;
  state state_ = state::header;
  std::uint64_t text_bytes_ = 0;
  bool text_is_global_ = false;
  attributes global_;
  attributes next_;  ///< from extension headers; they apply to the next member
  std::string name_;
  tar_member unfinished_;  ///< a sparse member whose map of holes is being read; its name is in name_
};

}  // namespace penstock
