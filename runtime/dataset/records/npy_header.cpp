#include "runtime/dataset/records/npy_header.hpp"

#include "runtime/base/shape_limit.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

std::uint64_t npy_header::record_bytes() const noexcept {
  std::uint64_t bytes = size_of(element);
  for (std::size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
  return bytes;
}

namespace {

struct named_type {
  std::string_view descr;  // without its character for byte order
  dtype type;
};

constexpr std::array types{
    named_type{"u1", dtype::uint8},   named_type{"b1", dtype::uint8},   named_type{"i1", dtype::int8},
    named_type{"u2", dtype::uint16},  named_type{"i2", dtype::int16},   named_type{"u4", dtype::uint32},
    named_type{"i4", dtype::int32},   named_type{"u8", dtype::uint64},  named_type{"i8", dtype::int64},
    named_type{"f2", dtype::float16}, named_type{"f4", dtype::float32}, named_type{"f8", dtype::float64},
};

result<dtype> type_of(std::string_view descr) {
  const char order = descr.empty() ? '?' : descr.front();
  const std::string_view kind = descr.empty() ? descr : descr.substr(1);
  const auto known = std::ranges::find(types, kind, &named_type::descr);
  if (order == '>' && (known == types.end() || size_of(known->type) > 1)) {
    return refuse(errc::dataset, "has big-endian elements ('{}'): convert it with array.astype('<{}')",
                  printable(descr), printable(kind));
  }
  if (known == types.end() || (order != '<' && order != '|' && order != '>')) {
    return refuse(errc::dataset, "has elements of type '{}', which is not a plain number",
                  printable(shortened(descr, 40)));
  }
  return known->type;
}

/// Parses the dictionary: only the subset of Python that numpy writes there.
class literal_reader {
 public:
  explicit literal_reader(std::string_view text) noexcept : rest_(text) {}

  void skip_blanks() noexcept {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }
  bool take(std::string_view piece) noexcept {
    skip_blanks();
    if (!rest_.starts_with(piece)) return false;
    rest_.remove_prefix(piece.size());
    return true;
  }
  [[nodiscard]] bool at_end() noexcept {
    skip_blanks();
    return rest_.empty();
  }
  [[nodiscard]] bool sees(char c) noexcept {
    skip_blanks();
    return !rest_.empty() && rest_.front() == c;
  }
  /// A string in either kind of quotes, without escapes.
  std::optional<std::string_view> take_string() noexcept {
    skip_blanks();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    if (text.find('\\') != std::string_view::npos) return std::nullopt;
    rest_.remove_prefix(end + 1);
    return text;
  }
  /// (), (3,), (3, 4), (3, 4,); Python 2 wrote 3L.
  std::optional<std::vector<std::uint64_t>> take_shape() {
    if (!take("(")) return std::nullopt;
    std::vector<std::uint64_t> shape;
    bool comma = false;
    while (!take(")")) {
      if (shape.size() == shape_axes_max || (!shape.empty() && !comma)) return std::nullopt;
      skip_blanks();
      std::uint64_t side = 0;
      const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), side);
      if (status != std::errc{}) return std::nullopt;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      take("L");
      shape.push_back(side);
      comma = take(",");
    }
    if (shape.size() == 1 && !comma) return std::nullopt;  // (3) is not a tuple
    return shape;
  }

 private:
  std::string_view rest_;
};

struct raw_header {
  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<std::uint64_t>> shape;
};

tl::unexpected<failure> unreadable() {
  return refuse(errc::dataset, "has a .npy header in a form that numpy does not write");
}

result<raw_header> parse_dictionary(std::string_view text) {
  literal_reader reader(text);
  raw_header header;
  if (!reader.take("{")) return unreadable();
  while (!reader.take("}")) {
    const auto key = reader.take_string();
    if (!key || !reader.take(":")) return unreadable();
    if (*key == "descr" && !header.descr) {
      if (reader.sees('[')) {
        return refuse(errc::dataset,
                      "has records of several fields as elements: save each field as a separate array");
      }
      const auto descr = reader.take_string();
      if (!descr) return unreadable();
      header.descr = std::string(*descr);
    } else if (*key == "fortran_order" && !header.fortran) {
      const bool yes = reader.take("True");
      if (!yes && !reader.take("False")) return unreadable();
      header.fortran = yes;
    } else if (*key == "shape" && !header.shape) {
      header.shape = reader.take_shape();
      if (!header.shape) return unreadable();
    } else {
      return refuse(errc::dataset, "has a .npy header with an unknown or repeated key '{}'",
                    printable(shortened(*key, 40)));
    }
    if (!reader.take(",") && !reader.sees('}')) return unreadable();
  }
  if (!reader.at_end() || !header.descr || !header.fortran || !header.shape) return unreadable();
  return header;
}

std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

/// Checks everything but whether the shape matches the file's size.
result<npy_header> parse_layout(std::span<const std::byte> start) {
  constexpr std::string_view magic = "\x93NUMPY";
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (!text.starts_with(magic))
    return refuse(errc::dataset, "is not a .npy file: its first bytes are not \\x93NUMPY");
  if (start.size() < 10) return refuse(errc::dataset, "ends inside its .npy header");
  const auto version = std::to_integer<unsigned>(start[6]);
  if (version < 1 || version > 3)
    return refuse(errc::dataset, "is a .npy file of the unknown version {}", version);
  const std::size_t size_bytes = version == 1 ? 2 : 4;
  const std::size_t dictionary_at = 8 + size_bytes;
  if (start.size() < dictionary_at) return refuse(errc::dataset, "ends inside its .npy header");
  const std::uint64_t dictionary_size = little_endian(start.subspan(8, size_bytes));
  if (dictionary_size > npy_header_max - dictionary_at) {
    return refuse(errc::dataset, "has a .npy header of {}, which is too long",
                  bytes_for_people(dictionary_size));
  }
  if (start.size() - dictionary_at < dictionary_size)
    return refuse(errc::dataset, "ends inside its .npy header");
  const auto raw = parse_dictionary(text.substr(dictionary_at, dictionary_size));
  if (!raw) return tl::unexpected(raw.error());
  if (*raw->fortran) {
    return refuse(errc::dataset,
                  "is in Fortran order: its samples are not contiguous; save np.ascontiguousarray(array)");
  }
  const auto element = type_of(*raw->descr);
  if (!element) return tl::unexpected(element.error());
  return npy_header{*element, *raw->shape, dictionary_at + dictionary_size};
}

/// Bytes of an array with this element type and these axes.
result<std::uint64_t> bytes_of_axes(dtype element, std::span<const std::uint64_t> axes) {
  std::uint64_t bytes = size_of(element);
  for (const std::uint64_t side : axes) {
    if (side == 0) return refuse(errc::dataset, "holds samples with a dimension of 0");
    if (side > 0xffffffffU || bytes > record_bytes_max / side)
      return refuse(errc::dataset, "holds samples larger than 1 TiB");
    bytes *= side;
  }
  return bytes;
}

}  // namespace

result<npy_header> parse_npy_header(std::span<const std::byte> start, std::uint64_t file_size) {
  auto header = parse_layout(start);
  if (!header) return header;
  if (header->shape.empty())
    return refuse(errc::dataset, "holds a single number: there is no first axis to count samples");
  const auto record = bytes_of_axes(header->element, std::span(header->shape).subspan(1));
  if (!record) return tl::unexpected(record.error());
  const std::uint64_t data = file_size - std::min(file_size, header->data_at);
  if (header->shape[0] != data / *record || data % *record != 0) {
    return refuse(errc::dataset, "holds {} bytes of data, but its header promises {} samples of {} bytes",
                  data, header->shape[0], *record);
  }
  return header;
}

result<npy_header> read_npy_header(readable& file) {
  constexpr std::uint64_t usual_max = 4096;
  std::vector<std::byte> start(std::min(file.bytes(), usual_max));
  if (auto ok = file.read(0, start); !ok) return tl::unexpected(std::move(ok.error()));
  auto header = parse_npy_header(start, file.bytes());
  if (header || start.size() == file.bytes()) return header;
  // The header may be longer than the first read.
  start.resize(std::min<std::uint64_t>(file.bytes(), npy_header_max));
  if (auto ok = file.read(0, start); !ok) return tl::unexpected(std::move(ok.error()));
  return parse_npy_header(start, file.bytes());
}

result<npy_header> parse_npy_array(std::span<const std::byte> start, std::uint64_t file_size) {
  auto header = parse_layout(start);
  if (!header) return header;
  const auto bytes = bytes_of_axes(header->element, header->shape);
  if (!bytes) return tl::unexpected(bytes.error());
  const std::uint64_t data = file_size - std::min(file_size, header->data_at);
  if (*bytes != data)
    return refuse(errc::dataset, "holds {} bytes of data, but its header promises {}", data, *bytes);
  return header;
}

}  // namespace penstock
