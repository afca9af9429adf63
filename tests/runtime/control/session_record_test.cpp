#include "runtime/control/session_record.hpp"

#include "runtime/control/socket_place.hpp"
#include "tests/runtime/control/runtime_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

using namespace penstock;
using namespace penstock::control;
using penstock::testing::runtime_folder;
using namespace std::chrono_literals;

namespace {

// 2026-11-24 18:33:44.123 UTC
const auto start = std::chrono::system_clock::time_point(1795545224123ms);

session_record made(const std::string& session, std::chrono::system_clock::time_point when = start,
                    int pid = 17) {
  auto record = session_record::create(session, pid, when);
  REQUIRE(record);
  return std::move(*record);
}

/// A session that has ended.
void leave(const std::string& session, std::chrono::system_clock::time_point when,
           const std::string& text = "{}\n") {
  session_record record = made(session, when);
  REQUIRE(record.append(text));
}

}  // namespace

TEST_CASE("a record is private, names session, time and process, and keeps the appended lines") {
  const runtime_folder here;
  session_record record = made("photos");
  CHECK(record.path().filename() == "photos@20261124T183344.123-17.record");
  struct stat facts {};
  REQUIRE(::stat(record.path().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0600);
  REQUIRE(record.append("one\ntwo\n"));
  REQUIRE(record.append("three\n"));
  CHECK(read_record(record.path()).value() == std::vector<std::string>{"one", "two", "three"});
  CHECK(record.bytes() == 14);
}

TEST_CASE("an incomplete last line is not read") {
  const runtime_folder here;
  session_record record = made("photos");
  REQUIRE(record.append("one\ntw"));
  CHECK(read_record(record.path()).value() == std::vector<std::string>{"one"});
}

TEST_CASE("a process's parent adds its end to the records of that process alone, and their times stay") {
  const runtime_folder here;
  using std::chrono::hours;
  const auto then = std::filesystem::file_time_type::clock::now() - hours(1);
  const auto finished = [](const char* name, int pid, std::filesystem::file_time_type when) {
    session_record record = session_record::create(name, pid, start).value();
    REQUIRE(record.append("one\ntor"));
    record.finish();
    std::filesystem::last_write_time(record.path(), when);
    return record.path();
  };
  const auto its = finished("victim", 18, then);
  const auto other = finished("other", 118, then);
  const auto of_an_earlier_process = finished("earlier", 18, then - hours(24));
  const session_record live = session_record::create("live", 18, start).value();
  const auto before = std::filesystem::last_write_time(its);
  note_process_end(18, std::chrono::system_clock::now() - hours(2), "SIGKILL");
  CHECK(read_record(its).value() == std::vector<std::string>{"one", "tor", R"({"process_ended":{"how":"SIGKILL"}})"});
  CHECK(read_record(other).value() == std::vector<std::string>{"one"});
  CHECK(read_record(of_an_earlier_process).value() == std::vector<std::string>{"one"});
  CHECK(read_record(live.path()).value().empty());
  CHECK(std::filesystem::last_write_time(its) == before);
}

TEST_CASE("a rewritten record has the new lines under the same name, and accepts more") {
  const runtime_folder here;
  session_record record = made("photos");
  REQUIRE(record.append("one\ntwo\n"));
  REQUIRE(record.rewrite("two\n"));
  REQUIRE(record.append("three\n"));
  CHECK(read_record(record.path()).value() == std::vector<std::string>{"two", "three"});
  REQUIRE(find_records().size() == 1);
  CHECK(find_records()[0].live);
}

TEST_CASE("two sessions with one name that start in the same millisecond have two records") {
  const runtime_folder here;
  const session_record one = made("photos");
  const session_record other = made("photos");
  CHECK(one.path() != other.path());
}

TEST_CASE("a record is live until its session has ended or its process is gone") {
  const runtime_folder here;
  session_record record = made("photos");
  CHECK(find_records().at(0).live);
  CHECK(find_records().at(0).session == "photos");
  SECTION("its session ends, although a forked child still has the descriptor") {
    record.finish();
    CHECK_FALSE(find_records().at(0).live);
  }
  SECTION("its process is killed") {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto its = session_record::create("victim", 18, start);
      ::raise(SIGKILL);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    for (const found_record& r : find_records()) CHECK(r.live == (r.session == "photos"));
    CHECK(find_records().size() == 2);
  }
}

TEST_CASE("records are listed from the newest to the oldest, whatever their names") {
  const runtime_folder here;
  leave("b", start + 2s);
  leave("a", start + 3s);
  leave("c", start + 1s);
  std::string order;
  for (const found_record& r : find_records()) order += r.session;
  CHECK(order == "abc");
}

TEST_CASE("many records of one name displace each other, the oldest first, and not those of other names") {
  const runtime_folder here;
  for (std::size_t i = 0; i < records_kept + 3; ++i) leave("photos", start + i * 1s);
  leave("other", start - 1h);
  CHECK(prune_records() == 4);
  CHECK(find_records().size() == records_kept);
  CHECK(find_records().front().id.starts_with("photos@20261124T183450.123"));
  CHECK(find_records().back().session == "other");
}

TEST_CASE("among names with as many records, the oldest record is removed") {
  const runtime_folder here;
  leave("photos", start);
  for (std::size_t i = 0; i < records_kept; ++i) leave("pool" + std::to_string(i), start + 1min);
  CHECK(prune_records() == 1);
  for (const found_record& r : find_records()) CHECK(r.session.starts_with("pool"));
}

TEST_CASE("large records of one name make room for each other, and not for small ones of another name") {
  const runtime_folder here;
  leave("small", start - 1h);
  for (int i = 0; i < 4; ++i) leave("large", start + i * 1s, std::string(records_bytes_kept / 3, 'x'));
  CHECK(prune_records() == 2);
  CHECK(find_records().back().session == "small");
}

TEST_CASE("large records make room for newer ones") {
  const runtime_folder here;
  const std::string large(records_bytes_kept / 3, 'x');
  for (int i = 0; i < 4; ++i) leave("s" + std::to_string(i), start + i * 1s, large);
  CHECK(prune_records() == 1);
  CHECK(find_records().back().session == "s1");
}

TEST_CASE("the record of a live session is never removed, and the leftovers of a killed rewrite are") {
  const runtime_folder here;
  const session_record live = made("photos", start - 1h);
  for (std::size_t i = 0; i < records_kept + 5; ++i) leave("s" + std::to_string(i), start);
  std::ofstream(live.path().native() + ".new") << "half";
  prune_records();
  CHECK(std::filesystem::exists(live.path()));
  CHECK_FALSE(std::filesystem::exists(live.path().native() + ".new"));
}

TEST_CASE("files that are not records are left alone") {
  const runtime_folder here;
  leave("photos", start);
  std::ofstream(socket_folder() / "photos.sock") << "";
  std::ofstream(socket_folder() / "notes.txt") << "";
  prune_records();
  CHECK(std::filesystem::exists(socket_folder() / "photos.sock"));
  CHECK(std::filesystem::exists(socket_folder() / "notes.txt"));
  CHECK(find_records().size() == 1);
}
