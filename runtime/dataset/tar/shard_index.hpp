// The samples of one shard: its members grouped by key, in compact form. Built from the shard's headers; the indexes of
// all shards make up the dataset's index (tar_index.hpp). Used while an index is built.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/tar/seek_table.hpp"
#include "runtime/dataset/tar/tar_parser.hpp"
#include "runtime/storage/readable.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace penstock {

/// An extension that occurs in a shard, in lower case.
struct shard_extension {
  std::string text;
  std::uint64_t members = 0;
  std::uint64_t longest = 0;  ///< bytes of the largest member
  bool is_number = false;     ///< whether members with it contain a number: see has_number()
};

struct shard_index {
  std::string name;  ///< relative to the list's folder
  std::uint64_t bytes = 0;             ///< size of the archive
  std::uint64_t file_bytes = 0;        ///< smaller than `bytes` if the shard is compressed
  std::int64_t modified_ns = 0;        ///< time of modification since 1970; 0 for an object
  std::string tag;                     ///< an object's version as in object_facts; empty for files
  std::vector<std::uint32_t> offsets;  ///< where each sample's record begins in `records`
  std::string records;                 ///< see record_codec.hpp
  std::string numbers;                 ///< likewise
  std::vector<shard_extension> extensions;
  std::vector<zstd_frame> frames;  ///< empty: the shard is not compressed
  std::uint64_t members = 0;
  bool has_end_marker = true;
  std::uint64_t bytes_after_end = 0;
};

/// Groups members by key. Pure. Members of a key need not be adjacent; samples are in the order of their first member.
/// Folders, and members that belong to no sample, are left out. As long as keys ascend, as in most archives, samples become
/// records immediately. The first key that does not ascend turns the records back into members, with a table of keys.
class shard_grouping {
 public:
  /// Adds a member. If the result is true, call number_is() with the member's contents before anything else.
  bool add(const tar_member& member);
  /// Ignores contents that are not a number.
  void number_is(std::string_view contents) noexcept;
  /// Numbers extensions as `other` does, so that parts of a shard can be appended faster. Call it before any other
  /// function.
  void number_extensions_as(const shard_grouping& other);
  /// Appends the members of a later part of the shard.
  void append(shard_grouping behind);
  /// Fills offsets, records, extensions and members of `to`. Refuses (errc::dataset) more than 2^32 - 2 samples, or
  /// more than 4 GiB of records. Call it once.
  result<void> finish(shard_index& to);

 private:
  struct found_member {
    std::uint64_t header_at;
    std::uint64_t size;
    std::uint32_t sample;
    std::uint32_t extension_and_kind;
    std::uint64_t number;  // code of its number; 0: none
  };
  struct found_key {
    std::uint64_t hash;
    std::uint64_t at;
    std::uint32_t size;
  };
  void add(std::string_view key, found_member member);
  [[nodiscard]] bool is_with_number(const found_member& member) const noexcept;
  void close_sample();
  void append_sample(std::string_view key, std::span<const found_member> members);
  void append_in_order(shard_grouping& behind);
  void leave_order();
  /// Calls use(key, member) for each member in a record of `records_`, in order. Returns what follows the record, and
  /// removes from `numbers` those of its members.
  template <class Use>
  std::string_view read_record(std::string_view record, std::string_view& numbers, const Use& use) const;
  template <class Use>
  void for_each_member(const Use& use) const;
  [[nodiscard]] std::string_view first_key() const noexcept;
  std::uint32_t sample_of(std::string_view key);
  std::uint32_t extension_of(std::string_view extension);
  void grow_table();
  [[nodiscard]] std::string_view text_of(const found_key& key) const noexcept {
    return std::string_view(pool_).substr(key.at, key.size);
  }

  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };
  std::uint64_t added_ = 0;
  bool in_order_ = true;
  // The next three are as in shard_index. While keys ascend, they contain all samples but the newest, which
  // may get more members.
  std::string records_;
  std::string numbers_;
  std::vector<std::uint32_t> offsets_;
  std::string key_;                  // key of the newest sample
  std::vector<found_member> newest_; // members of the newest sample
  std::string record_;               // scratch memory for its record
  // These are used once keys no longer ascend:
  std::string pool_;
  std::vector<found_key> keys_;  // one per sample
  std::vector<std::uint64_t> table_;  // open addressing: see entry_of in shard_index.cpp; 0: free
  std::vector<found_member> members_;
  std::vector<shard_extension> extensions_;
  std::unordered_map<std::string, std::uint32_t, text_hash, std::equal_to<>>
      extension_numbers_;  // by spelling
};

/// Reads the headers of a shard and groups its members; skips the contents of larger members. Opens `path`; the index
/// and messages call it `name`. `parts` are read in parallel: each begins at the first block that looks like a header,
/// and is used if the part before it ends there. Otherwise everything from there on is read again. Adds the number of
/// bytes read so far to `progress`. Refuses (errc::dataset, errc::io), with the shard's name, what the parser refuses;
/// files that cannot be read, are not regular files or change during the reading; and compressed shards, except those
/// named .tar.zst that have a seek table.
result<shard_index> read_shard(const std::string& path, const std::string& name, unsigned parts,
                               std::atomic<std::uint64_t>& progress);
/// Indexes an object of a store, in this version. Reads everything but members of some MiB, because a request for
/// each header would take longer.
result<shard_index> read_shard(const std::shared_ptr<readable>& object, const std::string& tag, const std::string& name,
                               std::atomic<std::uint64_t>& progress);

}  // namespace penstock
