#include "runtime/dataset/tokens/tokens_dataset.hpp"

#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/tokens/token_types.hpp"
#include "runtime/dataset/tokens/widen.hpp"

#include <algorithm>
#include <map>
#include <type_traits>

namespace penstock {
namespace {

/// The id as an unsigned number; negative ids become very large.
template <class Token>
std::uint64_t as_id(Token token) noexcept {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(token));
}

/// Sets targets[i] = ignored_target where from[i] is `eos`. Such tokens are rare. In a block without
/// one, only `from` is read, and `targets`, which may be far from this core, is not touched.
template <class Token, class Id>
void ignore_after(std::uint64_t eos, std::span<const Token> from, std::span<Id> targets) noexcept {
  constexpr std::size_t block = 64;
  for (std::size_t begin = 0; begin < targets.size(); begin += block) {
    const auto here = from.subspan(begin, std::min(block, targets.size() - begin));
    std::size_t found = 0;
    for (const Token token : here) found += as_id(token) == eos ? 1 : 0;
    if (found == 0) continue;
    for (std::size_t i = 0; i < here.size(); ++i)
      if (as_id(here[i]) == eos) targets[begin + i] = ignored_target;
  }
}

}  // namespace

tokens_dataset::tokens_dataset(token_index index, const dataset_config& settings, std::shared_ptr<object_store> store)
    : index_(std::move(index)),
      settings_(settings),
      ids_end_(settings.vocab ? *settings.vocab : int32_ids),
      files_(folder_of_token_files(settings.path), std::move(store)) {}

dataset_description tokens_dataset::describe(const token_index& index, const dataset_config& settings) {
  const dtype id = gives_int64(settings) ? dtype::int64 : dtype::int32;
  const std::uint32_t length = settings.sequence_length;
  dataset_description described{"tokens",
                                index.samples(),
                                {{"tokens", id, {length}}, {"targets", id, {length}}},
                                std::string(index.fingerprint())};
  if (settings.boundaries == boundary_rule::pack)
    described.tensors.push_back({"doc_lengths", dtype::int32, {index.entries_of_lengths()}});
  return described;
}

void tokens_dataset::fail(std::uint64_t file, const failure& why, std::string_view part) const {
  failure told = why;
  told.message = fmt::format("{}'{}' {}", part, printable(index_.file(file).name), why.message);
  throw_failed(std::move(told));
}

template <class Use>
void tokens_dataset::for_each_part(std::uint64_t first, std::size_t count, const Use& use) const {
  for (std::size_t have = 0; have < count;) {
    const std::uint64_t number = index_.file_of(first + have);
    const indexed_token_file file = index_.file(number);
    const std::uint64_t begin = first + have - file.first_token;
    const auto here = static_cast<std::size_t>(std::min<std::uint64_t>(count - have, file.tokens - begin));
    const std::uint64_t element = size_of(index_.element());
    use(part{number, begin, have, here}, byte_range{file.data_at + begin * element, here * element});
    have += here;
  }
}

template <class Token>
std::span<const Token> tokens_dataset::read(std::uint64_t first, std::size_t count) {
  const timed_read timed;
  raw_.resize(count * sizeof(Token));
  parts_.clear();
  for_each_part(first, count, [&](const part& one, byte_range range) {
    const auto into = std::span(raw_).subspan(one.at * sizeof(Token), range.bytes);
    if (!opened_ || read_file_ != one.file) {
      opened_ = files_.file(index_, one.file);
      read_file_ = one.file;
    }
    if (auto ok = opened_->read(range.at, into); !ok) fail(one.file, ok.error());
    parts_.push_back(one);
  });
  return {reinterpret_cast<const Token*>(raw_.data()), count};
}

/// load() may be running on another thread, so this function uses only constant data and its own data.
void tokens_dataset::expect(std::span<const std::uint64_t> samples) {
  if (!files_.is_remote()) return;
  std::map<std::uint64_t, std::vector<byte_range>> by_file;
  const auto add = [&](std::uint64_t first, std::size_t count) {
    for_each_part(first, count, [&](const part& one, byte_range range) { by_file[one.file].push_back(range); });
  };
  const std::uint32_t length = settings_.sequence_length;
  for (const std::uint64_t sample : samples) {
    if (settings_.boundaries != boundary_rule::pack) {
      add(sample * length, std::size_t{length} + 1);
      continue;
    }
    const auto packed = ahead_.pieces_of(index_, sample, length);
    for (const packed_piece& piece : packed.pieces)
      add(packed.begins[piece.document] + piece.first, std::size_t{piece.tokens} + 1);
  }
  for (auto& [file, ranges] : by_file) files_.file(index_, file)->expect(std::move(ranges));
}

template <class Token, class Id>
void tokens_dataset::convert(std::span<const Token> read, std::span<Id> tokens, std::span<Id> targets) {
  // Read as an unsigned number of at least 32 bits, a negative id exceeds every valid id.
  using number = std::conditional_t<(sizeof(Token) < 4), std::conditional_t<std::is_signed_v<Token>, std::uint32_t, Token>,
                                    std::make_unsigned_t<Token>>;
  const std::uint64_t end = std::is_signed_v<Token> && sizeof(Token) <= 4 ? std::min(ids_end_, int32_ids) : ids_end_;
  if (widen_fast<number>(read.data(), tokens.data(), targets.data(), tokens.size()) >= end) refuse_id(read);
}

template <class Token>
void tokens_dataset::refuse_id(std::span<const Token> read) const {
  const auto found = std::ranges::find_if(read, [this](Token token) { return as_id(token) >= ids_end_; });
  const auto at = static_cast<std::size_t>(found - read.begin());
  const auto in = std::ranges::find_if(parts_, [at](const part& p) { return at - p.at < p.tokens; });
  throw error({errc::sample,
               fmt::format("token {} of '{}' has the id {}: {}", in->begin + at - in->at,
                           printable(index_.file(in->file).name), *found,
                           std::cmp_less(*found, 0) ? "ids cannot be negative"
                           : settings_.vocab ? fmt::format("ids are below vocab = {}", *settings_.vocab)
                                             : "set [dataset] vocab for ids beyond 2147483647"),
               0});
}

template <class Token, class Id>
void tokens_dataset::mask(std::span<const Token> read, std::span<Id> targets) {
  for (const part& one : parts_) {
    if (one.at > 0) targets[one.at - 1] = ignored_target;  // the end of the file also ends its last document
    if (index_.file(one.file).index_bytes == 0) {
      const std::size_t end = std::min(one.at + one.tokens, targets.size());
      ignore_after(*settings_.eos, read.subspan(one.at), targets.first(end).subspan(one.at));
      continue;
    }
    begins_.clear();
    if (index_.has_documents()) {
      const std::uint64_t first = index_.file(one.file).first_token + one.begin;
      index_.begins_between(first, first + one.tokens, begins_);
      for (const std::uint64_t begin : begins_) targets[one.at + (begin - first) - 1] = ignored_target;
      continue;
    }
    const auto documents = files_.documents(index_, one.file);
    if (!documents) fail(one.file, documents.error(), "the index of ");
    if (auto ok = (*documents)->begins_between(one.begin, one.begin + one.tokens, begins_); !ok)
      fail(one.file, ok.error(), "the index of ");
    for (const std::uint64_t begin : begins_) targets[one.at + (begin - one.begin) - 1] = ignored_target;
  }
}

template <class Token, class Id>
void tokens_dataset::load_as(std::uint64_t sample, const sample_slot& slot) {
  if (settings_.boundaries == boundary_rule::pack) return load_packed<Token, Id>(sample, slot);
  const std::size_t length = settings_.sequence_length;
  const auto tokens = slot.as<Id>(0);
  const auto targets = slot.as<Id>(1);
  const auto raw = read<Token>(sample * length, length + 1);
  convert<Token, Id>(raw, tokens, targets);
  if (settings_.boundaries == boundary_rule::mask) mask<Token, Id>(raw, targets);
}

tokens_dataset::packed_window::of_sample tokens_dataset::packed_window::pieces_of(const token_index& index,
                                                                                  std::uint64_t sample,
                                                                                  std::uint32_t length) {
  const std::uint64_t window = index.window_of(sample);
  const indexed_window facts = index.window(window);
  if (window != window_) {
    packing_.emplace(facts.lengths, length);
    begins_.clear();
    std::uint64_t token = facts.first_token;
    for (const std::uint32_t document : facts.lengths) {
      begins_.push_back(token);
      token += document;
    }
    window_ = window;
  }
  return {packing_->pieces(sample - facts.first_sequence), begins_};
}

template <class Token, class Id>
void tokens_dataset::load_packed(std::uint64_t sample, const sample_slot& slot) {
  const auto tokens = slot.as<Id>(0);
  const auto targets = slot.as<Id>(1);
  const auto ends = slot.as<std::int32_t>(2);
  std::size_t at = 0;
  std::size_t entry = 0;
  ends[entry++] = 0;
  const auto packed = packed_.pieces_of(index_, sample, settings_.sequence_length);
  for (const packed_piece& piece : packed.pieces) {
    const auto raw = read<Token>(packed.begins[piece.document] + piece.first, std::size_t{piece.tokens} + 1);
    convert<Token, Id>(raw, tokens.subspan(at, piece.tokens), targets.subspan(at, piece.tokens));
    at += piece.tokens;
    ends[entry++] = static_cast<std::int32_t>(at);
  }
  std::ranges::fill(tokens.subspan(at), Id{0});
  std::ranges::fill(targets.subspan(at), Id{ignored_target});
  std::ranges::fill(ends.subspan(entry), static_cast<std::int32_t>(tokens.size()));
}

void tokens_dataset::load(const sample_request& request, const sample_slot& slot) {
  const stage_range range("read");
  with_token_type(index_.element(), [&]<class Token>() {
    if (gives_int64(settings_))
      load_as<Token, std::int64_t>(request.index, slot);
    else
      load_as<Token, std::int32_t>(request.index, slot);
  });
}

std::string tokens_dataset::name_of(std::uint64_t index) const {
  std::uint64_t token = index * settings_.sequence_length;
  if (settings_.boundaries == boundary_rule::pack) {
    const auto packed = packed_.pieces_of(index_, index, settings_.sequence_length);
    token = packed.begins[packed.pieces.front().document] + packed.pieces.front().first;
  }
  const indexed_token_file file = index_.file(index_.file_of(token));
  return fmt::format("{}[{}]", printable(file.name), token - file.first_token);
}

}  // namespace penstock
