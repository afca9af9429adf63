#include "runtime/dataset/tokens/token_index.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/sealed_index.hpp"
#include "runtime/dataset/tokens/document_scan.hpp"
#include "runtime/dataset/tokens/packing.hpp"
#include "runtime/dataset/tokens/token_types.hpp"

#include <algorithm>
#include <array>

namespace penstock {

// Layout, little-endian and naturally aligned, sections in this order without gaps:
//
//   header
//   file_entry files[files]
//   window_entry windows[windows]   only if documents are known
//   u32 lengths[documents]          likewise: window by window, packing_window of them in each
//   names                           the name and tag of each file

struct token_index::header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t element;
  std::uint64_t total_bytes;
  std::uint64_t samples;
  std::uint64_t files;
  std::uint64_t windows;
  std::uint64_t documents;
  std::uint64_t entries_of_lengths;
  std::array<char, 32> fingerprint;
};

struct token_index::file_entry {
  std::uint64_t bytes;
  std::uint64_t data_at;
  std::uint64_t index_bytes;
  std::uint64_t tokens_end;  ///< running total of tokens, up to and including this file
  std::uint64_t name_end;
  std::uint64_t tag_end;
};

struct token_index::window_entry {
  std::uint64_t first_token;
  std::uint64_t sequences_end;  ///< running total of sequences, up to and including this window; 0 unless documents are packed
};

namespace {

constexpr std::array<char, 8> token_index_magic{'P', 'N', 'S', 'T', 'K', 'T', 'O', 'K'};
constexpr std::uint32_t token_index_version = 2;

}  // namespace

/// Collects the contents of the index and writes them.
struct token_index_writer {
  token_index::header head{};
  std::vector<token_index::file_entry> files;
  std::vector<token_index::window_entry> windows;
  std::vector<std::uint32_t> lengths;
  std::string names;
  std::vector<std::string> notices;

  void add_files(const token_file_list& list);
  result<void> cut(const token_file_list& list, const dataset_config& dataset);
  result<void> pack(const token_file_list& list, const dataset_config& dataset);
  result<void> add_documents(const token_file_list& list);
  void add_fingerprint(const token_file_list& list, const dataset_config& dataset);
  result<unique_fd> seal_file();
};

void token_index_writer::add_files(const token_file_list& list) {
  std::uint64_t end = 0;
  for (const token_file& file : list.files) {
    names += file.name;
    const std::uint64_t name_end = names.size();
    names += file.tag;
    end += file.tokens;
    files.push_back({file.bytes, file.data_at, file.index_bytes, end, name_end, names.size()});
  }
}

result<void> token_index_writer::cut(const token_file_list& list, const dataset_config& dataset) {
  const std::uint64_t length = dataset.sequence_length;
  head.samples = (list.tokens - 1) / length;
  if (head.samples == 0)
    return refuse(errc::dataset, "'{}' holds {}, but a sequence of sequence_length = {} needs {}",
                  printable(dataset.path), counted(list.tokens, "token"), length, length + 1);
  const std::uint64_t left = list.tokens - head.samples * length - 1;
  if (left > 0)
    notices.push_back(fmt::format("the last {} of '{}' do not fill a sequence of {} and are left out",
                                  counted(left, "token"), printable(dataset.path), length));
  return {};
}

result<void> token_index_writer::pack(const token_file_list& list, const dataset_config& dataset) {
  auto all = lengths_of_documents(list, dataset.eos);
  if (!all) return tl::unexpected(std::move(all.error()));
  lengths = std::move(*all);
  head.documents = lengths.size();
  std::uint64_t token = 0;
  std::uint64_t used = 0;
  std::uint32_t parts = 0;
  for (std::uint64_t first = 0; first < lengths.size(); first += packing_window) {
    const auto of_window = std::span(lengths).subspan(first, std::min(packing_window, lengths.size() - first));
    const window_packing packing(of_window, dataset.sequence_length);
    head.samples += packing.sequences();
    used += packing.tokens();
    parts = std::max(parts, packing.parts_max());
    windows.push_back({token, head.samples});
    for (const std::uint32_t length : of_window) token += length;
  }
  if (head.samples == 0)
    return refuse(errc::dataset, "no document in '{}' has more than one token{}", printable(dataset.path),
                  dataset.eos ? fmt::format(": is eos = {} right?", *dataset.eos) : "");
  head.windows = windows.size();
  head.entries_of_lengths = parts + 1;
  const double places = static_cast<double>(head.samples) * dataset.sequence_length;
  notices.push_back(fmt::format("packed {} into {} of {} tokens each, which are {:.1f} % full",
                                counted(head.documents, "document"), counted(head.samples, "sequence"),
                                dataset.sequence_length, 100 * static_cast<double>(used) / places));
  return {};
}

result<void> token_index_writer::add_documents(const token_file_list& list) {
  auto all = lengths_of_documents(list, std::nullopt);
  if (!all) return tl::unexpected(std::move(all.error()));
  lengths = std::move(*all);
  std::uint64_t token = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (i % packing_window == 0) windows.push_back({token, 0});
    token += lengths[i];
  }
  head.documents = lengths.size();
  head.windows = windows.size();
  return {};
}

void token_index_writer::add_fingerprint(const token_file_list& list, const dataset_config& dataset) {
  fingerprint_hash hash("tokens");
  hash.add_text(name_of(list.element));
  hash.add_number(dataset.sequence_length);
  hash.add_number(static_cast<std::uint64_t>(dataset.boundaries));
  if (dataset.boundaries != boundary_rule::ignore) hash.add_number(dataset.eos ? *dataset.eos + 1ULL : 0);
  if (gives_int64(dataset)) hash.add_text("int64");
  hash.add_number(list.files.size());
  for (const token_file& file : list.files) {
    hash.add_text(file.name);
    hash.add_number(file.bytes);
    hash.add_number(file.tokens);
    hash.add_number(file.index_bytes);
  }
  const std::size_t packed = dataset.boundaries == boundary_rule::pack ? lengths.size() : 0;
  hash.add_text({reinterpret_cast<const char*>(lengths.data()), packed * sizeof(std::uint32_t)});
  std::ranges::copy(hash.hex(), head.fingerprint.begin());
}

result<unique_fd> token_index_writer::seal_file() {
  head.magic = token_index_magic;
  head.version = token_index_version;
  head.files = files.size();
  const std::array sections{std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(files)),
                            std::as_bytes(std::span(windows)), std::as_bytes(std::span(lengths)),
                            std::as_bytes(std::span(names))};
  for (const auto section : sections) head.total_bytes += section.size();
  auto fd = create_index(counted(head.files, "file"), head.total_bytes);
  if (!fd) return fd;
  for (const auto section : sections)
    if (const int os_code = write_all(fd->get(), section); os_code != 0)
      return refuse_os(errc::out_of_memory, os_code,
                       fmt::format("writing the dataset's index ({})", bytes_for_people(head.total_bytes)));
  if (auto ok = seal_index_file(fd->get()); !ok) return tl::unexpected(std::move(ok.error()));
  return fd;
}

result<sealed_token_index> seal_token_index(const dataset_config& dataset, const store_options& options) {
  auto list = list_token_files(dataset, options);
  if (!list) return tl::unexpected(std::move(list.error()));
  const bool cuts = dataset.boundaries != boundary_rule::pack;
  const auto without = std::ranges::find(list->files, 0U, &token_file::index_bytes);
  if (dataset.boundaries != boundary_rule::ignore && without != list->files.end()) {
    if (dataset.eos && !can_hold(list->element, *dataset.eos))
      return refuse(errc::config, "no document would end: [dataset] eos = {} does not fit in the {} ids of '{}'", *dataset.eos,
                    name_of(list->element), printable(without->name));
    if (!dataset.eos)
      return refuse(errc::config,
                    "boundaries = \"{}\" needs to know where documents end, and '{}' has no index: set [dataset] eos, the "
                    "id of the token that ends a document",
                    cuts ? "mask" : "pack", printable(without->name));
  }
  token_index_writer writer;
  writer.notices = std::move(list->notices);
  writer.head.element = static_cast<std::uint32_t>(list->element);
  writer.add_files(*list);
  if (auto ok = cuts ? writer.cut(*list, dataset) : writer.pack(*list, dataset); !ok)
    return tl::unexpected(std::move(ok.error()));
  const bool has_indexes = std::ranges::any_of(list->files, [](const token_file& file) { return file.index_bytes > 0; });
  if (dataset.boundaries == boundary_rule::mask && list->store && has_indexes)
    if (auto ok = writer.add_documents(*list); !ok) return tl::unexpected(std::move(ok.error()));
  writer.add_fingerprint(*list, dataset);
  auto file = writer.seal_file();
  if (!file) return tl::unexpected(std::move(file.error()));
  return sealed_token_index{std::move(*file), std::move(writer.notices)};
}

result<token_index> token_index::map(int fd) {
  auto memory = map_index(fd, "the index of token files", sizeof(header));
  if (!memory) return tl::unexpected(std::move(memory.error()));
  token_index index(std::move(*memory));
  if (index.head().magic != token_index_magic) return refuse(errc::protocol, "this is not an index of token files");
  if (index.head().version != token_index_version)
    return refuse(errc::protocol, "the index of token files has version {}, but this program reads version {}",
                  index.head().version, token_index_version);
  if (!index.tables_fit()) return refuse(errc::protocol, "the index of token files is damaged");
  return index;
}

bool token_index::tables_fit() const noexcept {
  const header& head = this->head();
  const std::uint64_t size = memory_.bytes().size();
  // Check each count against the size first, so that the sums cannot overflow.
  if (head.total_bytes != size || head.files == 0 || head.files > size || head.windows > size || head.documents > size)
    return false;
  const std::uint64_t fixed = sizeof(header) + head.files * sizeof(file_entry) + head.windows * sizeof(window_entry) +
                              head.documents * sizeof(std::uint32_t);
  if (fixed > size || head.element >= static_cast<std::uint32_t>(dtype::float16) || head.samples == 0 ||
      head.entries_of_lengths > 0xffffffffU || (head.windows == 0 && head.entries_of_lengths > 0))
    return false;
  if (head.windows != (head.documents + packing_window - 1) / packing_window) return false;
  file_entry file_before{};
  for (const file_entry& file : file_table()) {
    if (file.tokens_end <= file_before.tokens_end || file.name_end < file_before.tag_end ||
        file.tag_end < file.name_end)
      return false;
    file_before = file;
  }
  window_entry window_before{};
  for (const window_entry& window : window_table()) {
    if (window.first_token < window_before.first_token || window.sequences_end < window_before.sequences_end)
      return false;
    window_before = window;
  }
  return file_before.tag_end == size - fixed &&
         (head.entries_of_lengths == 0 || window_before.sequences_end == head.samples);
}

const token_index::header& token_index::head() const noexcept {
  return *reinterpret_cast<const header*>(memory_.bytes().data());
}

std::span<const token_index::file_entry> token_index::file_table() const noexcept {
  return {reinterpret_cast<const file_entry*>(memory_.bytes().data() + sizeof(header)), head().files};
}

std::span<const token_index::window_entry> token_index::window_table() const noexcept {
  return {reinterpret_cast<const window_entry*>(file_table().data() + head().files), head().windows};
}

const std::uint32_t* token_index::lengths() const noexcept {
  return reinterpret_cast<const std::uint32_t*>(window_table().data() + head().windows);
}

std::uint64_t token_index::samples() const noexcept {
  return head().samples;
}
std::uint64_t token_index::tokens() const noexcept {
  return file_table().back().tokens_end;
}
dtype token_index::element() const noexcept {
  return static_cast<dtype>(head().element);
}
std::string_view token_index::fingerprint() const noexcept {
  return {head().fingerprint.data(), head().fingerprint.size()};
}
std::uint32_t token_index::entries_of_lengths() const noexcept {
  return static_cast<std::uint32_t>(head().entries_of_lengths);
}
std::uint64_t token_index::files() const noexcept {
  return head().files;
}

indexed_token_file token_index::file(std::uint64_t file) const {
  PENSTOCK_CHECK(file < files(), "file {} of {}", file, files());
  const file_entry& own = file_table()[file];
  const file_entry before = file == 0 ? file_entry{} : file_table()[file - 1];
  const auto* const names = reinterpret_cast<const char*>(lengths() + head().documents);
  return {{names + before.tag_end, own.name_end - before.tag_end},
          {names + own.name_end, own.tag_end - own.name_end},
          own.bytes,
          own.data_at,
          own.index_bytes,
          before.tokens_end,
          own.tokens_end - before.tokens_end};
}

std::uint64_t token_index::file_of(std::uint64_t token) const {
  PENSTOCK_CHECK(token < tokens(), "token {} of {}", token, tokens());
  return static_cast<std::uint64_t>(std::ranges::upper_bound(file_table(), token, {}, &file_entry::tokens_end) -
                                    file_table().begin());
}

std::uint64_t token_index::window_of(std::uint64_t sample) const {
  PENSTOCK_CHECK(sample < samples() && head().windows > 0, "sequence {} of {}", sample, samples());
  return static_cast<std::uint64_t>(
      std::ranges::upper_bound(window_table(), sample, {}, &window_entry::sequences_end) - window_table().begin());
}

indexed_window token_index::window(std::uint64_t window) const {
  PENSTOCK_CHECK(window < head().windows, "window {} of {}", window, head().windows);
  const std::uint64_t first = window * packing_window;
  return {window_table()[window].first_token, window == 0 ? 0 : window_table()[window - 1].sequences_end,
          {lengths() + first, std::min(packing_window, head().documents - first)}};
}

bool token_index::has_documents() const noexcept {
  return head().windows > 0;
}

void token_index::begins_between(std::uint64_t after, std::uint64_t before, std::vector<std::uint64_t>& begins) const {
  const auto table = window_table();
  const auto next = std::ranges::upper_bound(table, after, {}, &window_entry::first_token) - table.begin();
  for (auto i = static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(next - 1, 0)); i < head().windows; ++i) {
    const indexed_window documents = window(i);
    std::uint64_t token = documents.first_token;
    for (const std::uint32_t length : documents.lengths) {
      if (token >= before) return;
      if (token > after) begins.push_back(token);
      token += length;
    }
  }
}

}  // namespace penstock
