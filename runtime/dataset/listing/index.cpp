#include "runtime/dataset/listing/index.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/dataset_type.hpp"
#include "runtime/base/shape_limit.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/dataset/sealed_index.hpp"

#include <algorithm>
#include <array>

namespace penstock {

// Layout, all numbers little-endian and naturally aligned, sections in this order without gaps:
//
//   header
//   u64 text_ends[texts]             end of each text in the pool; it begins where the previous one ends, or at 0
//   record_place places[files]       only if has_places (npy, raw, objects)
//   u32 labels[files]                only if has_labels (image-folder)
//   pool                             class names, then file names, then, only if has_tags (objects), their versions

struct index_view::header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t type;
  std::uint64_t total_bytes;
  std::uint64_t samples;
  std::uint64_t files;
  std::uint64_t pool_bytes;
  std::uint32_t classes;
  std::uint8_t has_labels;
  std::uint8_t has_places;
  std::uint8_t element;
  std::uint8_t axes;
  std::array<std::uint32_t, shape_axes_max> shape;
  std::array<char, 32> fingerprint;
  std::uint64_t has_tags;
};

struct index_view::record_place {
  std::uint64_t size;
  std::uint64_t data_at;
};

namespace {

constexpr std::array<char, 8> magic{'P', 'N', 'S', 'T', 'K', 'I', 'D', 'X'};
constexpr std::uint32_t format_version = 2;

/// Collects bytes and writes them in large pieces.
class fd_writer {
 public:
  explicit fd_writer(int fd) : fd_(fd) { pending_.reserve(piece); }

  template <class T>
  void add(const T& value) {
    add(&value, sizeof value);
  }
  void add(const void* bytes, std::size_t size) {
    const auto* const from = static_cast<const char*>(bytes);
    pending_.insert(pending_.end(), from, from + size);
    if (pending_.size() >= piece) flush();
  }
  /// The errno of the first failed write; 0 if none failed.
  int finish() {
    flush();
    return os_code_;
  }

 private:
  static constexpr std::size_t piece = 1 * MiB;

  void flush() {
    if (os_code_ == 0) os_code_ = write_all(fd_, std::as_bytes(std::span(pending_)));
    pending_.clear();
  }

  int fd_;
  int os_code_ = 0;
  std::vector<char> pending_;
};

}  // namespace

result<unique_fd> seal_index(const listing& list) {
  using header = index_view::header;
  header head{};
  head.magic = magic;
  head.version = format_version;
  head.type = static_cast<std::uint32_t>(list.type);
  head.samples = list.samples;
  head.files = list.files.size();
  head.classes = static_cast<std::uint32_t>(list.classes.size());
  head.has_labels = list.type == dataset_type::image_folder ? 1 : 0;
  head.has_tags = list.of_objects ? 1 : 0;
  head.has_places = head.has_labels == 0 || list.of_objects ? 1 : 0;
  head.element = static_cast<std::uint8_t>(list.element);
  PENSTOCK_CHECK(list.shape.size() <= head.shape.size() && list.fingerprint.size() == head.fingerprint.size(),
                 "{} axes, fingerprint '{}'", list.shape.size(), list.fingerprint);
  head.axes = static_cast<std::uint8_t>(list.shape.size());
  std::ranges::copy(list.shape, head.shape.begin());
  std::ranges::copy(list.fingerprint, head.fingerprint.begin());
  for (const std::string& name : list.classes) head.pool_bytes += name.size();
  for (const listed_file& file : list.files) head.pool_bytes += file.name_size + file.tag_size;
  const std::uint64_t texts = head.classes + head.files * (1 + head.has_tags);
  head.total_bytes = sizeof head + texts * sizeof(std::uint64_t) +
                     (head.has_places != 0 ? head.files * sizeof(index_view::record_place) : 0) +
                     (head.has_labels != 0 ? head.files * sizeof(std::uint32_t) : 0) + head.pool_bytes;

  auto fd = create_index(counted(list.samples, "sample"), head.total_bytes);
  if (!fd) return fd;
  fd_writer out(fd->get());
  out.add(head);
  std::uint64_t end = 0;
  for (const std::string& name : list.classes) out.add(end += name.size());
  for (const listed_file& file : list.files) out.add(end += file.name_size);
  for (const listed_file& file : list.files) {
    if (head.has_tags != 0) out.add(end += file.tag_size);
  }
  for (const listed_file& file : list.files) {
    if (head.has_places != 0) out.add(index_view::record_place{file.size, file.data_at});
  }
  for (const listed_file& file : list.files) {
    if (head.has_labels != 0) out.add(file.label);
  }
  for (const std::string& name : list.classes) out.add(name.data(), name.size());
  for (const listed_file& file : list.files) {
    const std::string_view name = list.name_of(file);
    out.add(name.data(), name.size());
  }
  for (const listed_file& file : list.files) {
    const std::string_view tag = list.tag_of(file);
    if (head.has_tags != 0) out.add(tag.data(), tag.size());
  }
  if (const int os_code = out.finish(); os_code != 0) {
    return refuse_os(errc::out_of_memory, os_code,
                     fmt::format("writing the dataset's index ({})", bytes_for_people(head.total_bytes)));
  }
  if (auto ok = seal_index_file(fd->get()); !ok) return tl::unexpected(std::move(ok.error()));
  return fd;
}

result<index_view> index_view::map(int fd) {
  auto memory = map_index(fd, "the dataset's index", sizeof(header));
  if (!memory) return tl::unexpected(std::move(memory.error()));
  index_view view(std::move(*memory));
  if (auto checked = view.check(); !checked) return tl::unexpected(std::move(checked.error()));
  return view;
}

result<void> index_view::check() const {
  const header& head = this->head();
  const auto nonsense = [](const char* what) {
    return refuse(errc::protocol, "the dataset's index is invalid in {}", what);
  };
  if (head.magic != magic) return refuse(errc::protocol, "this is not the index of a dataset");
  if (head.version != format_version) {
    return refuse(errc::protocol, "the dataset's index has version {}, but this program reads version {}", head.version,
                  format_version);
  }
  if (head.total_bytes != size()) return nonsense("its size");
  if (head.type > 0xffU || name_of(static_cast<dataset_type>(head.type)).empty()) return nonsense("its type");
  if (head.has_labels > 1 || head.has_tags > 1 || head.has_places != (head.has_labels == 0 || head.has_tags == 1 ? 1 : 0))
    return nonsense("its sections");
  if (head.element > static_cast<std::uint8_t>(dtype::float64) || head.axes > head.shape.size())
    return nonsense("its shape");
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!std::ranges::all_of(head.fingerprint, is_hex)) return nonsense("its fingerprint");
  // Check the counts against the size first, so that the sums below cannot overflow.
  if (head.files > size() || head.classes > size() || head.pool_bytes > size()) return nonsense("its counts");
  const std::uint64_t fixed = sizeof(header) + texts() * sizeof(std::uint64_t) +
                              head.files * (head.has_places * sizeof(record_place) + head.has_labels * sizeof(std::uint32_t));
  if (fixed + head.pool_bytes != size()) return nonsense("its counts");
  const auto ends = column<std::uint64_t>(sizeof(header), texts());
  if (!std::ranges::is_sorted(ends) || (ends.empty() ? 0 : ends.back()) != head.pool_bytes)
    return nonsense("its names");
  std::uint64_t samples = head.files;
  if (head.has_labels != 0) {
    if (std::ranges::any_of(labels(), [&](std::uint32_t label) { return label >= head.classes; }))
      return nonsense("its classes");
  } else {
    std::uint64_t record = penstock::size_of(static_cast<dtype>(head.element));
    for (std::size_t i = 0; i < head.axes; ++i) {
      const std::uint64_t side = head.shape[i];
      if (side == 0 || record > (std::uint64_t{1} << 40U) / side) return nonsense("its shape");
      record *= side;
    }
    samples = 0;
    for (const record_place& place : places()) {
      if (place.data_at > place.size || (place.size - place.data_at) % record != 0)
        return nonsense("its files");
      const std::uint64_t here = (place.size - place.data_at) / record;
      if (here > ~samples) return nonsense("its files");
      samples += here;
    }
  }
  if (head.samples != samples) return nonsense("its count of samples");
  return {};
}

const index_view::header& index_view::head() const noexcept {
  return *reinterpret_cast<const header*>(memory_.bytes().data());
}

template <class T>
std::span<const T> index_view::column(std::uint64_t at, std::uint64_t count) const noexcept {
  return {reinterpret_cast<const T*>(memory_.bytes().data() + at), count};
}

dataset_type index_view::type() const noexcept {
  return static_cast<dataset_type>(head().type);
}
std::uint64_t index_view::samples() const noexcept {
  return head().samples;
}
std::uint64_t index_view::files() const noexcept {
  return head().files;
}
std::uint32_t index_view::classes() const noexcept {
  return head().classes;
}
dtype index_view::element() const noexcept {
  return static_cast<dtype>(head().element);
}

std::string_view index_view::fingerprint() const noexcept {
  return {head().fingerprint.data(), head().fingerprint.size()};
}

bool index_view::of_objects() const noexcept {
  return head().has_tags != 0;
}

std::vector<std::uint32_t> index_view::shape() const {
  return {head().shape.begin(), head().shape.begin() + head().axes};
}

std::uint64_t index_view::texts() const noexcept {
  return classes() + files() * (1 + head().has_tags);
}

std::span<const index_view::record_place> index_view::places() const noexcept {
  return column<record_place>(sizeof(header) + texts() * sizeof(std::uint64_t), files());
}

std::span<const std::uint32_t> index_view::labels() const noexcept {
  return column<std::uint32_t>(size() - head().pool_bytes - files() * sizeof(std::uint32_t), files());
}

std::string_view index_view::text(std::uint64_t i) const noexcept {
  const auto ends = column<std::uint64_t>(sizeof(header), texts());
  const auto* const pool = reinterpret_cast<const char*>(memory_.bytes().data() + size() - head().pool_bytes);
  const std::uint64_t begin = i == 0 ? 0 : ends[i - 1];
  return {pool + begin, ends[i] - begin};
}

std::string_view index_view::name(std::uint64_t i) const {
  PENSTOCK_CHECK(i < files(), "file {} of {}", i, files());
  return text(classes() + i);
}

std::string_view index_view::tag(std::uint64_t i) const {
  PENSTOCK_CHECK(i < files(), "file {} of {}", i, files());
  return head().has_tags == 0 ? std::string_view() : text(classes() + files() + i);
}

std::string_view index_view::class_name(std::uint32_t c) const {
  PENSTOCK_CHECK(c < classes(), "class {} of {}", c, classes());
  return text(c);
}

std::uint32_t index_view::class_of(std::uint64_t i) const {
  PENSTOCK_CHECK(i < files(), "file {} of {}", i, files());
  return head().has_labels == 0 ? 0 : labels()[i];
}

std::uint64_t index_view::size_of_file(std::uint64_t i) const {
  PENSTOCK_CHECK(i < files(), "file {} of {}", i, files());
  return head().has_places == 0 ? 0 : places()[i].size;
}

std::uint64_t index_view::data_at(std::uint64_t i) const {
  PENSTOCK_CHECK(i < files(), "file {} of {}", i, files());
  return head().has_places == 0 ? 0 : places()[i].data_at;
}

}  // namespace penstock
