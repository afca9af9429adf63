#include "runtime/dataset/tokens/document_scan.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/tokens/token_types.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace penstock {
namespace {

/// Tokens read at once; a multiple of every token's size.
constexpr std::size_t scan_bytes = 1 * MiB;

template <class Token>
result<void> scan_for_eos(int fd, const token_file& file, std::uint32_t eos, std::vector<std::uint32_t>& lengths) {
  std::vector<Token> piece(scan_bytes / sizeof(Token));
  std::uint64_t length = 0;  // of the document that the piece begins in
  const auto end_document = [&]() -> result<void> {
    if (length > std::numeric_limits<std::uint32_t>::max())
      return refuse(errc::dataset,
                    "has a document of {} tokens, but only documents of fewer than 2^32 can be packed; is "
                    "eos = {} right?",
                    length, eos);
    lengths.push_back(static_cast<std::uint32_t>(std::exchange(length, 0)));
    return {};
  };
  for (std::uint64_t token = 0; token < file.tokens; token += piece.size()) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), file.tokens - token));
    const auto tokens = std::span(piece).first(count);
    if (auto ok = read_exactly(fd, file.data_at + token * sizeof(Token), std::as_writable_bytes(tokens)); !ok)
      return ok;
    auto begin = tokens.begin();
    for (auto found = begin; begin != tokens.end(); begin = found) {
      found = std::find_if(begin, tokens.end(), [eos](Token t) { return std::cmp_equal(t, eos); });
      length += static_cast<std::uint64_t>(found - begin);
      if (found == tokens.end()) break;
      ++found;
      ++length;
      if (auto ok = end_document(); !ok) return ok;
    }
  }
  return length > 0 ? end_document() : result<void>();
}

result<void> lengths_of_file(const std::string& path, const token_file& file, dtype element,
                             std::optional<std::uint32_t> eos, std::vector<std::uint32_t>& lengths) {
  const bool has_index = file.index_bytes > 0;
  const auto opened = open_for_reading(has_index ? index_path_of(path) : path);
  if (!opened) return tl::unexpected(opened.error());
  const int fd = opened->fd.get();
  if (has_index) {
    const auto read = [fd](std::uint64_t at, std::span<std::byte> into) { return read_exactly(fd, at, into); };
    const auto index = megatron_index::open(read, opened->bytes, file.bytes);
    if (!index) return tl::unexpected(index.error());
    return index->all_lengths(lengths);
  }
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  return with_token_type(element, [&]<class Token>() { return scan_for_eos<Token>(fd, file, *eos, lengths); });
}

}  // namespace

result<std::vector<std::uint32_t>> lengths_of_documents(const token_file_list& list,
                                                        std::optional<std::uint32_t> eos) {
  std::vector<std::uint32_t> lengths;
  for (const token_file& file : list.files) {
    const std::string path = path_of_token_file(list.folder, file.name);
    if (auto ok = lengths_of_file(path, file, list.element, eos, lengths); !ok) {
      const std::string shown = file.index_bytes > 0 ? index_path_of(path) : path;
      return refuse(ok.error().code, "'{}' {}", printable(shown), ok.error().message);
    }
  }
  return lengths;
}

}  // namespace penstock
