// Archives of arrays (.npz): any bytes are refused, or give members whose contents lie within the archive and have the size and
// checksum that the directory promises. Arrays in them are refused, or lie within their members.
#include "runtime/dataset/arrays/zip_directory.hpp"
#include "runtime/dataset/records/npy_header.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

using namespace penstock;

namespace {

void read_array(std::span<const std::byte> start, std::uint64_t bytes) {
  const auto header = parse_npy_header(start, bytes);
  if (!header) return;
  must(header->data_at <= bytes && !header->shape.empty());
  must(header->shape[0] == 0 || header->record_bytes() <= (bytes - header->data_at) / header->shape[0]);
}

void read_archive(std::string_view bytes) {
  const archive_reader read = [bytes](std::uint64_t at, std::span<std::byte> into) -> result<void> {
    must(at <= bytes.size() && into.size() <= bytes.size() - at);
    std::ranges::copy(std::as_bytes(std::span(bytes)).subspan(at, into.size()), into.begin());  // memcpy takes no null, even for 0 bytes
    return {};
  };
  const auto members = read_zip_directory(read, bytes.size());
  if (!members) return;
  for (const zip_member& member : *members) {
    const auto contents = contents_of(member, read, bytes.size());
    if (!contents) continue;
    must(*contents <= bytes.size() && member.stored <= bytes.size() - *contents);
    if (!member.deflated) {
      const auto start = std::as_bytes(std::span(bytes)).subspan(*contents, std::min<std::uint64_t>(member.stored, npy_header_max));
      read_array(start, member.stored);
      continue;
    }
    std::vector<std::byte> start;
    std::uint64_t given = 0;
    const auto inflated = inflate(member, *contents, read, [&](std::span<const std::byte> piece) -> result<bool> {
      given += piece.size();
      must(given <= member.bytes);
      start.insert(start.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(std::min(piece.size(), npy_header_max - start.size())));
      return true;
    });
    if (!inflated) continue;
    must(given == member.bytes);
    read_array(start, member.bytes);
  }
}

template <class T>
void append(std::string& bytes, std::initializer_list<T> numbers) {
  for (const T number : numbers) bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string array_of(std::size_t bytes) {
  std::string dictionary = "{'descr': '|u1', 'fortran_order': False, 'shape': (" + std::to_string(bytes) + ",), }";
  dictionary.resize(117, ' ');
  std::string file("\x93NUMPY\x01\x00\x76\x00", 10);
  return file + dictionary + "\n" + std::string(bytes, 'x');
}

std::string deflated(const std::string& contents) {
  z_stream stream{};
  must(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string made(contents.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(contents.data()));
  stream.avail_in = static_cast<uInt>(contents.size());
  stream.next_out = reinterpret_cast<Bytef*>(made.data());
  stream.avail_out = static_cast<uInt>(made.size());
  must(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  made.resize(made.size() - stream.avail_out);
  deflateEnd(&stream);
  return made;
}

/// An archive as numpy.savez or numpy.savez_compressed writes it.
std::string archive(bool compressed) {
  std::string file;
  std::string directory;
  std::uint16_t entries = 0;
  for (const std::size_t size : {5U, 300U}) {
    const std::string name = "a" + std::to_string(entries) + ".npy";
    const std::string contents = array_of(size);
    const std::string stored = compressed ? deflated(contents) : contents;
    const auto crc = static_cast<std::uint32_t>(
        ::crc32(0, reinterpret_cast<const Bytef*>(contents.data()), static_cast<uInt>(contents.size())));
    const auto at = static_cast<std::uint32_t>(file.size());
    std::string facts;
    append<std::uint16_t>(facts, {20, 0, static_cast<std::uint16_t>(compressed ? 8 : 0), 0, 0});
    append<std::uint32_t>(facts, {crc, static_cast<std::uint32_t>(stored.size()), static_cast<std::uint32_t>(contents.size())});
    append<std::uint16_t>(facts, {static_cast<std::uint16_t>(name.size()), 0});
    file += "PK\x03\x04" + facts + name + stored;
    directory += "PK\x01\x02";
    append<std::uint16_t>(directory, {20});
    directory += facts;
    append<std::uint16_t>(directory, {0, 0, 0});
    append<std::uint32_t>(directory, {0, at});
    directory += name;
    ++entries;
  }
  const auto directory_at = static_cast<std::uint32_t>(file.size());
  file += directory + "PK\x05\x06";
  append<std::uint16_t>(file, {0, 0, entries, entries});
  append<std::uint32_t>(file, {static_cast<std::uint32_t>(directory.size()), directory_at});
  append<std::uint16_t>(file, {0});
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_archive({reinterpret_cast<const char*>(data), size});
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  // A refused seed would test nothing.
  for (const bool compressed : {false, true}) {
    const std::string whole = archive(compressed);
    const archive_reader read = [&whole](std::uint64_t at, std::span<std::byte> into) -> result<void> {
      std::memcpy(into.data(), whole.data() + at, into.size());
      return {};
    };
    const auto members = read_zip_directory(read, whole.size());
    must(members && members->size() == 2 && contents_of(members->front(), read, whole.size()).has_value());
  }
  return {archive(false), archive(true)};
}
