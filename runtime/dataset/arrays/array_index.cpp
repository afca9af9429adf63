#include "runtime/dataset/arrays/array_index.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/dataset/arrays/zip_directory.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/local_file.hpp"
#include "runtime/dataset/read_ahead.hpp"
#include "runtime/dataset/records/npy_header.hpp"
#include "runtime/dataset/sealed_index.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace penstock {

// Layout, little-endian and naturally aligned:
//
//   header
//   entry arrays[arrays]
//   texts                 of each array: tensor, file, tag
//   inflated arrays, each at a multiple of 64 bytes

struct array_index::header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t arrays;
  std::uint64_t total_bytes;
  std::uint64_t samples;
  std::uint64_t text_bytes;
  std::array<char, 32> fingerprint;
};

struct array_index::entry {
  std::uint64_t file_bytes;
  std::uint64_t data_at;
  std::uint64_t tensor_end;  ///< end of its name in the texts
  std::uint64_t file_end;
  std::uint64_t tag_end;
  std::uint32_t axes;
  std::uint8_t element;
  std::uint8_t in_index;
  std::array<std::uint8_t, 2> unused;
  std::array<std::uint32_t, 32> shape;
};

namespace {

constexpr std::array<char, 8> array_magic{'P', 'N', 'S', 'T', 'K', 'A', 'R', 'R'};
constexpr std::uint32_t array_version = 2;
constexpr std::size_t arrays_max = 256;

/// The files of a dataset, and the versions of objects.
struct opened_files {
  std::vector<std::shared_ptr<readable>> files;
  std::vector<std::string> tags;
};

failure about(const std::string& what, failure why) {
  why.message = fmt::format("{} {}", what, why.message);
  return why;
}

result<opened_files> open_all(const std::vector<std::string>& paths, const store_options& options) {
  opened_files all;
  if (paths.empty() || !is_url(paths.front())) {
    for (const std::string& path : paths) {
      auto opened = local_file::open(path);
      if (!opened) return tl::unexpected(about(fmt::format("'{}'", printable(path)), std::move(opened.error())));
      all.files.push_back(std::move(*opened));
      all.tags.emplace_back();
    }
    return all;
  }
  const auto store = object_store::open(options);
  if (!store) return tl::unexpected(store.error());
  auto facts = (*store)->examine(paths);
  if (!facts) return tl::unexpected(std::move(facts.error()));
  for (std::size_t i = 0; i < paths.size(); ++i) {
    all.tags.push_back((*facts)[i].tag);
    all.files.push_back((*store)->object(paths[i], std::move((*facts)[i])));
  }
  return all;
}

archive_reader archive_of(readable& file) {
  return [&file](std::uint64_t at, std::span<std::byte> into) { return file.read(at, into); };
}

/// What is known about an array before the index is written.
struct found_array {
  std::string tensor;
  std::string file;
  std::string shown;  ///< for messages: "'a.npz': its member 'x.npy'"
  std::uint64_t file_bytes = 0;
  std::string tag;
  npy_header header;
  std::uint64_t data_at = 0;
  std::optional<zip_member> deflated;
  std::uint64_t contents_at = 0;  ///< if deflated: where its contents are in the archive
  std::uint64_t index_at = 0;     ///< if deflated: where its contents go in the index
};

result<found_array> array_in_archive(const std::string& tensor, const zip_member& member, readable& archive) {
  const archive_reader read = archive_of(archive);
  found_array found;
  found.tensor = tensor;
  found.file_bytes = archive.bytes();
  const auto contents = contents_of(member, read, archive.bytes());
  if (!contents) return tl::unexpected(contents.error());
  std::vector<std::byte> start(std::min<std::uint64_t>(member.bytes, npy_header_max));
  if (member.deflated) {
    std::size_t have = 0;
    auto ok = inflate(member, *contents, read, [&](std::span<const std::byte> piece) -> result<bool> {
      const auto part = piece.first(std::min(piece.size(), start.size() - have));
      std::ranges::copy(part, start.begin() + static_cast<std::ptrdiff_t>(have));
      have += part.size();
      return have < start.size();
    });
    if (!ok) return tl::unexpected(std::move(ok.error()));
    found.deflated = member;
    found.contents_at = *contents;
  } else if (auto ok = read(*contents, start); !ok) {
    return tl::unexpected(std::move(ok.error()));
  }
  auto header = parse_npy_header(start, member.bytes);
  if (!header)
    return tl::unexpected(
        about(fmt::format("has a member '{}' that", printable(shortened(member.name, 100))), header.error()));
  found.header = std::move(*header);
  found.data_at = member.deflated ? 0 : *contents + found.header.data_at;
  return found;
}

std::string without_npy(const std::string& name) {
  return name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name;
}

result<std::vector<found_array>> arrays_of_archive(const dataset_config& dataset, readable& archive, const std::string& tag) {
  const std::string shown = fmt::format("'{}'", printable(dataset.path));
  const auto members = read_zip_directory(archive_of(archive), archive.bytes());
  if (!members) return tl::unexpected(about(shown, members.error()));
  std::vector<std::pair<std::string, const zip_member*>> wanted;
  std::string there;
  for (const zip_member& member : *members) {
    if (dataset.members.empty()) wanted.emplace_back(without_npy(member.name), &member);
    there += (there.empty() ? "" : ", ") + without_npy(member.name);
  }
  for (const auto& [tensor, name] : dataset.members) {
    const auto found = std::ranges::find_if(*members, [&](const zip_member& member) {
      return member.name == name || member.name == name + ".npy";
    });
    if (found == members->end()) {
      return refuse(errc::dataset, "{} has no member '{}' for the tensor '{}': it has {}", shown,
                    printable(name), tensor, printable(shortened(there, 200)));
    }
    wanted.emplace_back(tensor, &*found);
  }
  if (wanted.size() > arrays_max)
    return refuse(errc::dataset, "{} has {} members: at most {} are read", shown, wanted.size(), arrays_max);
  std::vector<found_array> all;
  for (const auto& [tensor, member] : wanted) {
    auto one = array_in_archive(tensor, *member, archive);
    if (!one) return tl::unexpected(about(shown, one.error()));
    one->shown = fmt::format("{}: its member '{}'", shown, printable(member->name));
    one->tag = tag;
    all.push_back(std::move(*one));
  }
  return all;
}

/// `paths`: the files of the members, in the same order.
result<std::vector<found_array>> arrays_of_folder(const dataset_config& dataset, const std::vector<std::string>& paths,
                                                  const opened_files& opened) {
  std::vector<found_array> all;
  for (const auto& [tensor, name] : dataset.members) {
    const std::size_t i = all.size();
    found_array found;
    found.shown = fmt::format("'{}'", printable(paths[i]));
    auto header = read_npy_header(*opened.files[i]);
    if (!header) return tl::unexpected(about(found.shown, header.error()));
    found.tensor = tensor;
    found.file = name;
    found.file_bytes = opened.files[i]->bytes();
    found.tag = opened.tags[i];
    found.header = std::move(*header);
    found.data_at = found.header.data_at;
    all.push_back(std::move(found));
  }
  return all;
}

result<void> check_arrays(const std::vector<found_array>& arrays, const dataset_config& dataset) {
  if (arrays.empty()) return refuse(errc::dataset, "'{}' has no arrays", printable(dataset.path));
  const found_array& first = arrays.front();
  std::uint64_t inflated = 0;
  for (const found_array& one : arrays) {
    const bool is_name =
        !one.tensor.empty() && one.tensor.size() <= 64 &&
        std::ranges::all_of(one.tensor, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (!is_name) {
      return refuse(errc::dataset,
                    "{} has the name '{}', which cannot be the name of a tensor (1 to 64 letters, digits and "
                    "'_'): choose another one with [dataset] members",
                    one.shown, printable(shortened(one.tensor, 100)));
    }
    if (one.header.shape.front() != first.header.shape.front()) {
      return refuse(errc::dataset,
                    "{} has {}, but {} has {}: the first axis of every array must count the same samples", first.shown,
                    counted(first.header.shape.front(), "row"), one.shown,
                    counted(one.header.shape.front(), "row"));
    }
    if (one.deflated) inflated += one.deflated->bytes;
  }
  if (first.header.shape.front() == 0)
    return refuse(errc::dataset, "'{}' holds no samples", printable(dataset.path));
  const auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (inflated > memory / 2) {
    return refuse(
        errc::out_of_memory,
        "'{}': its compressed arrays take {} in memory, more than half of this machine's {}: save them with "
        "numpy.savez, which does not compress",
        printable(dataset.path), bytes_for_people(inflated), bytes_for_people(memory));
  }
  return {};
}

}  // namespace

struct array_index_writer {
  array_index::header head{};
  std::vector<array_index::entry> entries;
  std::string texts;

  void add(const std::vector<found_array>& arrays) {
    head.magic = array_magic;
    head.version = array_version;
    head.arrays = static_cast<std::uint32_t>(arrays.size());
    head.samples = arrays.front().header.shape.front();
    fingerprint_hash hash("npy arrays");
    hash.add_number(head.samples);
    for (const found_array& one : arrays) {
      array_index::entry& entry = entries.emplace_back();
      entry.file_bytes = one.file_bytes;
      entry.data_at = one.data_at;
      texts += one.tensor;
      entry.tensor_end = texts.size();
      texts += one.file;
      entry.file_end = texts.size();
      texts += one.tag;
      entry.tag_end = texts.size();
      entry.axes = static_cast<std::uint32_t>(one.header.shape.size() - 1);
      std::copy(one.header.shape.begin() + 1, one.header.shape.end(), entry.shape.begin());
      entry.element = static_cast<std::uint8_t>(one.header.element);
      entry.in_index = one.deflated ? 1 : 0;
      hash.add_text(one.tensor);
      hash.add_text(one.file);
      hash.add_number(one.file_bytes);
      hash.add_text(name_of(one.header.element));
      for (std::uint32_t i = 0; i < entry.axes; ++i) hash.add_number(entry.shape[i]);
    }
    head.text_bytes = texts.size();
    std::ranges::copy(hash.hex(), head.fingerprint.begin());
  }

  /// Sets where each inflated array goes in the index.
  void place(std::vector<found_array>& arrays) {
    std::uint64_t end = sizeof head + entries.size() * sizeof(array_index::entry) + texts.size();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (!arrays[i].deflated) continue;
      arrays[i].index_at = round_up(end, 64);
      // The index contains the whole .npy, including its header.
      entries[i].data_at = arrays[i].index_at + arrays[i].header.data_at;
      end = arrays[i].index_at + arrays[i].deflated->bytes;
    }
    head.total_bytes = end;
  }

  result<unique_fd> write(const std::vector<found_array>& arrays, readable& archive) {
    auto fd = create_index(counted(arrays.size(), "array"), head.total_bytes);
    if (!fd) return fd;
    std::uint64_t end = 0;
    const auto put = [&](std::span<const std::byte> bytes) -> result<void> {
      if (const int os_code = write_all(fd->get(), bytes); os_code != 0) {
        return refuse_os(errc::out_of_memory, os_code,
                         fmt::format("writing the dataset's index ({})", bytes_for_people(head.total_bytes)));
      }
      end += bytes.size();
      return {};
    };
    const std::array front{std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(entries)),
                           std::as_bytes(std::span(texts))};
    for (const auto section : front)
      if (auto ok = put(section); !ok) return tl::unexpected(std::move(ok.error()));
    for (const found_array& one : arrays) {
      if (!one.deflated) continue;
      if (auto ok = put(std::vector<std::byte>(one.index_at - end)); !ok)
        return tl::unexpected(std::move(ok.error()));
      read_ahead ahead(archive, {one.contents_at, one.deflated->stored}, inflate_piece);
      auto ok = inflate(*one.deflated, one.contents_at,
                        [&](std::uint64_t at, std::span<std::byte> into) { return ahead.read(at, into); },
                        [&](std::span<const std::byte> piece) -> result<bool> {
                          if (auto done = put(piece); !done) return tl::unexpected(std::move(done.error()));
                          return true;
                        });
      if (!ok) return tl::unexpected(about(one.shown, ok.error()));
    }
    if (auto ok = seal_index_file(fd->get()); !ok) return tl::unexpected(std::move(ok.error()));
    return fd;
  }
};

std::string path_of_array(const std::string& path, std::string_view file) {
  return file.empty() ? path : fmt::format("{}{}{}", path, path.ends_with('/') ? "" : "/", file);
}

bool is_npz(std::string_view path) {
  constexpr std::string_view end = ".npz";
  return path.size() > end.size() && path.ends_with(end);
}

bool has_several_arrays(const dataset_config& dataset) {
  return dataset.type == dataset_type::npy && (!dataset.members.empty() || is_npz(dataset.path));
}

result<unique_fd> seal_array_index(const dataset_config& dataset, const store_options& options) {
  std::vector<std::string> paths;
  if (is_npz(dataset.path))
    paths.push_back(dataset.path);
  else
    for (const auto& [tensor, name] : dataset.members) paths.push_back(path_of_array(dataset.path, name));
  const auto opened = open_all(paths, options);
  if (!opened) return tl::unexpected(opened.error());
  auto arrays = is_npz(dataset.path) ? arrays_of_archive(dataset, *opened->files.front(), opened->tags.front())
                                     : arrays_of_folder(dataset, paths, *opened);
  if (!arrays) return tl::unexpected(std::move(arrays.error()));
  if (auto ok = check_arrays(*arrays, dataset); !ok) return tl::unexpected(std::move(ok.error()));
  array_index_writer writer;
  writer.add(*arrays);
  writer.place(*arrays);
  return writer.write(*arrays, *opened->files.front());
}

result<void> check_members(const std::string& path) {
  const auto check = [](readable& file) -> result<void> {
    const archive_reader read = archive_of(file);
    const auto members = read_zip_directory(read, file.bytes());
    if (!members) return tl::unexpected(members.error());
    for (const zip_member& member : *members) {
      if (member.deflated) continue;
      const auto contents = contents_of(member, read, file.bytes());
      if (!contents) return tl::unexpected(contents.error());
      if (auto ok = check_stored(member, *contents, read); !ok) return ok;
    }
    return {};
  };
  const auto file = local_file::open(path);
  auto sound = file ? check(**file) : result<void>(tl::unexpected(file.error()));
  if (!sound) return tl::unexpected(about(fmt::format("'{}'", printable(path)), std::move(sound.error())));
  return sound;
}

result<array_index> array_index::map(int fd) {
  auto memory = map_index(fd, "the index of the arrays", sizeof(header));
  if (!memory) return tl::unexpected(std::move(memory.error()));
  array_index made(std::move(*memory));
  if (auto ok = made.read(); !ok) return tl::unexpected(std::move(ok.error()));
  return made;
}

result<void> array_index::read() {
  const std::span<const std::byte> all = memory_.bytes();
  const auto nonsense = [](std::string_view what) {
    return refuse(errc::protocol, "the index of the arrays is invalid in {}", what);
  };
  header head{};
  std::memcpy(&head, all.data(), sizeof head);
  if (head.magic != array_magic || head.version != array_version) return nonsense("its format");
  if (head.total_bytes != all.size() || head.arrays == 0 || head.arrays > arrays_max ||
      head.text_bytes > all.size())
    return nonsense("its size");
  const std::uint64_t texts_at = sizeof head + head.arrays * sizeof(entry);
  if (texts_at + head.text_bytes > all.size()) return nonsense("its size");
  const std::string_view texts(reinterpret_cast<const char*>(all.data()) + texts_at, head.text_bytes);
  description_ = {"npy", head.samples, {}, std::string(head.fingerprint.data(), head.fingerprint.size())};
  std::uint64_t text_at = 0;
  for (std::uint32_t i = 0; i < head.arrays; ++i) {
    entry one{};
    std::memcpy(&one, all.data() + sizeof head + i * sizeof(entry), sizeof one);
    if (one.tensor_end < text_at || one.file_end < one.tensor_end || one.tag_end < one.file_end ||
        one.tag_end > texts.size())
      return nonsense("its names");
    if (one.axes > one.shape.size() || one.element > static_cast<std::uint8_t>(dtype::float64))
      return nonsense("its shapes");
    tensor_spec spec{std::string(texts.substr(text_at, one.tensor_end - text_at)),
                     static_cast<dtype>(one.element),
                     {one.shape.begin(), one.shape.begin() + one.axes}};
    std::uint64_t record = size_of(spec.type);
    for (const std::uint32_t side : spec.shape) {
      if (side == 0 || record > (std::uint64_t{1} << 40U) / side) return nonsense("its shapes");
      record *= side;
    }
    const std::uint64_t within = one.in_index != 0 ? all.size() : one.file_bytes;
    if (one.data_at > within || (within - one.data_at) / record < head.samples) return nonsense("its places");
    arrays_.push_back({texts.substr(text_at, one.tensor_end - text_at),
                       texts.substr(one.tensor_end, one.file_end - one.tensor_end), one.file_bytes,
                       texts.substr(one.file_end, one.tag_end - one.file_end), one.data_at, one.in_index != 0});
    description_.tensors.push_back(std::move(spec));
    text_at = one.tag_end;
  }
  return {};
}

std::span<const std::byte> array_index::row(std::size_t array, std::uint64_t row) const {
  PENSTOCK_CHECK(array < arrays_.size() && arrays_[array].in_index && row < description_.samples,
                 "row {} of array {}", row, array);
  const std::uint64_t record = bytes_of(description_.tensors[array]);
  return std::span<const std::byte>(memory_.bytes()).subspan(arrays_[array].data_at + row * record, record);
}

}  // namespace penstock
