#include <fmt/format.h>

#include "runtime/base/check.hpp"
#include "runtime/base/member_choice.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/base/xxh3.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/tar/tar_index.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace penstock {

// Layout, all numbers little-endian and naturally aligned, sections in this order without gaps:
//
//   header
//   shard_entry shards[]
//   extension_entry extensions[]   shard by shard
//   zstd_frame frames[]            shard by shard, of compressed shards
//   u32 offsets[samples]           where the sample's record begins among those of its shard
//   texts                          the name and tag of each shard; extensions
//   records                        shard by shard, see record_codec.hpp
//   numbers                        the same

struct tar_index::header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t checksum;  // XXH3-64 of everything after this field
  std::uint64_t total_bytes;
  std::uint64_t samples;
  std::uint64_t shards;
  std::uint64_t extensions;
  std::uint64_t frames;
  std::uint64_t text_bytes;
  std::array<char, 32> fingerprint;
};

struct tar_index::shard_entry {
  std::uint64_t bytes;
  std::uint64_t file_bytes;
  std::int64_t modified_ns;
  std::uint64_t samples_end;     // where this shard's samples end; they begin where those of the previous shard end, or at 0
  std::uint64_t extensions_end;  // where its extensions end, in the same way
  std::uint64_t frames_end;      // where its frames end
  std::uint64_t records_end;     // where its records end, counted from the first record
  std::uint64_t numbers_end;     // where its numbers end, counted from the first number
  std::uint64_t name_end;        // where its texts end: its name, then its version's tag
  std::uint64_t tag_bytes;       // length of the tag, at the end of that text
  std::uint64_t members;
  std::uint64_t bytes_after_end;
  std::uint64_t has_end_marker;
};

struct tar_index::extension_entry {
  std::uint64_t text_at;
  std::uint64_t text_bytes;
  std::uint64_t members;
  std::uint64_t longest;
};

namespace {

constexpr std::array<char, 8> tar_index_magic{'P', 'N', 'S', 'T', 'K', 'T', 'A', 'R'};
constexpr std::uint32_t tar_index_version = 4;
constexpr std::size_t checksummed_from = 24;

/// Writes in large pieces and computes the checksum of what it writes.
class summing_writer {
 public:
  explicit summing_writer(int fd) : fd_(fd) {}

  void add(const void* bytes, std::size_t size) {
    const auto* const from = static_cast<const std::byte*>(bytes);
    sum_.add(std::span(from, size));
    if (pending_.size() + size > piece) flush();
    if (size > piece) {
      write({from, size});
    } else {
      pending_.insert(pending_.end(), from, from + size);
    }
  }
  template <class T>
  void add(std::span<const T> values) {
    add(values.data(), values.size_bytes());
  }
  /// The errno of the first failed write; 0 if none failed.
  int finish() {
    flush();
    return os_code_;
  }
  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_.value(); }

 private:
  static constexpr std::size_t piece = 1 * MiB;

  void write(std::span<const std::byte> bytes) {
    if (os_code_ == 0) os_code_ = write_all(fd_, bytes);
  }
  void flush() {
    write(pending_);
    pending_.clear();
  }

  int fd_;
  int os_code_ = 0;
  std::vector<std::byte> pending_;
  xxh3 sum_;
};

/// Equal if and only if the shards name the same members at the same offsets.
std::string fingerprint_of_shards(std::span<const shard_index> shards) {
  fingerprint_hash hash("tar");
  hash.add_number(shards.size());
  for (const shard_index& shard : shards) {
    hash.add_text(shard.name);
    hash.add_number(shard.bytes);
    hash.add_number(shard.extensions.size());
    for (const shard_extension& extension : shard.extensions) hash.add_text(extension.text);
    hash.add_text(shard.records);
  }
  return hash.hex();
}

}  // namespace

result<void> write_tar_index(int fd, std::span<const shard_index> shards) {
  tar_index::header head{};
  std::vector<tar_index::shard_entry> shard_table;
  std::vector<tar_index::extension_entry> extension_table;
  std::vector<zstd_frame> frames;
  std::string texts;
  std::uint64_t record_bytes = 0;
  std::uint64_t number_bytes = 0;
  for (const shard_index& shard : shards) texts += shard.name + shard.tag;
  std::uint64_t name_end = 0;
  for (const shard_index& shard : shards) {
    for (const shard_extension& extension : shard.extensions) {
      extension_table.push_back({texts.size(), extension.text.size(), extension.members, extension.longest});
      texts += extension.text;
    }
    frames.insert(frames.end(), shard.frames.begin(), shard.frames.end());
    head.samples += shard.offsets.size();
    record_bytes += shard.records.size();
    number_bytes += shard.numbers.size();
    name_end += shard.name.size() + shard.tag.size();
    shard_table.push_back({shard.bytes, shard.file_bytes, shard.modified_ns, head.samples, extension_table.size(), frames.size(), record_bytes, number_bytes,
                           name_end, shard.tag.size(), shard.members, shard.bytes_after_end, shard.has_end_marker ? 1U : 0U});
  }
  // Records need no alignment and offsets need four bytes; the tables before them need eight.
  head.magic = tar_index_magic;
  head.version = tar_index_version;
  head.shards = shards.size();
  head.extensions = extension_table.size();
  head.frames = frames.size();
  head.text_bytes = texts.size();
  const std::string fingerprint = fingerprint_of_shards(shards);
  std::ranges::copy(fingerprint, head.fingerprint.begin());
  head.total_bytes = sizeof head + shard_table.size() * sizeof(tar_index::shard_entry) +
                     extension_table.size() * sizeof(tar_index::extension_entry) + frames.size() * sizeof(zstd_frame) +
                     head.samples * sizeof(std::uint32_t) + texts.size() + record_bytes + number_bytes;

  const auto failed = [&](int os_code) {
    return refuse_os(errc::io, os_code,
                     fmt::format("writing an index of {}", bytes_for_people(head.total_bytes)));
  };
  const auto head_bytes = std::as_bytes(std::span(&head, 1));
  if (const int os_code = write_all(fd, head_bytes.first(checksummed_from)); os_code != 0)
    return failed(os_code);
  summing_writer out(fd);
  out.add(head_bytes.subspan(checksummed_from));
  out.add(std::span<const tar_index::shard_entry>(shard_table));
  out.add(std::span<const tar_index::extension_entry>(extension_table));
  out.add(std::span<const zstd_frame>(frames));
  for (const shard_index& shard : shards) out.add(std::span<const std::uint32_t>(shard.offsets));
  out.add(texts.data(), texts.size());
  for (const shard_index& shard : shards) out.add(shard.records.data(), shard.records.size());
  for (const shard_index& shard : shards) out.add(shard.numbers.data(), shard.numbers.size());
  if (const int os_code = out.finish(); os_code != 0) return failed(os_code);
  head.checksum = out.sum();
  const auto checksum = std::as_bytes(std::span(&head.checksum, 1));
  if (::pwrite(fd, checksum.data(), checksum.size(), checksummed_from - sizeof head.checksum) !=
      static_cast<ssize_t>(checksum.size()))
    return failed(errno);
  return {};
}

result<tar_index> tar_index::map(int fd) {
  struct ::stat facts {};
  if (::fstat(fd, &facts) != 0) return refuse_os(errc::system, errno, "examining the index of shards");
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  if (!S_ISREG(facts.st_mode) || bytes < sizeof(header))
    return refuse(errc::protocol, "this is not an index of shards");
  mapping memory = map_read_only(fd, {0, bytes});
  if (!memory) return refuse_os(errc::system, errno, "mapping the index of shards");
  tar_index index(std::move(memory));
  const header& head = index.head();
  if (head.magic != tar_index_magic) return refuse(errc::protocol, "this is not an index of shards");
  if (head.version != tar_index_version)
    return refuse(errc::protocol, "the index of shards has version {}, but this program reads version {}", head.version,
                  tar_index_version);
  if (!index.tables_fit()) return refuse(errc::protocol, "the index of shards is damaged");
  return index;
}

bool tar_index::tables_fit() const noexcept {
  const header& head = this->head();
  const std::uint64_t size = memory_.bytes().size();
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (head.total_bytes != size || !std::ranges::all_of(head.fingerprint, is_hex)) return false;
  // Check each count against the size first, so that the sums cannot overflow.
  if (head.shards > size || head.extensions > size || head.frames > size || head.samples > size || head.text_bytes > size)
    return false;
  const std::uint64_t fixed = sizeof(header) + head.shards * sizeof(shard_entry) +
                              head.extensions * sizeof(extension_entry) + head.frames * sizeof(zstd_frame) +
                              head.samples * sizeof(std::uint32_t) + head.text_bytes;
  if (fixed > size) return false;
  shard_entry before{};
  for (const shard_entry& shard : shard_table()) {
    if (shard.samples_end < before.samples_end || shard.extensions_end < before.extensions_end ||
        shard.records_end < before.records_end || shard.numbers_end < before.numbers_end || shard.name_end < before.name_end ||
        shard.tag_bytes > shard.name_end - before.name_end || shard.frames_end < before.frames_end ||
        shard.frames_end > head.frames)
      return false;
    const auto frames = frame_table().subspan(before.frames_end, shard.frames_end - before.frames_end);
    if (!frames.empty() && !frames_fit(frames, shard.file_bytes, shard.bytes)) return false;
    before = shard;
  }
  if (before.samples_end != head.samples || before.extensions_end != head.extensions || before.frames_end != head.frames ||
      before.records_end > size - fixed || before.numbers_end != size - fixed - before.records_end || before.name_end > head.text_bytes)
    return false;
  return std::ranges::all_of(extension_table(), [&](const extension_entry& extension) {
    return extension.text_bytes <= head.text_bytes &&
           extension.text_at <= head.text_bytes - extension.text_bytes;
  });
}

bool tar_index::checksum_holds() const noexcept {
  return xxh3_of(memory_.bytes().subspan(checksummed_from)) == head().checksum;
}

const tar_index::header& tar_index::head() const noexcept {
  return *reinterpret_cast<const header*>(memory_.bytes().data());
}

std::span<const tar_index::shard_entry> tar_index::shard_table() const noexcept {
  return {reinterpret_cast<const shard_entry*>(memory_.bytes().data() + sizeof(header)), head().shards};
}

std::span<const tar_index::extension_entry> tar_index::extension_table() const noexcept {
  const auto* const at = memory_.bytes().data() + sizeof(header) + head().shards * sizeof(shard_entry);
  return {reinterpret_cast<const extension_entry*>(at), head().extensions};
}

std::span<const zstd_frame> tar_index::frame_table() const noexcept {
  return {reinterpret_cast<const zstd_frame*>(extension_table().data() + head().extensions), head().frames};
}

std::string_view tar_index::text(std::uint64_t at, std::uint64_t bytes) const noexcept {
  const auto* const offsets = reinterpret_cast<const char*>(frame_table().data() + head().frames);
  return {offsets + head().samples * sizeof(std::uint32_t) + at, bytes};
}

std::uint64_t tar_index::samples() const noexcept {
  return head().samples;
}
std::uint64_t tar_index::shards() const noexcept {
  return head().shards;
}
std::string_view tar_index::fingerprint() const noexcept {
  return {head().fingerprint.data(), head().fingerprint.size()};
}

indexed_shard tar_index::shard(std::uint64_t i) const {
  PENSTOCK_CHECK(i < shards(), "shard {} of {}", i, shards());
  const shard_entry& own = shard_table()[i];
  const shard_entry before = i == 0 ? shard_entry{} : shard_table()[i - 1];
  return {text(before.name_end, own.name_end - before.name_end - own.tag_bytes),
          own.bytes,
          own.file_bytes,
          own.modified_ns,
          text(own.name_end - own.tag_bytes, own.tag_bytes),
          before.samples_end,
          own.samples_end - before.samples_end,
          own.members,
          own.has_end_marker != 0,
          own.bytes_after_end};
}

std::vector<indexed_extension> tar_index::extensions(std::uint64_t shard) const {
  PENSTOCK_CHECK(shard < shards(), "shard {} of {}", shard, shards());
  std::vector<indexed_extension> all;
  for (std::uint64_t i = shard == 0 ? 0 : shard_table()[shard - 1].extensions_end;
       i < shard_table()[shard].extensions_end; ++i) {
    const extension_entry& entry = extension_table()[i];
    all.push_back({text(entry.text_at, entry.text_bytes), entry.members, entry.longest});
  }
  return all;
}

std::span<const zstd_frame> tar_index::frames(std::uint64_t shard) const {
  PENSTOCK_CHECK(shard < shards(), "shard {} of {}", shard, shards());
  const std::uint64_t begin = shard == 0 ? 0 : shard_table()[shard - 1].frames_end;
  return frame_table().subspan(begin, shard_table()[shard].frames_end - begin);
}

std::uint64_t tar_index::shard_of(std::uint64_t sample) const {
  PENSTOCK_CHECK(sample < samples(), "sample {} of {}", sample, samples());
  const auto table = shard_table();
  return static_cast<std::uint64_t>(std::ranges::upper_bound(table, sample, {}, &shard_entry::samples_end) -
                                    table.begin());
}

std::string_view tar_index::record_at(std::uint64_t shard, std::uint64_t sample) const noexcept {
  const auto* const offsets =
      reinterpret_cast<const std::uint32_t*>(frame_table().data() + head().frames);
  const std::uint64_t begin = shard == 0 ? 0 : shard_table()[shard - 1].records_end;
  const std::uint64_t bytes = shard_table()[shard].records_end - begin;
  const std::uint64_t at = std::min<std::uint64_t>(offsets[sample], bytes);
  return text(head().text_bytes + begin + at, bytes - at);
}

std::string_view tar_index::key(std::uint64_t sample) const {
  std::string_view record = record_at(shard_of(sample), sample);
  const auto bytes = take_number(record);
  return bytes && *bytes <= record.size() ? record.substr(0, *bytes) : std::string_view();
}

std::string_view tar_index::numbers_of(std::uint64_t shard) const noexcept {
  const std::uint64_t begin = shard == 0 ? 0 : shard_table()[shard - 1].numbers_end;
  return text(head().text_bytes + shard_table().back().records_end + begin, shard_table()[shard].numbers_end - begin);
}

result<void> tar_index::read_all(const std::function<void(std::uint64_t sample, const indexed_sample&)>& use) const {
  indexed_sample one;
  std::uint64_t sample = 0;
  for (std::uint64_t shard = 0; shard < shards(); ++shard) {
    std::string_view numbers = numbers_of(shard);
    for (; sample < shard_table()[shard].samples_end; ++sample) {
      if (auto ok = read(sample, one); !ok) return ok;
      for (indexed_member& member : one.members) {
        if (!has_number(member.kind, member.bytes) || kind_of_extension(member.extension) != member_kind::number) continue;
        const std::uint64_t code = take_number(numbers).value_or(0);
        if (code != 0) member.number = number_of_code(code);
      }
      use(sample, one);
    }
  }
  return {};
}

result<void> tar_index::read(std::uint64_t sample, indexed_sample& to) const {
  const auto damaged = [] {
    return refuse(errc::dataset,
                  "cannot be found: the index of shards is damaged; remove the index to have it built again");
  };
  to.shard = shard_of(sample);
  to.members.clear();
  const shard_entry& shard = shard_table()[to.shard];
  const std::uint64_t first_extension = to.shard == 0 ? 0 : shard_table()[to.shard - 1].extensions_end;
  std::string_view record = record_at(to.shard, sample);
  const auto key_bytes = take_number(record);
  if (!key_bytes || *key_bytes > record.size()) return damaged();
  to.key = record.substr(0, *key_bytes);
  record.remove_prefix(*key_bytes);
  const auto count = take_number(record);
  if (!count) return damaged();
  std::uint64_t block = 0;
  const std::uint64_t blocks = blocks_of(shard.bytes);
  for (std::uint64_t i = 0; i < *count; ++i) {
    const auto what = take_number(record);
    const auto gap = take_number(record);
    const auto bytes = take_number(record);
    if (!what || !gap || !bytes || *what >> 2U >= shard.extensions_end - first_extension) return damaged();
    if (*gap >= blocks - block) return damaged();
    block += *gap;
    // The contents end within the shard, so nothing can overflow.
    if (*bytes > shard.bytes || (block + 1) * tar_block > shard.bytes - *bytes) return damaged();
    const extension_entry& extension = extension_table()[first_extension + (*what >> 2U)];
    to.members.push_back({text(extension.text_at, extension.text_bytes),
                          static_cast<indexed_kind>(*what & 3U), block * tar_block, *bytes, std::nullopt});
    block = std::min(block + 1 + blocks_of(*bytes), blocks);
  }
  return {};
}

}  // namespace penstock
