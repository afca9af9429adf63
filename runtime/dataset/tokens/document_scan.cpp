#include "runtime/dataset/tokens/document_scan.hpp"

#include "runtime/base/units.hpp"
#include "runtime/dataset/in_parallel.hpp"
#include "runtime/dataset/read_ahead.hpp"
#include "runtime/dataset/tokens/token_types.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock {
namespace {

/// Tokens read at once; a multiple of every token's size.
constexpr std::size_t scan_bytes = 1 * MiB;

template <class Token>
result<void> scan_for_eos(readable& opened, const token_file& file, std::uint32_t eos, std::vector<std::uint32_t>& lengths) {
  std::vector<Token> piece(scan_bytes / sizeof(Token));
  read_ahead contents(opened, {file.data_at, file.tokens * sizeof(Token)}, scan_bytes);
  std::uint64_t length = 0;  // length so far of the document in which the piece begins
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
    if (auto ok = contents.read(file.data_at + token * sizeof(Token), std::as_writable_bytes(tokens)); !ok) return ok;
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

result<void> lengths_of_file(const token_file_list& list, const token_file& file, std::optional<std::uint32_t> eos,
                             std::vector<std::uint32_t>& lengths) {
  if (file.index_bytes > 0) {
    const auto opened = list.open_index(file);
    const auto index = megatron_index::open(reader_of(*opened), file.index_bytes, file.bytes);
    if (!index) return tl::unexpected(index.error());
    return index->all_lengths(lengths);
  }
  if (!eos) {
    for (std::uint64_t left = file.tokens; left > 0; left -= lengths.back())
      lengths.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(left, std::numeric_limits<std::uint32_t>::max())));
    return {};
  }
  const auto opened = list.open(file);
  return with_token_type(list.element, [&]<class Token>() { return scan_for_eos<Token>(*opened, file, *eos, lengths); });
}

}  // namespace

result<std::vector<std::uint32_t>> lengths_of_documents(const token_file_list& list,
                                                        std::optional<std::uint32_t> eos) {
  std::vector<std::vector<std::uint32_t>> each(list.files.size());
  const auto read = [&](std::size_t i) -> result<void> {
    const token_file& file = list.files[i];
    auto ok = lengths_of_file(list, file, eos, each[i]);
    if (ok) return ok;
    const std::string path = path_of_file(list.folder, file.name);
    return about_file(file.index_bytes > 0 ? index_path_of(path) : path, std::move(ok.error()));
  };
  if (auto ok = in_parallel(each.size(), list.store ? requests_at_once / 4 : 1, read); !ok)
    return tl::unexpected(std::move(ok.error()));
  std::vector<std::uint32_t> lengths = std::move(each.front());
  for (const auto& one : std::span(each).subspan(1)) lengths.insert(lengths.end(), one.begin(), one.end());
  return lengths;
}

}  // namespace penstock
