#include "runtime/dataset/tar/shard_index.hpp"

#include "runtime/base/member_choice.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/local_file.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"
#include "runtime/dataset/tar/member_name.hpp"
#include "runtime/dataset/tar/record_codec.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

namespace penstock {
namespace {

constexpr std::uint32_t samples_max = std::numeric_limits<std::uint32_t>::max() - 1;
constexpr std::uint32_t offset_max = std::numeric_limits<std::uint32_t>::max();

/// An entry of the table of keys: the upper half of the hash, and the number of the sample, counted from 1.
std::uint64_t entry_of(std::uint64_t hash, std::uint64_t sample) noexcept {
  return (hash & 0xffffffff00000000U) | (sample + 1);
}

indexed_kind kind_in_index(tar_kind kind) noexcept {
  switch (kind) {
    case tar_kind::file: return indexed_kind::file;
    case tar_kind::link: return indexed_kind::link;
    case tar_kind::sparse: return indexed_kind::sparse;
    case tar_kind::folder:
    case tar_kind::other: break;
  }
  return indexed_kind::other;
}

/// How many bytes to read at once when scanning for headers.
struct read_sizes {
  std::size_t small;   ///< used where headers are far apart
  std::size_t large;   ///< used where they are close together
  std::uint64_t far;  ///< below this distance, reading everything is cheaper than another read
};

constexpr read_sizes sizes_of_file{4 * KiB, 256 * KiB, 8 * KiB};
/// A request takes as long as transferring some MiB.
constexpr read_sizes sizes_of_object{64 * KiB, 4 * MiB, 2 * MiB};

/// Reads pieces of a shard at increasing offsets. If headers are close together, it reads everything in large pieces;
/// if they are far apart, a small piece at each header.
class header_reader {
 public:
  header_reader(readable& shard, const read_sizes& sizes) : shard_(shard), sizes_(sizes), buffer_(sizes.large) {}

  result<std::span<const std::byte>> read(tar_range range) {
    if (!has(range)) {
      if (auto ok = fill(range); !ok) return tl::unexpected(ok.error());
    }
    return rest(range.at).first(range.bytes);
  }

  [[nodiscard]] bool has(tar_range range) const noexcept { return range.at >= begin_ && range.at + range.bytes <= end_; }

  /// Everything in the buffer from this offset on. Contains at least what the last read() returned.
  [[nodiscard]] std::span<const std::byte> rest(std::uint64_t at) const { return std::span(buffer_).subspan(at - begin_, end_ - at); }

 private:
  result<void> fill(tar_range range) {
    // How much of the data since the last read was used shows how dense the headers are.
    const std::uint64_t distance = range.at - last_at_;
    last_at_ = range.at;
    const bool dense = distance <= end_ - begin_ + sizes_.far;
    std::size_t wanted = std::max<std::size_t>(dense ? sizes_.large : sizes_.small, range.bytes);
    wanted = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, shard_.bytes() - range.at));
    if (buffer_.size() < wanted) buffer_.resize(wanted);
    if (auto ok = shard_.read(range.at, std::span(buffer_).first(wanted)); !ok) return ok;
    begin_ = range.at;
    end_ = range.at + wanted;
    return {};
  }

  readable& shard_;
  read_sizes sizes_;
  std::vector<std::byte> buffer_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t last_at_ = 0;
};

std::string_view characters_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view compression_by_magic(std::span<const std::byte> start) noexcept {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> magics{
      {{"\x1f\x8b", "gzip"},
       {"\x28\xb5\x2f\xfd", "zstd"},
       {"BZh", "bzip2"},
       {"\xfd"
        "7zXZ",
        "xz"},
       {"\x04\x22\x4d\x18", "lz4"}}};
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  for (const auto& [magic, program] : magics)
    if (text.starts_with(magic)) return program;
  return {};
}

/// Counts progress through an archive in bytes of its (perhaps compressed) file.
class file_progress {
 public:
  file_progress(const shard_index& shard, std::atomic<std::uint64_t>& file_bytes)
      : share_(static_cast<double>(shard.file_bytes) / static_cast<double>(std::max<std::uint64_t>(shard.bytes, 1))), file_bytes_(file_bytes) {}
  void add(std::uint64_t archive_bytes) { file_bytes_ += static_cast<std::uint64_t>(share_ * static_cast<double>(archive_bytes)); }

 private:
  double share_;
  std::atomic<std::uint64_t>& file_bytes_;
};

/// Reads the headers of a shard from a given header on.
class part_of_shard {
 public:
  part_of_shard(readable& from, const read_sizes& sizes, tar_parser begin, const file_progress& progress)
      : parser(std::move(begin)), reader_(from, sizes), progress_(progress) {}

  /// Reads up to the first header at or after `until`, or to the end of the archive. Call it again to continue.
  result<void> read(std::uint64_t until) {
    constexpr std::uint64_t told_every = 4 * MiB;
    if (const auto range = parser.wanted()) told_ = range->at;
    while (const auto range = parser.wanted()) {
      if (range->at >= until && parser.is_between_members()) break;
      if (range->at - told_ >= told_every) {
        progress_.add(range->at - told_);
        told_ = range->at;
      }
      const auto bytes = reader_.read(*range);
      if (!bytes) return tl::unexpected(bytes.error());
      if (parser.take_plain(reader_.rest(range->at), until, [this](const tar_member& plain) { add(plain); })) {
        if (auto ok = read_number(); !ok) return ok;
        continue;
      }
      const auto member = parser.take(*bytes);
      if (!member) {
        const std::string_view program = range->at == 0 ? compression_by_magic(*bytes) : std::string_view();
        if (program.empty()) return tl::unexpected(member.error());
        if (program == "zstd")
          return refuse(errc::dataset, "is compressed with zstd: such shards are read if they are named .tar.zst and have a seek table");
        return refuse(errc::dataset, "is compressed with {}: only zstd is read; decompress it", program);
      }
      if (!*member) continue;
      add(**member);
      if (auto ok = read_number(); !ok) return ok;
    }
    return {};
  }

  /// Bytes after the end marker, even if there are so few that the parser takes them for padding.
  result<std::uint64_t> bytes_after_end() {
    const auto padding = parser.padding();
    if (!padding) return parser.bytes_after_end();
    const auto bytes = reader_.read(*padding);
    if (!bytes) return tl::unexpected(bytes.error());
    return std::ranges::all_of(*bytes, [](std::byte b) { return b == std::byte{0}; }) ? 0 : padding->bytes;
  }

  tar_parser parser;
  shard_grouping grouping;

 private:
  /// Only a number that is already in the buffer is read now. Reading more would replace the buffer, from which the
  /// parser still takes headers.
  void add(const tar_member& member) {
    if (!grouping.add(member)) return;
    const tar_range contents{member.data_at, member.size};
    if (reader_.has(contents))
      grouping.number_is(characters_of(reader_.rest(contents.at).first(contents.bytes)));
    else
      number_at_ = contents;
  }

  result<void> read_number() {
    if (!number_at_) return {};
    const auto contents = reader_.read(*std::exchange(number_at_, std::nullopt));
    if (!contents) return tl::unexpected(contents.error());
    grouping.number_is(characters_of(*contents));
    return {};
  }

  header_reader reader_;
  std::optional<tar_range> number_at_;  // where the latest member's number is; set if that is beyond the buffer
  std::uint64_t told_ = 0;
  file_progress progress_;
};

/// The first block in [begin, end) that looks like a header; `end` if there is none or the file cannot be read.
std::uint64_t find_header(readable& from, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> piece(64 * KiB);
  for (std::uint64_t at = begin; at < end; at += piece.size()) {
    const auto here = std::span(piece).first(std::min<std::uint64_t>(piece.size(), end - at));
    if (!from.read(at, here)) return end;
    for (std::size_t i = 0; i + tar_block <= here.size(); i += tar_block)
      if (looks_like_header(here.subspan(i, tar_block))) return at + i;
  }
  return end;
}

/// Opens the archive in a shard. Each thread needs its own.
using archive_opener = std::function<std::unique_ptr<readable>()>;

/// What one thread has read of an archive, beginning at a block that looks like a header.
struct read_part {
  std::unique_ptr<readable> archive;
  std::uint64_t begin = 0;
  std::optional<part_of_shard> part;
  bool sound = false;

  void read(const archive_opener& open, std::uint64_t from, std::uint64_t end, const shard_grouping& first, const file_progress& progress) {
    archive = open();
    begin = find_header(*archive, from, end);
    if (begin == end) return;
    part.emplace(*archive, sizes_of_file, tar_parser(archive->bytes(), begin), progress);
    part->grouping.number_extensions_as(first);
    sound = part->read(end).has_value();
  }
};

/// Uses a part only if a member of the archive begins where the part begins. Whatever is missing or damaged is then read in order.
result<part_of_shard> join(part_of_shard whole, std::span<read_part> later, std::uint64_t bytes) {
  const auto position = [&] {
    const auto next = whole.parser.wanted();
    return next ? next->at : bytes;
  };
  for (read_part& one : later) {
    if (!one.sound || position() > one.begin) continue;
    if (auto ok = whole.read(one.begin); !ok) return tl::unexpected(std::move(ok.error()));
    if (position() != one.begin || !whole.parser.is_between_members()) continue;
    whole.grouping.append(std::move(one.part->grouping));
    whole.parser = one.part->parser;
  }
  if (auto ok = whole.read(bytes + 1); !ok) return tl::unexpected(std::move(ok.error()));
  return whole;
}

result<part_of_shard> read_in_parts(readable& archive, const archive_opener& open, unsigned count, const file_progress& progress) {
  const std::uint64_t bytes = archive.bytes();
  const auto boundary = [&](unsigned i) { return i == count ? bytes : bytes / count * i / tar_block * tar_block; };
  constexpr std::uint64_t usual_members = 64 * KiB;
  std::vector<read_part> later(count - 1);
  part_of_shard first(archive, sizes_of_file, tar_parser(bytes), progress);
  result<void> done = first.read(std::min(usual_members, boundary(1)));  // most archives have all their extensions there
  if (!done) return tl::unexpected(std::move(done.error()));
  const shard_grouping beginning = first.grouping;
  {
    std::vector<std::jthread> threads;
    const all_signals_blocked in_the_new_threads;
    for (unsigned i = 1; i < count; ++i)
      threads.emplace_back([&, i] { later[i - 1].read(open, boundary(i), boundary(i + 1), beginning, progress); });
    done = first.read(boundary(1));
  }
  if (!done) return tl::unexpected(std::move(done.error()));
  return join(std::move(first), later, bytes);
}

result<void> finish(part_of_shard& whole, shard_index& shard) {
  shard.has_end_marker = whole.parser.has_end_marker();
  const auto after_end = whole.bytes_after_end();
  if (!after_end) return tl::unexpected(after_end.error());
  shard.bytes_after_end = *after_end;
  return whole.grouping.finish(shard);
}

/// The frames of a shard, if its name says that it is compressed.
result<void> find_frames(readable& file, const std::string& name, shard_index& shard) {
  if (!is_zstd_name(name)) return {};
  auto frames = read_frames(file);
  if (!frames) return tl::unexpected(std::move(frames.error()));
  if (frames->empty()) return refuse(errc::dataset, "is empty: not a tar archive");
  shard.frames = std::move(*frames);
  return {};
}

result<shard_index> read_shard_file(const std::string& path, unsigned parts, std::atomic<std::uint64_t>& progress) {
  auto file = local_file::open(path);
  if (!file) return tl::unexpected(std::move(file.error()));
  shard_index shard;
  shard.file_bytes = (*file)->bytes();
  shard.modified_ns = (*file)->modified_ns();
  if (auto ok = find_frames(**file, path, shard); !ok) return tl::unexpected(std::move(ok.error()));
  const auto open = [&]() -> std::unique_ptr<readable> {
    auto own = std::make_unique<local_file>(path, shard.file_bytes, shard.modified_ns);
    if (shard.frames.empty()) return own;
    return std::make_unique<zstd_archive>(std::move(own), shard.frames);
  };
  const auto archive = open();
  shard.bytes = archive->bytes();
  auto whole = read_in_parts(*archive, open, std::max(parts, 1U), file_progress(shard, progress));
  if (!whole) return tl::unexpected(std::move(whole.error()));
  if (auto ok = finish(*whole, shard); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto ok = (*file)->check_unchanged(); !ok)
    return refuse(errc::dataset, "changed while it was being indexed: start again when it is complete");
  return shard;
}

result<shard_index> with_name(result<shard_index> shard, const std::string& name) {
  if (!shard) {
    shard.error().message = fmt::format("the shard '{}' {}", printable(name), shard.error().message);
    return shard;
  }
  shard->name = name;
  return shard;
}

}  // namespace

bool shard_grouping::add(const tar_member& member) {
  if (member.kind == tar_kind::folder) return false;
  const member_name parts = split_member_name(member.name);
  if (parts.key.empty()) return false;
  const std::uint32_t extension = extension_of(parts.extension);
  const auto kind = static_cast<std::uint32_t>(kind_in_index(member.kind));
  ++extensions_[extension].members;
  extensions_[extension].longest = std::max(extensions_[extension].longest, member.size);
  const found_member found{member.header_at, member.size, 0, extension << 2U | kind, 0};
  add(parts.key, found);
  return is_with_number(found);
}

bool shard_grouping::is_with_number(const found_member& member) const noexcept {
  return extensions_[member.extension_and_kind >> 2U].is_number && has_number(static_cast<indexed_kind>(member.extension_and_kind & 3U), member.size);
}

void shard_grouping::number_is(std::string_view contents) noexcept {
  std::vector<found_member>& latest = in_order_ ? newest_ : members_;
  std::int64_t number = 0;
  if (!latest.empty() && number_of_text(contents, number) == std::errc{}) latest.back().number = code_of_number(number);
}

void shard_grouping::number_extensions_as(const shard_grouping& other) {
  for (const shard_extension& one : other.extensions_) extension_of(one.text);
}

void shard_grouping::add(std::string_view key, found_member member) {
  const int order = in_order_ ? key.compare(key_) : 0;
  if (order < 0) leave_order();
  if (!in_order_) {
    if (keys_.size() >= samples_max) return;  // finish() refuses it
    member.sample = sample_of(key);
    members_.push_back(member);
    return;
  }
  if (order != 0) {
    close_sample();
    key_ = key;
  }
  newest_.push_back(member);
}

/// Writes the newest sample. Called when the next member has another key.
void shard_grouping::close_sample() {
  if (newest_.empty()) return;
  append_sample(key_, newest_);
  newest_.clear();
}

void shard_grouping::append_sample(std::string_view key, std::span<const found_member> members) {
  added_ += members.size();
  offsets_.push_back(static_cast<std::uint32_t>(std::min<std::size_t>(records_.size(), offset_max)));  // finish() refuses more
  const std::size_t longest = key.size() + number_bytes_max * (2 + 3 * members.size());
  if (record_.size() < longest) record_.resize(longest);  // one append instead of one for each number
  char* end = write_number(record_.data(), key.size());
  end = std::copy(key.begin(), key.end(), end);
  end = write_number(end, members.size());
  std::uint64_t block = 0;
  for (const found_member& member : members) {
    end = write_number(end, member.extension_and_kind);
    end = write_number(end, member.header_at / tar_block - block);
    end = write_number(end, member.size);
    block = member.header_at / tar_block + 1 + blocks_of(member.size);
    if (!is_with_number(member)) continue;
    std::array<char, number_bytes_max> code;
    numbers_.append(code.data(), write_number(code.data(), member.number));
  }
  records_.append(record_.data(), end);
}

template <class Use>
std::string_view shard_grouping::read_record(std::string_view record, std::string_view& numbers, const Use& use) const {
  const auto number = [&] { return take_number(record).value_or(0); };
  const std::string_view key = record.substr(0, number());
  record.remove_prefix(key.size());
  std::uint64_t block = 0;
  for (std::uint64_t left = number(); left > 0; --left) {
    const auto extension_and_kind = static_cast<std::uint32_t>(number());
    block += number();
    const std::uint64_t size = number();
    found_member member{block * tar_block, size, 0, extension_and_kind, 0};
    if (is_with_number(member)) member.number = take_number(numbers).value_or(0);
    use(key, member);
    block += 1 + blocks_of(size);
  }
  return record;
}

template <class Use>
void shard_grouping::for_each_member(const Use& use) const {
  std::string_view numbers = numbers_;
  for (std::string_view left = records_; !left.empty();) left = read_record(left, numbers, use);
  for (const found_member& member : newest_) use(key_, member);
  for (const found_member& member : members_) use(text_of(keys_[member.sample]), member);
}

/// Called at the first key that does not ascend.
void shard_grouping::leave_order() {
  const shard_grouping ordered = std::exchange(*this, {});
  in_order_ = false;
  extensions_ = ordered.extensions_;
  extension_numbers_ = ordered.extension_numbers_;
  ordered.for_each_member([this](std::string_view key, const found_member& member) { add(key, member); });
}

std::string_view shard_grouping::first_key() const noexcept {
  std::string_view first = records_;
  const auto bytes = take_number(first);
  return bytes ? first.substr(0, *bytes) : std::string_view(key_);
}

/// `behind` must be in order, use the same numbers for extensions, and have no key below this object's newest
/// key.
void shard_grouping::append_in_order(shard_grouping& behind) {
  std::string_view records = behind.records_;
  std::string_view numbers = behind.numbers_;
  std::span<const std::uint32_t> offsets = behind.offsets_;
  if (!records.empty() && behind.first_key() == key_) {
    records = behind.read_record(records, numbers, [&](std::string_view, const found_member& member) {
      newest_.push_back(member);
      --behind.added_;  // close_sample() counts it
    });
    offsets = offsets.subspan(1);
  }
  if (behind.key_ == key_) {
    newest_.insert(newest_.end(), behind.newest_.begin(), behind.newest_.end());
    return;
  }
  close_sample();
  const std::uint64_t skipped = behind.records_.size() - records.size();
  const std::uint64_t base = records_.size() - skipped;
  for (const std::uint32_t offset : offsets)
    offsets_.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(base + offset, offset_max)));
  records_ += records;
  numbers_ += numbers;
  added_ += behind.added_;
  key_ = std::move(behind.key_);
  newest_ = std::move(behind.newest_);
}

void shard_grouping::append(shard_grouping behind) {
  std::vector<std::uint32_t> extensions;
  bool same_numbers = true;
  for (const shard_extension& one : behind.extensions_) {
    extensions.push_back(extension_of(one.text));
    same_numbers = same_numbers && extensions.back() + 1 == extensions.size();
    shard_extension& own = extensions_[extensions.back()];
    own.members += one.members;
    own.longest = std::max(own.longest, one.longest);
  }
  if (in_order_ && behind.in_order_ && same_numbers && key_ <= behind.first_key()) return append_in_order(behind);
  behind.for_each_member([&](std::string_view key, found_member member) {
    member.extension_and_kind = extensions[member.extension_and_kind >> 2U] << 2U | (member.extension_and_kind & 3U);
    add(key, member);
  });
}

std::uint32_t shard_grouping::extension_of(std::string_view extension) {
  // Shards have few extensions, so comparing is faster than hashing.
  constexpr std::size_t compared_max = 8;
  for (std::size_t i = 0; i < std::min(extensions_.size(), compared_max); ++i)
    if (extensions_[i].text == extension) return static_cast<std::uint32_t>(i);
  if (const auto known = extension_numbers_.find(extension); known != extension_numbers_.end())
    return known->second;
  std::string lower = lower_case(extension);
  const auto same = extension_numbers_.find(lower);
  const auto number =
      same != extension_numbers_.end() ? same->second : static_cast<std::uint32_t>(extensions_.size());
  if (same == extension_numbers_.end()) {
    extensions_.push_back({lower, 0, 0, kind_of_extension(lower) == member_kind::number});
    extension_numbers_.emplace(std::move(lower), number);
  }
  extension_numbers_.emplace(extension, number);
  return number;
}

void shard_grouping::grow_table() {
  // A power of two: 64, then doubled whenever half full.
  table_.assign(std::max<std::size_t>(64, 4 * keys_.size()), 0);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    std::size_t at = keys_[i].hash & (table_.size() - 1);
    while (table_[at] != 0) at = (at + 1) & (table_.size() - 1);
    table_[at] = entry_of(keys_[i].hash, i);
  }
}

std::uint32_t shard_grouping::sample_of(std::string_view key) {
  if (!members_.empty()) {
    const std::uint32_t last = members_.back().sample;
    if (text_of(keys_[last]) == key) return last;
  }
  if (2 * keys_.size() >= table_.size()) grow_table();
  const std::uint64_t hash = std::hash<std::string_view>{}(key);
  std::size_t at = hash & (table_.size() - 1);
  for (; table_[at] != 0; at = (at + 1) & (table_.size() - 1)) {
    const auto sample = static_cast<std::uint32_t>(table_[at]) - 1;
    // Comparing hashes first saves an access to the key's memory.
    if (table_[at] == entry_of(hash, sample) && text_of(keys_[sample]) == key) return sample;
  }
  table_[at] = entry_of(hash, keys_.size());
  keys_.push_back({hash, pool_.size(), static_cast<std::uint32_t>(key.size())});
  pool_ += key;
  return static_cast<std::uint32_t>(keys_.size() - 1);
}

result<void> shard_grouping::finish(shard_index& to) {
  close_sample();
  if (!std::ranges::is_sorted(members_, {}, &found_member::sample)) std::ranges::stable_sort(members_, {}, &found_member::sample);
  for (auto next = members_.begin(); next != members_.end();) {
    const auto end = std::find_if(next, members_.end(), [&](const found_member& m) { return m.sample != next->sample; });
    append_sample(text_of(keys_[next->sample]), {next, end});
    next = end;
  }
  if (offsets_.size() >= samples_max) return refuse(errc::dataset, "has more than {} samples", samples_max - 1);
  if (!offsets_.empty() && offsets_.back() == offset_max)
    return refuse(errc::dataset, "has so many keys and members that their index needs more than 4 GiB: split it");
  to.offsets = std::move(offsets_);
  to.records = std::move(records_);
  to.numbers = std::move(numbers_);
  to.members = added_;
  to.extensions = std::move(extensions_);
  return {};
}

result<shard_index> read_shard(const std::string& path, const std::string& name, unsigned parts,
                               std::atomic<std::uint64_t>& progress) {
  return with_name(read_shard_file(path, parts, progress), name);
}

result<shard_index> read_shard(const std::shared_ptr<readable>& object, const std::string& tag, const std::string& name,
                               std::atomic<std::uint64_t>& progress) {
  shard_index shard;
  shard.file_bytes = object->bytes();
  shard.tag = tag;
  if (auto ok = find_frames(*object, name, shard); !ok) return with_name(tl::unexpected(std::move(ok.error())), name);
  const std::shared_ptr<readable> archive = shard.frames.empty() ? object : std::make_shared<zstd_archive>(object, shard.frames);
  shard.bytes = archive->bytes();
  part_of_shard whole(*archive, sizes_of_object, tar_parser(shard.bytes), file_progress(shard, progress));
  auto ok = whole.read(shard.bytes + 1);
  if (ok) ok = finish(whole, shard);
  if (!ok) return with_name(tl::unexpected(std::move(ok.error())), name);
  return with_name(std::move(shard), name);
}

}  // namespace penstock
