// Tar archives: the parser accepts or refuses any bytes, asks only for bytes within the archive, moves forward, and finds only members
// whose contents are within it. Seek tables of compressed archives: any bytes are refused at once, or
// describe frames that lie within the file. These decompress to the stated sizes, or are refused then.
#include "runtime/dataset/tar/frame_reader.hpp"
#include "runtime/dataset/tar/frame_writer.hpp"
#include "runtime/dataset/tar/tar_parser.hpp"
#include "runtime/dataset/tar/tar_writer.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

using namespace penstock;

namespace {

/// Corrects every header's checksum, so that mutations pass it.
void mend_checksums(std::string& archive) {
  for (std::size_t at = 0; at + tar_block <= archive.size(); at += tar_block) {
    if (archive.compare(at + 257, 5, "ustar") != 0) continue;
    std::memset(archive.data() + at + 148, ' ', 8);
    unsigned sum = 0;
    for (std::size_t i = 0; i < tar_block; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    for (std::size_t digit = 0; digit < 6; ++digit)
      archive[at + 153 - digit] = static_cast<char>('0' + ((sum >> (3 * digit)) & 7U));
    archive[at + 154] = '\0';
  }
}

/// Read in large pieces, archives have the same members.
void walk_plain(std::string_view archive, const std::vector<std::uint64_t>& expected) {
  tar_parser parser(archive.size());
  std::vector<std::uint64_t> found;
  const auto bytes_from = [&](std::uint64_t at, std::uint64_t most) { return std::as_bytes(std::span(archive)).subspan(at, std::min(most, archive.size() - at)); };
  while (const auto range = parser.wanted()) {
    constexpr std::uint64_t piece = 5000;
    if (parser.take_plain(bytes_from(range->at, piece), archive.size(), [&](const tar_member& member) { found.push_back(member.header_at); })) continue;
    const auto member = parser.take(bytes_from(range->at, range->bytes));
    if (!member) break;
    if (*member) found.push_back((*member)->header_at);
  }
  must(found == expected);
}

void walk(std::string_view archive) {
  tar_parser parser(archive.size());
  std::vector<std::uint64_t> found;
  std::uint64_t seen = 0;
  while (const auto range = parser.wanted()) {
    must(range->at >= seen && range->at <= archive.size() && range->bytes <= archive.size() - range->at);
    const auto* const bytes = reinterpret_cast<const std::byte*>(archive.data()) + range->at;
    const auto member = parser.take({bytes, range->bytes});
    if (!member) {
      must(!member.error().message.empty());
      break;
    }
    must(!parser.wanted() || parser.wanted()->at > range->at);
    seen = range->at;
    if (!*member) continue;
    must((*member)->data_at <= archive.size() && (*member)->size <= archive.size() - (*member)->data_at);
    must((*member)->header_at < (*member)->data_at && (*member)->data_at % tar_block == 0);
    found.push_back((*member)->header_at);
  }
  walk_plain(archive, found);
}

class bytes_of_file final : public readable {
 public:
  explicit bytes_of_file(std::string_view text) : text_(text) {}
  [[nodiscard]] std::uint64_t bytes() const noexcept override { return text_.size(); }
  result<void> read(std::uint64_t at, std::span<std::byte> into) override {
    must(at <= text_.size() && into.size() <= text_.size() - at);
    std::ranges::copy(std::as_bytes(std::span(text_)).subspan(at, into.size()), into.begin());  // memcpy takes no null, even for 0 bytes
    return {};
  }

 private:
  std::string_view text_;
};

void read_as_frames(std::string_view text) {
  bytes_of_file file(text);
  const auto frames = read_frames(file);
  if (!frames) {
    must(!frames.error().message.empty());
    return;
  }
  const std::uint64_t bytes = frames->empty() ? 0 : frames->back().archive_at + frames->back().archive_bytes;
  must(frames_fit(*frames, text.size(), bytes));
  frame_reader reader;
  std::vector<std::byte> piece(std::min<std::uint64_t>(bytes, 5000));
  constexpr std::size_t frames_tried = 8;
  for (const zstd_frame& frame : std::span(*frames).first(std::min(frames->size(), frames_tried))) {
    if (frame.archive_bytes > 1U << 20U) continue;  // a size whose allocation would take longer than everything else
    const auto into = std::span(piece).first(std::min<std::uint64_t>(piece.size(), bytes - frame.archive_at));
    static_cast<void>(reader.read(0, file, *frames, frame.archive_at, into));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string archive(reinterpret_cast<const char*>(data), size);
  read_as_frames(archive);
  walk(archive);
  mend_checksums(archive);
  walk(archive);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::string plain;
  append_tar_member(plain, "a/1.jpg", "picture");
  append_tar_member(plain, "a/1.cls", "7");
  append_tar_member(plain, std::string(120, 'n') + ".jpg", std::string(600, 'x'));
  append_tar_end(plain);
  std::string pax;
  append_tar_member(pax, "PaxHeaders/1", "16 path=b/2.jpg\n10 size=3\n");
  pax[156] = 'x';
  append_tar_member(pax, "short", "abc");
  std::string sparse;
  append_tar_header(sparse, "holes.jpg", 4);
  sparse[156] = 'S';
  sparse[482] = 1;
  sparse += std::string(1024, '\0');
  mend_checksums(pax);
  mend_checksums(sparse);
  std::string compressed;
  auto frames = frame_writer::open(1);
  must(frames.has_value());
  frames->append_frame(compressed, plain.substr(0, 700));
  frames->append_frame(compressed, plain.substr(700));
  frames->append_table(compressed);
  return {plain, pax, sparse, pax + plain, compressed};
}
