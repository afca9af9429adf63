#include "tools/penstock/jobs/map_journal.hpp"

#include "tools/penstock/jobs/job_outcome.hpp"

#include <catch2/catch_test_macros.hpp>
#include <stdlib.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

using namespace penstock;
using namespace penstock::cli;

namespace {

const std::string work = R"({"function":"f"})";

struct folder {
  std::filesystem::path path;
  folder() {
    char name[] = "/tmp/penstock-journal-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string file() const { return path / "journal"; }
  [[nodiscard]] std::string text() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& text) const { std::ofstream(file(), std::ios::binary) << text; }
};

std::string line_of(std::uint64_t index, const std::string& result = "1",
                    job_status status = job_status::ok) {
  job_outcome outcome;
  outcome.status = status;
  outcome.attempts = 1;
  outcome.result = result;
  return output_line(index, outcome, "null");
}

std::unique_ptr<map_journal> opened(const folder& f) {
  auto journal = map_journal::open(f.file(), work);
  REQUIRE(journal);
  return std::move(*journal);
}

}  // namespace

TEST_CASE("a job in the journal is found by the next run, with its output line") {
  const folder f;
  {
    const auto journal = opened(f);
    CHECK(journal->jobs() == 0);
    CHECK_FALSE(journal->find(0)->has_value());
    REQUIRE(journal->append(0xabc, line_of(5, R"("x")")));
    REQUIRE(journal->append(0xdef, line_of(2, "2", job_status::exception)));
    REQUIRE(journal->sync());
  }
  const auto journal = opened(f);
  CHECK(journal->jobs() == 2);
  CHECK(journal->end() == 6);
  CHECK(journal->unreadable() == 0);
  const auto five = journal->find(5)->value();
  CHECK(five.index == 5);
  CHECK(five.hash == 0xabc);
  CHECK(five.status == job_status::ok);
  CHECK(five.output == line_of(5, R"("x")"));
  CHECK(journal->find(2)->value().status == job_status::exception);
  for (const std::uint64_t i : {0, 1, 3, 4, 6, 1000000}) CHECK_FALSE(journal->find(i)->has_value());
}

TEST_CASE("the later of two lines of a job counts") {
  const folder f;
  REQUIRE(opened(f)->append(1, line_of(0, "1", job_status::timed_out)));
  REQUIRE(opened(f)->append(1, line_of(0, "2")));
  const auto journal = opened(f);
  CHECK(journal->jobs() == 1);
  CHECK(journal->find(0)->value().output == line_of(0, "2"));
}

TEST_CASE("wherever a crash cuts the last line, earlier lines are known and the next run continues") {
  const folder f;
  REQUIRE(opened(f)->append(1, line_of(0)));
  const std::string before = f.text();
  REQUIRE(opened(f)->append(2, line_of(1)));
  const std::string whole = f.text();
  for (std::size_t cut = before.size() + 1; cut < whole.size(); ++cut) {
    f.write(whole.substr(0, cut));
    const auto journal = opened(f);
    CHECK(journal->torn_bytes() == cut - before.size());
    CHECK(journal->jobs() == 1);
    CHECK_FALSE(journal->find(1)->has_value());
    REQUIRE(journal->append(2, line_of(1)));
    CHECK(f.text() == whole);
  }
}

TEST_CASE("wherever a crash cuts off the first line, the journal starts again") {
  const folder f;
  static_cast<void>(opened(f));
  const std::string whole = f.text();
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    f.write(whole.substr(0, cut));
    CHECK(opened(f)->jobs() == 0);
    CHECK(f.text() == whole);
  }
}

TEST_CASE("a garbled line in the middle is counted, and its job is unknown") {
  const folder f;
  {
    const auto journal = opened(f);
    for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(journal->append(i, line_of(i)));
  }
  std::string text = f.text();
  const std::size_t at = text.find(R"("index":1)");
  text[at] = '\0';
  f.write(text);
  const auto journal = opened(f);
  CHECK(journal->unreadable() == 1);
  CHECK(journal->jobs() == 2);
  CHECK_FALSE(journal->find(1)->has_value());
  CHECK(journal->find(2)->has_value());
}

TEST_CASE("a journal of other work is refused and not changed") {
  const folder f;
  REQUIRE(opened(f)->append(1, line_of(0)));
  const std::string before = f.text();
  const auto other = map_journal::open(f.file(), R"({"function":"a much longer name of another function"})");
  REQUIRE_FALSE(other);
  CHECK(other.error().code == errc::state_mismatch);
  CHECK(other.error().message.find("--function 'f'") != std::string::npos);
  CHECK(f.text() == before);
}

TEST_CASE("a file that is not a journal is refused and not changed") {
  const folder f;
  for (const std::string& text :
       {std::string("precious"), std::string("precious\n"), std::string("{}\n"),
        std::string("{\"schema\":\"x\"}\n"), std::string(3 << 20, 'p'), std::string("\n")}) {
    f.write(text);
    const auto refused = map_journal::open(f.file(), work);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find("is not a journal") != std::string::npos);
    CHECK(f.text() == text);
  }
  CHECK(map_journal::open("/dev/null", work).error().message.find("not a regular file") != std::string::npos);
  CHECK(map_journal::open("/nowhere/journal", work).error().message.find("'/nowhere/journal'") !=
        std::string::npos);
}

TEST_CASE("two runs cannot use one journal at a time") {
  const folder f;
  const auto first = opened(f);
  const auto second = map_journal::open(f.file(), work);
  REQUIRE_FALSE(second);
  CHECK(second.error().message.find("is writing the journal") != std::string::npos);
}

TEST_CASE("lines longer than one read are found") {
  const folder f;
  const std::string large = '"' + std::string(3 << 20, 'x') + '"';
  {
    const auto journal = opened(f);
    REQUIRE(journal->append(1, line_of(0, large)));
    REQUIRE(journal->append(2, line_of(1)));
  }
  const auto journal = opened(f);
  CHECK(journal->find(0)->value().output == line_of(0, large));
  CHECK(journal->find(1)->value().output == line_of(1));
}

TEST_CASE("a line that does not fit on the disk leaves the journal unchanged") {
  const folder f;
  const auto journal = opened(f);
  REQUIRE(journal->append(1, line_of(0)));
  const std::string before = f.text();
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const rlimit tight{before.size() + 20, usual.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const auto refused = journal->append(2, line_of(1));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("writing the journal") != std::string::npos);
  CHECK(f.text() == before);
  REQUIRE(journal->append(3, line_of(2)));
  CHECK(f.text() == before + journal_line(3, line_of(2)));
}

TEST_CASE("only lines that the journal itself writes are accepted") {
  const std::string line = journal_line(0x1234, line_of(7));
  const std::string_view good(line.data(), line.size() - 1);
  REQUIRE(parse_journal_line(good));
  CHECK(parse_journal_line(good)->hash == 0x1234);
  for (std::size_t cut = 0; cut < good.size(); ++cut) CHECK_FALSE(parse_journal_line(good.substr(0, cut)));
  CHECK_FALSE(parse_journal_line(line_of(7)));
  CHECK_FALSE(parse_journal_line(R"({"line":"0000000000001234","index":7,"status":"okay","attempts":1})"));
  CHECK_FALSE(parse_journal_line(R"({"line":"000000000000123g","index":7,"status":"ok"})"));
}

TEST_CASE("a journaled command has its exit code, and a function's result has none") {
  const auto entry = [](const std::string& result) { return parse_journal_line(journal_line(7, line_of(5, result)).substr(0, journal_line(7, line_of(5, result)).size() - 1)); };
  CHECK(entry(R"({"exit":3,"stdout":"","stderr":""})")->exit_code == 3);
  CHECK(entry(R"({"exit":0,"stdout":"{\"exit\":4","stderr":""})")->exit_code == 0);
  CHECK_FALSE(entry(R"({"other":{"exit":3}})")->exit_code);
  CHECK_FALSE(entry("1")->exit_code);
}

TEST_CASE("the error about a journal of other work says what differs and what to do") {
  const folder f;
  static_cast<void>(opened(f));
  const auto refused = map_journal::open(f.file(), R"({"function":"g"})");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "the journal '" + f.file() + "' belongs to other work: it was written for --function 'f', but this run has --function 'g'; give another --journal, or remove it");
  CHECK(difference_of_work(R"({"command":"a {}","fail_on_exit":true})", R"({"command":"b {}","fail_on_exit":true})") == "written for --command 'a {}', but this run has --command 'b {}'");
  CHECK(difference_of_work(R"({"command":"a","fail_on_exit":true})", R"({"command":"a","fail_on_exit":false})") ==
        "written with --fail-on-exit, but this run is without --fail-on-exit");
  CHECK(difference_of_work(R"({"function":"f"})", R"({"command":"a","fail_on_exit":true})") == "written for --function 'f', but this run has --command 'a'");
  CHECK(difference_of_work(R"({"function":"f"})", R"({"function":"f","program":"p"})") == "written without --program, but this run is with --program 'p'");
  CHECK(difference_of_work(R"({"function":"f"})", R"({"function":"f","later":1})") == "written by another version of penstock");
}
