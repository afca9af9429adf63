#include "runtime/config/source.hpp"

#include "runtime/base/byte_order_mark.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/utf8.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace penstock::config_file {
namespace {

constexpr std::size_t line_bytes_max = 2000;
constexpr std::size_t characters_apart = 64;

bool continues_character(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

/// Bytes of the character at the beginning; a byte that is not UTF-8 counts as one character.
std::size_t character_length(std::string_view text) noexcept {
  return std::max<std::size_t>(utf8_length(text), 1);
}

std::uint32_t characters_in(std::string_view text) noexcept {
  std::uint32_t count = 0;
  for (; !text.empty(); text.remove_prefix(character_length(text))) ++count;
  return count;
}

}  // namespace

source::source(source_kind kind, std::string name, std::string text, std::filesystem::path folder,
               std::uint32_t order)
    : kind_(kind),
      name_(std::move(name)),
      text_(std::move(text)),
      folder_(std::move(folder)),
      order_(order),
      line_begins_{0} {
  if (has_lines() && text_.starts_with(byte_order_mark)) text_.erase(0, byte_order_mark.size());
  std::uint32_t characters = 0;
  for (std::size_t at = 0; at < text_.size(); ++characters) {
    if (characters % characters_apart == 0) checkpoints_.push_back(at);
    if (text_[at] == '\n') line_begins_.push_back(at + 1);
    at += character_length(std::string_view(text_).substr(at));
  }
}

bool source::has_lines() const noexcept {
  return kind_ == source_kind::file || kind_ == source_kind::include;
}

std::size_t source::line_index(std::size_t offset) const {
  const auto next = std::upper_bound(line_begins_.begin(), line_begins_.end(), offset);
  return static_cast<std::size_t>(next - line_begins_.begin()) - 1;
}

std::string_view source::line_at(std::size_t offset) const {
  const std::size_t begin = line_begins_[line_index(offset)];
  std::string_view line = std::string_view(text_).substr(begin);
  line = line.substr(0, line.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::size_t source::characters_before(std::size_t offset) const {
  const auto next = std::upper_bound(checkpoints_.begin(), checkpoints_.end(), offset);
  if (next == checkpoints_.begin()) return 0;
  const auto checkpoint = static_cast<std::size_t>(next - checkpoints_.begin()) - 1;
  const std::size_t from = checkpoints_[checkpoint];
  return checkpoint * characters_apart + characters_in(std::string_view(text_).substr(from, offset - from));
}

text_position source::position_of(std::size_t offset) const {
  offset = std::min(offset, text_.size());
  const std::size_t index = line_index(offset);
  const std::size_t column = characters_before(offset) - characters_before(line_begins_[index]) + 1;
  return {static_cast<std::uint32_t>(index + 1), static_cast<std::uint32_t>(column)};
}

std::size_t source::offset_of(text_position position) const {
  if (position.line == 0 || position.line > line_begins_.size()) return text_.size();
  const std::size_t line_end =
      position.line < line_begins_.size() ? line_begins_[position.line] - 1 : text_.size();
  const std::size_t wanted = characters_before(line_begins_[position.line - 1]) + position.column - 1;
  const std::size_t checkpoint = wanted / characters_apart;
  if (checkpoint >= checkpoints_.size()) return line_end;
  std::size_t at = checkpoints_[checkpoint];
  for (std::size_t i = wanted % characters_apart; i > 0 && at < line_end; --i) {
    at += character_length(std::string_view(text_).substr(at));
  }
  return std::min(at, line_end);
}

std::string_view span::text() const {
  if (in == nullptr || begin == everything) return {};
  return std::string_view(in->text()).substr(begin, end - begin);
}

excerpt excerpt_of(span place, std::string label) {
  if (place.in == nullptr) return {};
  const source& from = *place.in;
  excerpt made;
  made.origin = from.name();
  made.label = std::move(label);
  if (place.begin == span::everything) return made;
  const text_position begin = from.position_of(place.begin);
  std::string_view line = from.line_at(place.begin);
  const std::size_t line_begin = from.offset_of({begin.line, 1});
  // Only the part in the first line is underlined.
  const std::size_t end = std::clamp(place.end, place.begin, std::max(place.begin, line_begin + line.size()));
  // Variables and options are shown as one line, even if they contain line breaks.
  made.line = from.has_lines() ? begin.line : 0;
  made.column = begin.column;
  made.length =
      std::max(characters_in(std::string_view(from.text()).substr(place.begin, end - place.begin)), 1U);
  if (line.size() > line_bytes_max) {
    // Copy only a part of a very long line into each diagnostic.
    std::size_t first = std::min(place.begin - line_begin, line.size());
    first -= std::min(first, line_bytes_max / 2);
    while (first > 0 && continues_character(line[first])) --first;
    std::size_t last = std::min(line.size(), first + line_bytes_max);
    while (last < line.size() && continues_character(line[last])) ++last;
    made.source_column = characters_in(line.substr(0, first)) + 1;
    line = line.substr(first, last - first);
  }
  made.source_line = line;
  return made;
}

void complaints::add(complaint one) {
  const std::uint32_t order = one.at.in != nullptr ? one.at.in->order() : 0;
  // Report each mistake in a file that is included twice only once.
  if (!said_.emplace(order, one.at.begin, one.message).second) return;
  errors_ += one.level == severity::error ? 1 : 0;
  if (full()) return;
  if (entries_.size() == complaints_max) {
    one = {.at = {one.at.in, span::everything, span::everything},
           .message = fmt::format("more than {} mistakes: the rest is not shown", complaints_max)};
  }
  // Keep messages short, however long the user's text is.
  diagnostic what{one.level,
                  shortened(one.message, 500),
                  std::move(one.key),
                  excerpt_of(one.at, shortened(one.label, 300)),
                  std::move(one.related),
                  shortened(one.help, 1000)};
  // Diagnostics about the whole source come first, because everything + 1 wraps around to 0.
  entries_.push_back({order, one.at.begin + 1, std::move(what)});
}

bool complaints::full() const noexcept {
  return entries_.size() > complaints_max;
}

std::vector<diagnostic> complaints::sorted() const {
  std::vector<const entry*> order;
  order.reserve(entries_.size());
  for (const entry& one : entries_) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(), [](const entry* a, const entry* b) {
    return std::pair(a->order, a->offset) < std::pair(b->order, b->offset);
  });
  std::vector<diagnostic> found;
  found.reserve(order.size());
  for (const entry* one : order) found.push_back(one->what);
  return found;
}

std::size_t first_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

}  // namespace penstock::config_file
