#include "runtime/dataset/tokens/megatron_index.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

namespace penstock {
namespace {

constexpr std::string_view megatron_magic("MMIDIDX\0\0", 9);
constexpr std::uint64_t megatron_header_bytes = 34;

template <class T>
T number_in(std::span<const std::byte> bytes, std::size_t at) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::optional<dtype> element_of_code(unsigned code) noexcept {
  switch (code) {
    case 1: return dtype::uint8;
    case 2: return dtype::int8;
    case 3: return dtype::int16;
    case 4: return dtype::int32;
    case 5: return dtype::int64;
    case 8: return dtype::uint16;
    default: return std::nullopt;
  }
}

/// Reads a table sequentially, in pieces.
template <class T>
class table_reader {
 public:
  table_reader(const megatron_index::byte_reader& read, std::uint64_t at, std::uint64_t count)
      : read_(read), at_(at), left_(count) {}

  result<T> next() {
    if (place_ == piece_.size()) {
      piece_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(left_, piece_max)));
      if (auto ok = read_(at_, std::as_writable_bytes(std::span(piece_))); !ok)
        return tl::unexpected(std::move(ok.error()));
      at_ += piece_.size() * sizeof(T);
      left_ -= piece_.size();
      place_ = 0;
    }
    return piece_[place_++];
  }

 private:
  static constexpr std::uint64_t piece_max = 64 * 1024;
  const megatron_index::byte_reader& read_;
  std::uint64_t at_;
  std::uint64_t left_;
  std::vector<T> piece_;
  std::size_t place_ = 0;
};

}  // namespace

megatron_index::byte_reader reader_of(readable& file) {
  return [&file, start = std::vector<std::byte>()](std::uint64_t at, std::span<std::byte> into) mutable -> result<void> {
    constexpr std::uint64_t kept_max = 64 * 1024;
    if (start.empty()) {
      start.resize(std::min(file.bytes(), kept_max));
      if (auto ok = file.read(0, start); !ok) {
        start.clear();
        return ok;
      }
    }
    if (at > start.size() || into.size() > start.size() - at) return file.read(at, into);
    std::ranges::copy(std::span(start).subspan(at, into.size()), into.begin());
    return {};
  };
}

result<megatron_index> megatron_index::open(byte_reader read, std::uint64_t index_bytes,
                                            std::uint64_t data_bytes) {
  if (index_bytes < megatron_header_bytes)
    return refuse(errc::dataset, "has {} bytes, but the header of an index has {}", index_bytes,
                  megatron_header_bytes);
  std::array<std::byte, megatron_header_bytes> start{};
  if (auto ok = read(0, start); !ok) return tl::unexpected(std::move(ok.error()));
  if (std::memcmp(start.data(), megatron_magic.data(), megatron_magic.size()) != 0)
    return refuse(errc::dataset, "is not an index of tokens: its first bytes are not MMIDIDX");
  if (const auto version = number_in<std::uint64_t>(start, 9); version != 1)
    return refuse(errc::dataset, "is an index of version {}: only version 1 is read", version);
  const auto code = std::to_integer<unsigned>(start[17]);
  const auto element = element_of_code(code);
  if (!element)
    return refuse(errc::dataset, "says that tokens have the type {}, which is not a whole-number type", code);
  megatron_index index(std::move(read));
  index.element_ = *element;
  index.sequences_ = number_in<std::uint64_t>(start, 18);
  const auto entries = number_in<std::uint64_t>(start, 26);
  // Check both counts against the size first, so that the sum cannot overflow.
  if (index.sequences_ > index_bytes || entries > index_bytes ||
      megatron_header_bytes + 12 * index.sequences_ + 8 * entries != index_bytes)
    return refuse(errc::dataset, "has {} bytes, which is not what its header promises: {} sequences, {} documents",
                  index_bytes, index.sequences_, entries);
  if (index.sequences_ == 0 || entries < 2) return refuse(errc::dataset, "lists no documents");
  if (data_bytes % size_of(index.element_) != 0)
    return refuse(errc::dataset, "says that tokens are {}, but its .bin has {} bytes, which is not a whole number of tokens", name_of(index.element_),
                  data_bytes);
  index.documents_ = entries - 1;
  index.tokens_ = data_bytes / size_of(index.element_);
  index.pointers_at_ = megatron_header_bytes + 4 * index.sequences_;
  index.documents_at_ = index.pointers_at_ + 8 * index.sequences_;
  if (auto ok = index.check_ends(); !ok) return tl::unexpected(std::move(ok.error()));
  return index;
}

result<void> megatron_index::check_ends() const {
  const auto first = number_at<std::int64_t>(pointers_at_);
  const auto last = number_at<std::int64_t>(pointers_at_ + 8 * (sequences_ - 1));
  const auto length = number_at<std::int32_t>(pointers_at_ - 4);
  const auto first_document = number_at<std::int64_t>(documents_at_);
  const auto end = number_at<std::int64_t>(documents_at_ + 8 * documents_);
  if (!first || !last || !length || !first_document || !end)
    return tl::unexpected((!first            ? first.error()
                           : !last           ? last.error()
                           : !length         ? length.error()
                           : !first_document ? first_document.error()
                                             : end.error()));
  if (*first != 0) return refuse(errc::dataset, "says that its first sequence begins at byte {}, but it must begin at 0", *first);
  const auto begin = token_of(*last);
  if (!begin) return tl::unexpected(begin.error());
  if (*length < 0 || static_cast<std::uint64_t>(*length) != tokens_ - *begin)
    return refuse(errc::dataset, "says that its last sequence has {} tokens from byte {} on, but its .bin ends at byte {}",
                  *length, *last, tokens_ * size_of(element_));
  if (*first_document != 0 || *end < 0 || static_cast<std::uint64_t>(*end) != sequences_)
    return refuse(errc::dataset, "says that its documents cover sequences {} to {}, but it has {} sequences",
                  *first_document, *end, sequences_);
  return {};
}

template <class T>
result<T> megatron_index::number_at(std::uint64_t at) const {
  T value = 0;
  if (auto ok = read_(at, std::as_writable_bytes(std::span(&value, 1))); !ok)
    return tl::unexpected(std::move(ok.error()));
  return value;
}

result<std::uint64_t> megatron_index::token_of(std::int64_t pointer) const {
  const std::uint64_t bytes = size_of(element_);
  const auto place = static_cast<std::uint64_t>(pointer);
  if (pointer < 0 || place > tokens_ * bytes)
    return refuse(errc::dataset, "says that a sequence begins at byte {}, but its .bin has {} bytes", pointer,
                  tokens_ * bytes);
  if (place % bytes != 0)
    return refuse(errc::dataset,
                  "says that a sequence begins at byte {}, which is inside a token of {} bytes", pointer,
                  bytes);
  return place / bytes;
}

result<std::uint64_t> megatron_index::begin_of(std::uint64_t document) const {
  PENSTOCK_CHECK(document <= documents_, "document {} of {}", document, documents_);
  if (document == documents_) return tokens_;
  const auto sequence = number_at<std::int64_t>(documents_at_ + 8 * document);
  if (!sequence) return tl::unexpected(sequence.error());
  if (*sequence < 0 || static_cast<std::uint64_t>(*sequence) > sequences_)
    return refuse(errc::dataset, "says that a document begins with sequence {} of {}", *sequence, sequences_);
  if (static_cast<std::uint64_t>(*sequence) == sequences_) return tokens_;
  const auto pointer = number_at<std::int64_t>(pointers_at_ + 8 * static_cast<std::uint64_t>(*sequence));
  if (!pointer) return tl::unexpected(pointer.error());
  return token_of(*pointer);
}

result<void> megatron_index::begins_between(std::uint64_t after, std::uint64_t before,
                                            std::vector<std::uint64_t>& begins) const {
  std::uint64_t low = 0;  // the first document beyond `after` is in [low, high]
  std::uint64_t high = documents_;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto begin = begin_of(middle);
    if (!begin) return tl::unexpected(begin.error());
    if (*begin > after)
      high = middle;
    else
      low = middle + 1;
  }
  std::uint64_t last = after;
  for (std::uint64_t document = low; document < documents_; ++document) {
    const auto begin = begin_of(document);
    if (!begin) return tl::unexpected(begin.error());
    if (*begin < last)
      return refuse(errc::dataset,
                    "is not in order: document {} begins at token {}, but the one before it at {}", document,
                    *begin, last);
    if (*begin >= before) break;
    if (*begin > last) begins.push_back(*begin);  // an empty document begins where the next one does
    last = *begin;
  }
  return {};
}

result<void> megatron_index::all_lengths(std::vector<std::uint32_t>& lengths) const {
  table_reader<std::int32_t> sequence_lengths(read_, megatron_header_bytes, sequences_);
  table_reader<std::int64_t> pointers(read_, pointers_at_, sequences_);
  table_reader<std::int64_t> document_begins(read_, documents_at_, documents_ + 1);
  std::uint64_t token = 0;
  std::uint64_t sequence = 0;
  if (auto first = document_begins.next(); !first) return tl::unexpected(std::move(first.error()));
  for (std::uint64_t document = 0; document < documents_; ++document) {
    const auto end = document_begins.next();
    if (!end) return tl::unexpected(end.error());
    if (*end < 0 || static_cast<std::uint64_t>(*end) > sequences_ || static_cast<std::uint64_t>(*end) < sequence)
      return refuse(errc::dataset, "says that document {} ends with sequence {} of {}", document, *end, sequences_);
    const std::uint64_t begin = token;
    for (; sequence < static_cast<std::uint64_t>(*end); ++sequence) {
      const auto pointer = pointers.next();
      const auto length = sequence_lengths.next();
      if (!pointer || !length) return tl::unexpected(!pointer ? pointer.error() : length.error());
      const auto place = token_of(*pointer);
      if (!place) return tl::unexpected(place.error());
      if (*place != token || *length < 0 || static_cast<std::uint64_t>(*length) > tokens_ - token)
        return refuse(errc::dataset,
                      "says that sequence {} has {} tokens from token {} on, but it must begin at token {}, and its .bin ends at token {}",
                      sequence, *length, *place, token, tokens_);
      token += static_cast<std::uint64_t>(*length);
    }
    if (token - begin > std::numeric_limits<std::uint32_t>::max())
      return refuse(errc::dataset,
                    "has a document of {} tokens, but only documents of fewer than 2^32 can be packed",
                    token - begin);
    if (token > begin) lengths.push_back(static_cast<std::uint32_t>(token - begin));
  }
  if (sequence != sequences_ || token != tokens_)
    return refuse(errc::dataset, "has documents of {} tokens in total, but its .bin holds {}", token, tokens_);
  return {};
}

}  // namespace penstock
