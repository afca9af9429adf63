#include "runtime/control/quarantine_file.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <fstream>

using namespace penstock;
using namespace penstock::control;

namespace {

class folder {
 public:
  folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-quarantine-XXXXXX").string();
    top_ = ::mkdtemp(pattern.data());
  }
  ~folder() { std::filesystem::remove_all(top_); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  [[nodiscard]] std::filesystem::path file() const { return top_ / "bad.jsonl"; }

 private:
  std::filesystem::path top_;
};

quarantine_entry entry(const std::string& fingerprint, std::uint64_t sample) {
  quarantine_entry e;
  e.fingerprint = fingerprint;
  e.sample.sample = sample;
  e.sample.path = "cats/tom.jpg";
  e.sample.attempts = 3;
  e.sample.causes = {"SIGSEGV", "SIGSEGV", "hang"};
  e.session = "photos";
  e.unix_ms = 1'700'000'000'125;
  return e;
}

void append_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::app) << text;
}

}  // namespace

TEST_CASE("entries that are appended to a quarantine file are read back complete") {
  const folder place;
  REQUIRE(append_quarantine(place.file(), entry("abc", 17)));
  const auto list = read_quarantine(place.file()).value();
  REQUIRE(list.entries.size() == 1);
  const quarantine_entry& found = list.entries.front();
  CHECK(found.fingerprint == "abc");
  CHECK(found.sample.sample == 17);
  CHECK(found.sample.path == "cats/tom.jpg");
  CHECK(found.sample.attempts == 3);
  CHECK(found.sample.causes == std::vector<std::string>{"SIGSEGV", "SIGSEGV", "hang"});
  CHECK(found.sample.known);
  CHECK(found.session == "photos");
  CHECK(found.unix_ms == 1'700'000'000'125);
}

TEST_CASE("the last line about a sample of a dataset counts") {
  const folder place;
  auto released = entry("abc", 17);
  released.released = true;
  REQUIRE(append_quarantine(place.file(), entry("abc", 17)));
  REQUIRE(append_quarantine(place.file(), entry("xyz", 17)));
  REQUIRE(append_quarantine(place.file(), released));
  const auto list = read_quarantine(place.file()).value();
  REQUIRE(list.entries.size() == 1);
  CHECK(list.entries.front().fingerprint == "xyz");
  REQUIRE(append_quarantine(place.file(), entry("abc", 17)));
  CHECK(read_quarantine(place.file()).value().entries.size() == 2);
}

TEST_CASE("a missing quarantine file counts as empty, and an unreadable or unwritable one is named") {
  const folder place;
  CHECK(read_quarantine(place.file()).value().entries.empty());
  const auto read = read_quarantine(place.file().parent_path());
  REQUIRE_FALSE(read);
  CHECK(read.error().message.find(place.file().parent_path().string()) != std::string::npos);
  const auto nowhere = place.file().parent_path() / "missing" / "bad.jsonl";
  const auto written = append_quarantine(nowhere, entry("abc", 1));
  REQUIRE_FALSE(written);
  CHECK(written.error().message.find("missing") != std::string::npos);
}

TEST_CASE("a file in which no line is an entry is not a quarantine file") {
  const folder place;
  append_text(place.file(), "[dataset]\n{\"schema\":\"penstock.event/1\"}\n");
  const auto refused = read_quarantine(place.file());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "'" + place.file().string() + "' is not a quarantine file: none of its lines is an entry");
  append_text(place.file(), R"({"index": "cats/tom.jpg", "causes": ["hang"], "dataset": "abc"})"
                            "\n");
  CHECK(read_quarantine(place.file()).value().entries.empty());
}

TEST_CASE("a line cut off by a crash affects neither reading nor the next line") {
  const folder place;
  REQUIRE(append_quarantine(place.file(), entry("abc", 1)));
  append_text(place.file(), R"({"schema":"penstock.quara)");
  CHECK(read_quarantine(place.file()).value().entries.size() == 1);
  REQUIRE(append_quarantine(place.file(), entry("abc", 2)));
  const auto list = read_quarantine(place.file()).value();
  CHECK(list.entries.size() == 2);
  REQUIRE(list.notices.size() == 1);
  CHECK(list.notices.front().find("bad.jsonl:2:") != std::string::npos);
}

TEST_CASE("lines that are not entries are skipped and named") {
  const folder place;
  append_text(place.file(), "hello\n[1]\n{}\n{\"schema\":\"penstock.quarantine/1\",\"sample\":-1}\n\n");
  REQUIRE(append_quarantine(place.file(), entry("abc", 17)));
  const auto list = read_quarantine(place.file()).value();
  CHECK(list.entries.size() == 1);
  CHECK(list.notices.size() == 4);
}
