#include "runtime/dataset/tar/shard_list.hpp"

#include "runtime/dataset/listing/path_pattern.hpp"

#include "tests/runtime/dataset/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <filesystem>

using namespace penstock;
using testing::temporary_folder;

namespace {

using names = std::vector<std::string>;

names expanded(std::string_view pattern) {
  const auto all = expand_braces(pattern);
  return all ? *all : names{"refused: " + all.error().message};
}

}  // namespace

TEST_CASE("braces expand as a shell expands them") {
  CHECK(expanded("plain") == names{"plain"});
  CHECK(expanded("t-{000..002}.tar") == names{"t-000.tar", "t-001.tar", "t-002.tar"});
  CHECK(expanded("{8..11}") == names{"8", "9", "10", "11"});
  CHECK(expanded("{08..11}") == names{"08", "09", "10", "11"});
  CHECK(expanded("{3..1}") == names{"3", "2", "1"});
  CHECK(expanded("{0..9..4}") == names{"0", "4", "8"});
  CHECK(expanded("{a,b}/{0..1}") == names{"a/0", "a/1", "b/0", "b/1"});
  CHECK(expanded("{a,b{1..2}}x") == names{"ax", "b1x", "b2x"});
  CHECK(expanded("{a,}x") == names{"ax", "x"});
  for (const char* const plain : {"{a}", "{}", "{1..}", "{1..x}", "{-1..2}", "{0..3..0}", "a{b", "a}b"})
    CHECK(expanded(plain) == names{plain});
  CHECK(expanded("{0..1000000}") ==
        names{"refused: '{0..1000000}' expands to 1000001 names: at most 1000000 are allowed"});
  CHECK(expanded("{0..9999}{0..9999}") ==
        names{"refused: '{0..9999}{0..9999}' expands to more than 1000000 names"});
}

TEST_CASE("shards are one file, a folder of files, or a pattern in its order") {
  const temporary_folder folder;
  for (const char* const name : {"b.tar", "a.tar", "c.TAR", "readme.txt", "x/0.tar", "y/0.tar"})
    folder.write(name, "");
  const auto listed = [&](std::string_view path) {
    const auto list = list_shards(folder.path(path));
    if (!list) return names{"refused: " + list.error().message};
    CHECK(list->folder == folder.path());
    CHECK(folder_of_pattern(folder.path(path)) == list->folder);
    return list->names;
  };
  CHECK(listed("a.tar") == names{"a.tar"});
  CHECK(listed("") == names{"a.tar", "b.tar", "c.TAR"});
  CHECK(listed("*.tar") == names{"a.tar", "b.tar"});
  CHECK(listed("{b,a}.tar") == names{"b.tar", "a.tar"});
  CHECK(listed("{y,x}/*.tar") == names{"y/0.tar", "x/0.tar"});
  CHECK(list_shards(folder.path())->notices.size() == 1);
}

TEST_CASE("an existing path is taken literally") {
  const temporary_folder folder;
  folder.write("t-{0..3}.tar", "");
  CHECK(list_shards(folder.path("t-{0..3}.tar"))->names == names{"t-{0..3}.tar"});
}

TEST_CASE("a line of a list is taken literally if it exists, and is a pattern otherwise") {
  const temporary_folder folder;
  for (const char* const name : {"{a,b}0.tar", "a0.tar", "b0.tar", "a1.tar", "b1.tar", "[c]*.tar", "c1.tar"}) folder.write(name, "");
  folder.write("l.txt", "{a,b}0.tar\n{b,a}1.tar\n[c]*.tar\n");
  const auto list = list_shards(folder.path("l.txt"));
  REQUIRE(list);
  CHECK(list->names == names{"{a,b}0.tar", "b1.tar", "a1.tar", "[c]*.tar"});
}

TEST_CASE("files of a folder whose names begin with a dot are left out, with their number in a notice") {
  const temporary_folder folder;
  for (const char* const name : {"a.tar", ".b.tar", ".c.tar", ".notes.txt", ".x/d.tar"}) folder.write(name, "");
  const auto two = list_shards(folder.path());
  REQUIRE(two);
  CHECK(two->names == names{"a.tar"});
  CHECK(two->notices == names{"2 files in '" + folder.path() + "' are ignored: their names begin with a dot"});
  std::filesystem::remove(folder.path(".b.tar"));
  CHECK(list_shards(folder.path())->notices == names{"1 file in '" + folder.path() + "' is ignored: its name begins with a dot"});
}

TEST_CASE("shards that are missing, compressed or listed twice are refused and named") {
  const temporary_folder folder;
  const auto refusal = [&](std::string_view path) { return list_shards(folder.path(path)).error().message; };
  CHECK(refusal("none.tar") == fmt::format("the dataset '{}' does not exist", folder.path("none.tar")));
  CHECK(refusal("*.tar") == fmt::format("no shard is named '{}'", folder.path("*.tar")));
  CHECK(refusal("") == fmt::format("no shards (*.tar, *.tar.zst) in '{}'", folder.path()));
  folder.write("a.tar.gz", "");
  CHECK(refusal("") ==
        fmt::format("'{}' is named as if compressed with gzip: only zstd is read (.tar.zst with a seek table); "
                    "decompress them",
                    folder.path("a.tar.gz")));
  folder.write("a.tar", "");
  CHECK(refusal("{a,a}.tar") == fmt::format("the shard '{}' is listed twice", folder.path("a.tar")));
  CHECK(list_shards("").error().message.starts_with("no path is given"));
}

TEST_CASE(
    "shards compressed with zstd are listed, but refused together with the shards they were made from") {
  const temporary_folder folder;
  for (const char* const name : {"a.tar", "b.tar.zst", "c.tzst", "d.TAR.ZST", "e.zst"}) folder.write(name, "");
  CHECK(list_shards(folder.path())->names == names{"a.tar", "b.tar.zst", "c.tzst", "d.TAR.ZST"});
  CHECK(list_shards(folder.path("*.tar.zst"))->names == names{"b.tar.zst"});
  folder.write("b.tar", "");
  CHECK(list_shards(folder.path()).error().message ==
        "'b.tar' and 'b.tar.zst' are both listed, so each sample would be delivered twice: name the shards by a pattern, such as '*.tar.zst'");
  CHECK(list_shards(folder.path("*.tar.zst"))->names == names{"b.tar.zst"});
  const auto twice = [&](std::string_view pattern) {
    const auto list = list_shards(folder.path(pattern));
    return list ? "" : list.error().message.substr(0, list.error().message.find(','));
  };
  for (const char* const name : {"c.TAR", "x.tar.zst", "x.TZST", "y.tar", "z/y.tar"}) folder.write(name, "");
  CHECK(twice("c.*") == "'c.TAR' and 'c.tzst' are both listed");
  CHECK(twice("x.*") == "'x.TZST' and 'x.tar.zst' are both listed");
  CHECK(twice("{,z/}y.tar").empty());
  CHECK(stem_of_shard("z/a.b.Tar.Zst") == "z/a.b");
  CHECK(stem_of_shard("a.zst") == "a.zst");
}
