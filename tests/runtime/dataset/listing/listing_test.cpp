#include "runtime/dataset/listing/listing.hpp"

#include "tests/runtime/dataset/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

using namespace penstock;
using testing::temporary_folder;

namespace {

std::vector<std::string> names(const listing& list) {
  std::vector<std::string> all;
  for (const listed_file& file : list.files) all.emplace_back(list.name_of(file));
  return all;
}

std::string refusal(const std::string& path) {
  const auto list = list_image_folder(path);
  return list ? std::string() : list.error().message;
}

using strings = std::vector<std::string>;

}  // namespace

TEST_CASE("folders are classes, even empty ones, and classes and samples are in byte order of their paths") {
  const temporary_folder folder;
  folder.write("b/2.jpg", "xx");
  folder.write("b/10.PNG", "x");
  folder.write("b/sub/deep/1.jpeg", "xyz");
  folder.write("b/sub-1.jpg", "");
  folder.write("B/x.jpg", "x");
  folder.make_folder("empty");
  folder.write("b/notes.txt", "ignored");
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(list->classes == strings{"B", "b", "empty"});
  CHECK(names(*list) == strings{"B/x.jpg", "b/10.PNG", "b/2.jpg", "b/sub-1.jpg", "b/sub/deep/1.jpeg"});
  CHECK(list->files[0].label == 0);
  CHECK(list->files[4].label == 1);
  CHECK(list->files[4].size == 3);
  CHECK(list->samples == 5);
  CHECK(list->notices.empty());
}

TEST_CASE("without class folders all pictures are one class") {
  const temporary_folder folder;
  folder.write("z.jpg", "x");
  folder.write("a.png", "x");
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(list->classes == strings{"."});
  CHECK(names(*list) == strings{"a.png", "z.jpg"});
}

TEST_CASE("pictures next to class folders are ignored with one notice") {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  folder.write("x.jpg", "x");
  folder.write("y.png", "x");
  folder.write("readme.txt", "x");
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(names(*list) == strings{"a/1.jpg"});
  REQUIRE(list->notices.size() == 1);
  CHECK(list->notices[0] ==
        fmt::format(
            "2 pictures directly in '{}' are ignored: only pictures in class folders are read",
            folder.path()));
}

TEST_CASE("pictures in unsupported formats are counted by extension, the most frequent first") {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  folder.write("a/2.tiff", "x");
  folder.write("a/deep/3.HEIC", "x");
  folder.write("b/4.heic", "x");
  folder.write("b/5.webp", "x");
  folder.write("b/.hidden.heic", "x");
  folder.write("b/notes.txt", "x");
  folder.write("5.gif", "x");
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(names(*list) == strings{"a/1.jpg", "b/5.webp"});
  CHECK(list->notices == strings{"4 files skipped: .heic 2, .gif 1, .tiff 1 (JPEG, PNG and WebP are read)"});
}

TEST_CASE("for a folder with only unreadable pictures, the error names their formats") {
  const temporary_folder folder;
  folder.write("a/1.avif", "x");
  CHECK(refusal(folder.path()).find("; 1 file skipped: .avif 1") != std::string::npos);
}

TEST_CASE("files and folders whose names begin with a dot are ignored") {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  folder.write("a/.2.jpg", "x");
  folder.write("a/.thumbs/3.jpg", "x");
  folder.write(".git/4.jpg", "x");
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(list->classes == strings{"a"});
  CHECK(names(*list) == strings{"a/1.jpg"});
}

TEST_CASE("links are followed, and a dangling link is a sample with the link's name") {
  const temporary_folder folder;
  const temporary_folder elsewhere;
  elsewhere.write("pictures/1.jpg", "12345");
  folder.write("a/0.jpg", "x");
  folder.link("a/2.jpg", "nowhere.jpg");
  folder.link("a/3.txt", "nowhere");
  folder.link("linked", elsewhere.path("pictures"));
  folder.link("a/9.jpg", elsewhere.path("pictures/1.jpg"));
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(list->classes == strings{"a", "linked"});
  CHECK(names(*list) == strings{"a/0.jpg", "a/2.jpg", "a/9.jpg", "linked/1.jpg"});
  CHECK(list->files[1].size == 0);
  CHECK(list->files[2].size == 5);
}

TEST_CASE("a folder that links back to itself is entered once, with a notice") {
  const temporary_folder folder;
  folder.write("a/b/1.jpg", "x");
  folder.link("a/b/up", "..");
  folder.link("a/top", "..");
  folder.link("a/twin", "b");  // no loop: the same folder seen twice is listed twice
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(names(*list) == strings{"a/b/1.jpg", "a/twin/1.jpg"});
  REQUIRE(list->notices.size() == 1);
  CHECK(list->notices[0].find("not following") != std::string::npos);
}

TEST_CASE("names may contain any bytes") {
  const temporary_folder folder;
  const std::string odd = "caf\xe9 \n\xff.jpg";
  folder.write("\xfe/" + odd, "x");
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(names(*list) == strings{"\xfe/" + odd});
}

TEST_CASE("a FIFO with a picture's name is a sample, and loading it fails with its name") {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  REQUIRE(::mkfifo(folder.path("a/2.jpg").c_str(), 0600) == 0);
  const auto list = list_image_folder(folder.path());
  REQUIRE(list);
  CHECK(list->samples == 2);
}

TEST_CASE("paths that do not lead to a dataset are refused, and the error says what was expected") {
  const temporary_folder folder;
  CHECK(refusal(folder.path("gone")) ==
        fmt::format("the dataset folder '{}' does not exist", folder.path("gone")));
  folder.write("file", "x");
  CHECK(refusal(folder.path("file")) ==
        fmt::format("'{}' is not a folder: a dataset of type image-folder needs a folder",
                    folder.path("file")));
  CHECK(refusal("") == "no path is given: set [dataset] path to a folder of pictures");
  CHECK(
      refusal(folder.path()) ==
      fmt::format(
          "no pictures in '{}': looked for names that end in .jpg, .jpeg, .png or .webp and do not begin with a dot",
          folder.path()));
  folder.make_folder("a");
  CHECK(refusal(folder.path()).find("went through 1 class folder and") != std::string::npos);
}

TEST_CASE("an unreadable folder is an error and is not skipped") {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  folder.write("a/closed/2.jpg", "x");
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(folder.path("a/closed").c_str(), 0) == 0);
  const bool root = ::geteuid() == 0;
  if (root) REQUIRE(::seteuid(65534) == 0);
  const auto list = list_image_folder(folder.path());
  if (root) REQUIRE(::seteuid(0) == 0);
  REQUIRE(::chmod(folder.path("a/closed").c_str(), 0700) == 0);
  REQUIRE_FALSE(list);
  CHECK(list.error().os_code == EACCES);
  CHECK(list.error().message ==
        fmt::format("the folder '{}' cannot be read: Permission denied", folder.path("a/closed")));
}

TEST_CASE("the fingerprint changes only with names, sizes and classes") {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  folder.write("a/2.jpg", "xx");
  const auto fingerprint = [](const temporary_folder& where) {
    return list_image_folder(where.path())->fingerprint;
  };
  const std::string before = fingerprint(folder);
  CHECK(before.size() == 32);
  CHECK(before == fingerprint(folder));
  folder.write("a/1.jpg", "y");  // other bytes, same size
  folder.write("a/notes", "ignored");
  CHECK(before == fingerprint(folder));
  const temporary_folder copy;
  copy.write("a/1.jpg", "x");
  copy.write("a/2.jpg", "xx");
  CHECK(before == fingerprint(copy));
  copy.make_folder("0");  // an empty class in front shifts all labels
  CHECK(before != fingerprint(copy));
  folder.write("a/1.jpg", "xyz");
  CHECK(before != fingerprint(folder));
}

TEST_CASE("the last progress report of a listing has the total count") {
  const temporary_folder folder;
  for (int i = 0; i < 4200; ++i) folder.write(fmt::format("a/{}.jpg", i), "");
  std::vector<std::uint64_t> steps;
  REQUIRE(list_image_folder(folder.path(), [&](std::uint64_t count) { steps.push_back(count); }));
  CHECK(steps == std::vector<std::uint64_t>{4096, 4200});
}
