#include "runtime/dataset/tar/seek_table.hpp"

#include "runtime/dataset/tar/frame_reader.hpp"
#include "runtime/dataset/tar/shard_index.hpp"
#include "tests/runtime/dataset/tar/archives.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>

using namespace penstock;
using testing::seekable;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// A file in memory that counts the bytes read from it.
class text_file final : public readable {
 public:
  explicit text_file(std::string text) : text(std::move(text)) {}
  [[nodiscard]] std::uint64_t bytes() const noexcept override { return text.size(); }
  result<void> read(std::uint64_t at, std::span<std::byte> into) override {
    if (at + into.size() > text.size()) return refuse(errc::io, "ends too early");
    if (!into.empty()) {
      reads.push_back({at, into.size()});
      drop({at, into.size()});
    }
    std::ranges::copy(bytes_of(text).subspan(at, into.size()), into.begin());
    return {};
  }
  void expect(std::vector<byte_range> ranges) override { awaited.insert(awaited.end(), ranges.begin(), ranges.end()); }
  void drop(byte_range range) override {
    if (const auto one = std::ranges::find(awaited, range); one != awaited.end()) awaited.erase(one);
  }
  std::string text;
  std::vector<byte_range> reads;
  std::vector<byte_range> awaited;
};

std::string numbers(std::size_t size) {
  std::string text;
  while (text.size() < size) text += fmt::format("{} ", text.size());
  return text.substr(0, size);
}

std::vector<zstd_frame> frames_in(readable& file) {
  auto frames = read_frames(file);
  if (!frames) FAIL(frames.error().message);
  return std::move(*frames);
}

std::string text_at(frame_reader& reader, text_file& file, std::span<const zstd_frame> frames, std::uint64_t at, std::size_t size) {
  std::string to(size, '\0');
  auto ok = reader.read(1, file, frames, at, std::as_writable_bytes(std::span(to)));
  return ok ? to : "refused: " + ok.error().message;
}

/// The reason why a file is refused after these bytes were changed.
std::string refusal(std::string file, const std::function<void(std::string&)>& change) {
  change(file);
  text_file changed(std::move(file));
  const auto frames = read_frames(changed);
  return frames ? "" : frames.error().message;
}

void put(std::string& file, std::size_t before_end, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) file[file.size() - before_end + i] = static_cast<char>(value >> (8 * i));
}

// A table of three frames: 12 bytes each, then 9.
constexpr std::size_t foot = 9;
constexpr std::size_t last_entry = foot + 12;
constexpr std::size_t first_entry = foot + 36;

}  // namespace

TEST_CASE("a seek table gives the places of frames and of their contents") {
  const std::string text = numbers(2500);
  text_file file(seekable(text, 1000));
  const auto frames = frames_in(file);
  REQUIRE(frames.size() == 3);
  CHECK(file.reads.size() == 1);
  CHECK(frames[1].archive_at == 1000);
  CHECK(frames[1].file_at == frames[0].file_bytes);
  CHECK(frames[2].archive_bytes == 500);
  CHECK(frames_fit(frames, file.bytes(), 2500));
  CHECK_FALSE(frames_fit(frames, file.bytes(), 2501));
  CHECK_FALSE(frames_fit(frames, frames[2].file_at, 2500));
  CHECK_FALSE(frames_fit(std::span(frames).subspan(1), file.bytes(), 1500));
  CHECK(frames_of(frames, {0, 1}).size() == 1);
  CHECK(frames_of(frames, {999, 1}).size() == 1);
  CHECK(frames_of(frames, {999, 2}).size() == 2);
  CHECK(frames_of(frames, {1000, 1}).front() == frames[1]);
  CHECK(frames_of(frames, {0, 2500}).size() == 3);
  CHECK(frames_of(frames, {5, 0}).empty());
  CHECK(frames_of({}, {5, 5}).empty());
}

TEST_CASE("a table without checksums, as written by t2sz, is read") {
  const std::string text = numbers(2500);
  const std::string with = seekable(text, 1000);
  constexpr std::size_t entries = 36;
  std::string table = with.substr(with.size() - foot - entries - 8);
  const std::string frames_alone = with.substr(0, with.size() - table.size());
  std::string without = table.substr(0, 8);
  for (std::size_t i = 0; i < 3; ++i) without += table.substr(8 + 12 * i, 8);
  without += table.substr(8 + entries);
  without[without.size() - 5] = 0;
  put(without, without.size() - 4, 3 * 8 + foot);
  text_file file(frames_alone + without);
  const auto frames = frames_in(file);
  REQUIRE(frames.size() == 3);
  CHECK(frames[1].has_checksum == 0);
  frame_reader reader;
  CHECK(text_at(reader, file, frames, 900, 1600) == text.substr(900));
}

TEST_CASE("a table longer than one read is read as a whole") {
  const std::string text = numbers(60'000);
  text_file file(seekable(text, 10));
  const auto frames = frames_in(file);
  CHECK(frames.size() == 6000);
  frame_reader reader;
  CHECK(text_at(reader, file, frames, 12'345, 40) == text.substr(12'345, 40));
}

TEST_CASE("seek tables with wrong numbers are refused, and the error gives them") {
  const std::string file = seekable(numbers(2500), 1000);
  const auto begins = [&](const std::function<void(std::string&)>& change, std::string_view text) {
    const std::string why = refusal(file, change);
    INFO(why);
    CHECK(why.starts_with(text));
  };
  begins([](std::string& f) { f.resize(f.size() - 1); }, "has no seek table at its end");
  begins([](std::string& f) { f = f.substr(0, 5); }, "has no seek table at its end");
  begins([](std::string& f) { f.clear(); }, "has no seek table at its end");
  CHECK(refusal(file, [](std::string& f) { f.pop_back(); }).find("`zstd -d` it, and compress the .tar with `penstock pack FILE.tar --out DIR --compress zstd`") != std::string::npos);
  begins([](std::string& f) { put(f, foot, 0xffffffff); }, "has a seek table that claims 4294967295 frames, for which a file of");
  begins([](std::string& f) { put(f, foot, 0x8000000); }, "has a seek table that claims 134217728 frames");
  begins([](std::string& f) { put(f, foot, 2); }, "has a damaged seek table");
  begins([](std::string& f) { f[f.size() - 5] = '\x84'; }, "has a seek table with unknown flags (0x84)");
  begins([](std::string& f) { put(f, last_entry, 0xfffffff0); }, "has a seek table whose frame at byte");
  begins([](std::string& f) { put(f, first_entry, 1); }, "has a seek table whose frames end at byte");
  begins([](std::string& f) { put(f, first_entry - 4, 0xffffffff); }, "has a frame at byte 0 of");
  begins([](std::string& f) { f.erase(0, 10); }, "has a seek table whose frame at byte");
  begins([](std::string& f) { f.insert(0, "abc"); }, "has a seek table whose frames end at byte");
}

TEST_CASE("frames without contents are skipped") {
  const std::string text = numbers(2000);
  std::string file;
  auto writer = frame_writer::open(1);
  REQUIRE(writer);
  writer->append_frame(file, text);
  const auto frames = [&] {
    std::string whole = file;
    writer->append_table(whole);
    text_file read(whole);
    return frames_in(read);
  }();
  std::vector<zstd_frame> with_empty{{0, 0, 12, 0, 0, 1}, frames[0], {0, 0, 12, 0, 0, 1}};
  const std::string skippable("\x50\x2a\x4d\x18\x04\0\0\0beef", 12);
  std::string table;
  append_seek_table(table, with_empty);
  text_file all(skippable + file + skippable + table);
  const auto found = frames_in(all);
  REQUIRE(found.size() == 1);
  CHECK(found[0].file_at == 12);
  frame_reader reader;
  CHECK(text_at(reader, all, found, 7, 100) == text.substr(7, 100));
}

TEST_CASE("a range is read only from its frames, and the last frames are kept") {
  const std::string text = numbers(100'000);
  text_file file(seekable(text, 5000));
  const auto frames = frames_in(file);
  REQUIRE(frames.size() == 20);
  file.reads.clear();
  frame_reader reader;
  CHECK(text_at(reader, file, frames, 12'000, 100) == text.substr(12'000, 100));
  REQUIRE(file.reads.size() == 1);
  CHECK(file.reads[0].at == frames[2].file_at);
  CHECK(file.reads[0].bytes == frames[2].file_bytes);
  CHECK(text_at(reader, file, frames, 14'990, 20) == text.substr(14'990, 20));
  CHECK(file.reads.size() == 2);
  CHECK(text_at(reader, file, frames, 10'000, 10'000) == text.substr(10'000, 10'000));
  CHECK(file.reads.size() == 2);
  CHECK(text_at(reader, file, frames, 0, text.size()) == text);
  CHECK(file.reads.size() == 20);
  CHECK(text_at(reader, file, frames, 0, 1) == text.substr(0, 1));
  CHECK(file.reads.size() == 20);
  // Another file has frames with the same numbers.
  std::string other(1, '\0');
  REQUIRE(reader.read(2, file, frames, 99'999, std::as_writable_bytes(std::span(other))));
  CHECK(file.reads.size() == 21);
}

TEST_CASE("of many small frames the last 256 are kept") {
  const std::string text = numbers(300'000);
  text_file file(seekable(text, 1000));
  const auto frames = frames_in(file);
  file.reads.clear();
  frame_reader reader;
  CHECK(text_at(reader, file, frames, 0, text.size()) == text);
  CHECK(text_at(reader, file, frames, 44'000, 256'000) == text.substr(44'000));
  CHECK(file.reads.size() == 300);
  CHECK(text_at(reader, file, frames, 43'999, 1) == text.substr(43'999, 1));
  CHECK(file.reads.size() == 301);
}

TEST_CASE("ranges announced for a file are read or dropped, even while it is indexed") {
  testing::named_contents members;
  for (int i = 0; i < 3000; ++i) members.emplace_back(fmt::format("{:06}.txt", i), numbers(static_cast<std::size_t>(i % 700)));
  const std::string archive = testing::archive_of(members);
  const auto file = std::make_shared<text_file>(seekable(archive, 10'000));
  std::atomic<std::uint64_t> passed{0};
  const auto index = read_shard(file, "tag", "a.tar.zst", passed);
  if (!index) FAIL(index.error().message);
  CHECK(index->members == 3000);
  CHECK(file->awaited.empty());
  // The dataset's reader announces frames that it has kept, too: it knows which ones only when it reads.
  frame_reader reader;
  const auto frames = frames_in(*file);
  for (int round = 0; round < 2; ++round) {
    const byte_range range{5000, 20'000};
    file->expect(compressed_ranges(frames, std::span(&range, 1)));
    CHECK(file->awaited.size() == 3);
    CHECK(text_at(reader, *file, frames, range.at, range.bytes) == archive.substr(range.at, range.bytes));
    CHECK(file->awaited.empty());
  }
}

TEST_CASE("large frames are kept one at a time, and small ones then use little memory again") {
  const std::string large(15'000'000, 'x');
  text_file file(seekable(large + large + numbers(100'000), large.size()));
  const auto frames = frames_in(file);
  file.reads.clear();
  frame_reader reader;
  for (int round = 0; round < 2; ++round) {
    CHECK(text_at(reader, file, frames, 5, 3) == "xxx");
    CHECK(text_at(reader, file, frames, large.size() + 5, 3) == "xxx");
    CHECK(text_at(reader, file, frames, 2 * large.size(), 4) == "0 2 ");
  }
  CHECK(file.reads.size() == 6);
}

TEST_CASE("ranges that share a frame fetch it once") {
  text_file file(seekable(numbers(10'000), 1000));
  const auto frames = frames_in(file);
  const std::vector<byte_range> ranges{{5500, 10}, {5900, 200}, {10, 10}, {20, 0}};
  const auto fetched = compressed_ranges(frames, ranges);
  REQUIRE(fetched.size() == 3);
  CHECK(fetched[0].at == frames[0].file_at);
  CHECK(fetched[1].at == frames[5].file_at);
  CHECK(fetched[2].at == frames[6].file_at);
  CHECK(fetched[2].bytes == frames[6].file_bytes);
}

TEST_CASE("damaged frames, and frames that contradict their table, are refused and named") {
  const std::string text = numbers(3000);
  text_file file(seekable(text, 1000));
  auto frames = frames_in(file);
  frame_reader reader;
  const auto refused = [&] {
    const std::string why = text_at(reader, file, frames, 1500, 10);
    CHECK(text_at(reader, file, frames, 500, 10) == text.substr(500, 10));
    CHECK(text_at(reader, file, frames, 2500, 10) == text.substr(2500, 10));
    return why;
  };
  const zstd_frame sound = frames[1];
  const std::string place = fmt::format("refused: has a frame at byte {}", sound.file_at);
  frames[1].archive_bytes = 999;  // a decompression bomb
  CHECK(refused() == fmt::format("{} of {} bytes that cannot be decompressed to the 999 bytes that its seek table promises: Destination buffer is too small",
                                 place, sound.file_bytes));
  frames[1].archive_bytes = 1001;
  CHECK(refused() == place + " that decompresses to 1000 bytes, but its seek table says 1001");
  frames[1] = sound;
  frames[1].file_bytes -= 1;
  CHECK(refused().starts_with(fmt::format("{} of {} bytes that cannot be decompressed", place, sound.file_bytes - 1)));
  frames[1] = sound;
  frames[1].checksum ^= 1;
  CHECK(refused() == fmt::format("{} whose contents have the checksum {:08x}, but its seek table says {:08x}: damaged", place, sound.checksum,
                                 sound.checksum ^ 1U));
  frames[1].has_checksum = 0;
  CHECK(refused() == text.substr(1500, 10));
  frames[1] = sound;
  file.text[sound.file_at] ^= 1;
  reader = {};
  CHECK(refused().starts_with(fmt::format("{} of {} bytes that cannot be decompressed", place, sound.file_bytes)));
}
