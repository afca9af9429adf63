#include "runtime/dataset/tar/tar_parser.hpp"

#include "runtime/dataset/tar/member_name.hpp"
#include "tests/runtime/dataset/tar/archives.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <span>

using namespace penstock;
using testing::append_typed;
using testing::archive_of;
using testing::pax_record;
using testing::sum_header;

namespace {

struct walked {
  struct member {
    std::string name;
    tar_kind kind;
    std::string contents;
    bool operator==(const member&) const = default;
  };
  std::vector<member> members;
  std::string refusal;
  bool has_end_marker = false;
  std::uint64_t bytes_after_end = 0;
  bool operator==(const walked&) const = default;
};

/// `piece`: how many bytes take_plain() gets at a time; 0 for none.
walked walk(const std::string& archive, std::uint64_t piece) {
  walked all;
  tar_parser parser(archive.size());
  const auto add = [&](const tar_member& member) {
    all.members.push_back({std::string(member.name), member.kind, archive.substr(member.data_at, member.size)});
  };
  const auto bytes_from = [&](std::uint64_t at, std::uint64_t most) {
    return std::as_bytes(std::span(archive)).subspan(at, std::min<std::uint64_t>(most, archive.size() - at));
  };
  while (const auto range = parser.wanted()) {
    if (parser.take_plain(bytes_from(range->at, piece), archive.size(), add)) continue;
    const auto member = parser.take(bytes_from(range->at, range->bytes));
    if (!member) {
      all.refusal = member.error().message;
      return all;
    }
    if (*member) add(**member);
  }
  all.has_end_marker = parser.has_end_marker();
  all.bytes_after_end = parser.bytes_after_end();
  return all;
}

/// Plain members must be found like all others.
walked walk(const std::string& archive) {
  const walked all = walk(archive, 0);
  for (const std::uint64_t piece : {512U, 700U, 4096U, 1U << 20U}) CHECK(walk(archive, piece) == all);
  return all;
}

std::string only_name(const std::string& archive) {
  const walked all = walk(archive);
  return all.members.size() == 1 && all.refusal.empty() ? all.members[0].name : "refused: " + all.refusal;
}

}  // namespace

TEST_CASE("members of a ustar archive are found with their contents") {
  const walked all =
      walk(archive_of({{"a/1.jpg", "picture"}, {"a/1.cls", ""}, {"2.jpg", std::string(1500, 'x')}}));
  CHECK(all.refusal.empty());
  CHECK(all.has_end_marker);
  REQUIRE(all.members.size() == 3);
  CHECK(all.members[0].name == "a/1.jpg");
  CHECK(all.members[0].contents == "picture");
  CHECK(all.members[1].contents.empty());
  CHECK(all.members[2].contents == std::string(1500, 'x'));
}

TEST_CASE("plain members are taken without take(), up to where reading should stop") {
  const std::string archive = archive_of({{"1.jpg", "picture"}, {"1.cls", "7"}, {"2.jpg", "other"}});
  tar_parser parser(archive.size());
  std::vector<std::string> names;
  const auto all = std::as_bytes(std::span(archive));
  const auto note = [&](const tar_member& member) { names.emplace_back(member.name); };
  CHECK_FALSE(parser.take_plain(all.first(511), archive.size(), note));
  CHECK(parser.take_plain(all, 1500, note));  // after the second header, before the third
  CHECK(names == std::vector<std::string>{"1.jpg", "1.cls"});
  REQUIRE(parser.wanted());
  CHECK(parser.wanted()->at == 2048);
  CHECK(parser.take_plain(all.subspan(2048), archive.size(), note));
  CHECK(names.back() == "2.jpg");
  CHECK_FALSE(parser.take_plain(all.subspan(3072), archive.size(), note));  // the end marker
  CHECK_FALSE(parser.has_end_marker());
}

TEST_CASE("an archive without its end marker is read, and the missing marker is reported") {
  std::string archive;
  append_tar_member(archive, "1.jpg", "picture");
  CHECK(walk(archive).members.size() == 1);
  CHECK_FALSE(walk(archive).has_end_marker);
  archive.resize(512 + 7);  // without the padding of the last member
  CHECK(walk(archive).members.size() == 1);
}

TEST_CASE("bytes after the end marker are counted unless they are padding") {
  std::string archive = archive_of({{"1.jpg", "x"}});
  archive.resize(archive.size() + 10240);
  CHECK(walk(archive).bytes_after_end == 0);
  archive += std::string(100 * 1024, 'y');
  CHECK(walk(archive).bytes_after_end == 512 + 10240 + 100 * 1024);
}

TEST_CASE("long names are read in all three notations") {
  const std::string name = std::string(90, 'd') + "/" + std::string(150, 'n') + ".jpg";
  CHECK(only_name(archive_of({{name, "x"}})) == name);

  std::string pax;
  append_typed(pax, 'x', "PaxHeaders/1", pax_record("mtime", "1.5") + pax_record("path", name));
  append_tar_member(pax, "short", "x");
  CHECK(only_name(pax) == name);

  std::string ustar;
  append_tar_member(ustar, "1.jpg", "x");
  ustar.replace(345, 155, std::string(155, 'p'));
  sum_header(ustar, 0);
  CHECK(only_name(ustar) == std::string(155, 'p') + "/1.jpg");
  ustar.replace(257, 8, std::string_view("ustar  \0", 8));  // GNU tar has other fields there
  sum_header(ustar, 0);
  CHECK(only_name(ustar) == "1.jpg");
}

TEST_CASE("sizes are read in octal, in base 256 and from PAX") {
  std::string archive = archive_of({{"1", "12345"}});
  archive.replace(124, 12, std::string_view("\x80\0\0\0\0\0\0\0\0\0\0\5", 12));
  sum_header(archive, 0);
  CHECK(walk(archive).members[0].contents == "12345");
  archive.replace(124, 12, "          5 ");
  sum_header(archive, 0);
  CHECK(walk(archive).members[0].contents == "12345");

  std::string pax;
  append_typed(pax, 'x', "PaxHeaders/1", pax_record("size", "3"));
  append_tar_member(pax, "1", "12345");
  CHECK(walk(pax).members[0].contents == "123");

  std::string large;
  append_tar_header(large, "1", 1ULL << 40U);
  CHECK(walk(large).refusal ==
        "is damaged at offset 0, member '1': it has 1099511627776 bytes, but the archive ends after 0 of them: it was "
        "cut short");
}

TEST_CASE("links, folders, devices and sparse files are recognised, and only contents are skipped") {
  std::string archive;
  append_typed(archive, '5', "folder/");
  append_typed(archive, '1', "hard.jpg");
  append_typed(archive, '2', "soft.jpg");
  append_typed(archive, '3', "device");
  append_typed(archive, 'S', "holes.jpg", "data");
  append_typed(archive, 'x', "p", pax_record("GNU.sparse.name", "real.jpg") + pax_record("path", "made/up"));
  append_tar_member(archive, "short", "data");
  append_typed(archive, '7', "last.jpg", "data");
  const walked all = walk(archive);
  CHECK(all.refusal.empty());
  REQUIRE(all.members.size() == 7);
  const std::vector<tar_kind> kinds{tar_kind::folder, tar_kind::link,   tar_kind::link, tar_kind::other,
                                    tar_kind::sparse, tar_kind::sparse, tar_kind::file};
  for (std::size_t i = 0; i < kinds.size(); ++i) CHECK(all.members[i].kind == kinds[i]);
  CHECK(all.members[5].name == "real.jpg");
  CHECK(all.members[6].contents == "data");
}

TEST_CASE("the hole map of an old sparse member is skipped") {
  std::string archive;
  append_tar_header(archive, "holes.jpg", 4);
  archive[156] = 'S';
  archive[482] = 1;
  sum_header(archive, 0);
  std::string map(1024, '\0');
  map[504] = 1;
  archive += map + "data" + std::string(508, '\0');
  append_tar_member(archive, "next.jpg", "x");
  const walked all = walk(archive);
  REQUIRE(all.members.size() == 2);
  CHECK(all.members[0].contents == "data");
  CHECK(all.members[1].name == "next.jpg");
}

TEST_CASE("damage is refused with its offset and member") {
  const std::string good = archive_of({{"a/1.jpg", std::string(600, 'x')}, {"a/2.jpg", "y"}});
  std::string damaged = good;
  damaged[512 + 1024 + 3] = '?';
  CHECK(walk(damaged).refusal.starts_with("is damaged at offset 1536: the header says that its checksum is "));
  CHECK(walk(good.substr(0, 700)).refusal ==
        "is damaged at offset 0, member 'a/1.jpg': it has 600 bytes, but the archive ends after 188 of them: it was cut "
        "short");
  CHECK(walk(good.substr(0, 1600)).refusal ==
        "is damaged at offset 1536: the archive ends 64 bytes into a header: it was cut short");
  CHECK(walk("").refusal == "is empty: not a tar archive");
  CHECK(
      walk(std::string(2000, 'x')).refusal.starts_with("is damaged at offset 0: the header's checksum is not a number"));

  std::string size = good;
  size.replace(124, 12, "12x4567     ");
  sum_header(size, 0);
  CHECK(walk(size).refusal == "is damaged at offset 0, member 'a/1.jpg': the header's size is not a number");

  std::string bomb;
  append_tar_header(bomb, "././@LongLink", 1ULL << 33U);
  bomb[156] = 'L';
  sum_header(bomb, 0);
  CHECK(walk(bomb).refusal ==
        "is damaged at offset 0, member '././@LongLink': a name or PAX header of 8589934592 bytes, but at most 1048576 are read");
  for (const char* const record : {"x", "5 path=1\n", "99 path=1\n", "10 path=1", "9 nothing\n"}) {
    std::string pax;
    append_typed(pax, 'x', "p", record);
    append_tar_member(pax, "short", "data");
    CHECK(walk(pax).refusal == "is damaged at offset 512, member 'p': its PAX record cannot be read");
  }
}

TEST_CASE("a truncated archive is read up to the cut, or refused") {
  std::string archive;
  append_typed(archive, 'x', "p", pax_record("path", "a/1.jpg"));
  append_tar_member(archive, "short", std::string(600, 'x'));
  append_tar_member(archive, std::string(200, 'n'), "y");
  const std::size_t whole = walk(archive).members.size();
  for (std::size_t size = 0; size < archive.size(); ++size) {
    const walked all = walk(archive.substr(0, size));
    if (!all.refusal.empty()) continue;
    CHECK(all.members.size() <= whole);
    CHECK_FALSE(all.has_end_marker);
  }
}

TEST_CASE("the key of a member is its path up to the first dot of the last part") {
  const auto split = [](std::string_view name) {
    const member_name parts = split_member_name(name);
    return std::pair(std::string(parts.key), std::string(parts.extension));
  };
  CHECK(split("1.jpg") == std::pair<std::string, std::string>("1", "jpg"));
  CHECK(split("a.b/c/1.seg.PNG") == std::pair<std::string, std::string>("a.b/c/1", "seg.PNG"));
  CHECK(split("/abs/../1.jpg") == std::pair<std::string, std::string>("/abs/../1", "jpg"));
  for (const char* const none : {"", "1", "a.b/1", "a/.hidden.jpg", ".jpg", "a/"})
    CHECK(split(none).first.empty());
}
