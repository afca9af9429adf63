#include "actors/session/quarantine_keeper.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/base/log.hpp"
#include "runtime/control/quarantine_file.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

using namespace penstock;
using namespace penstock::session;
using namespace std::chrono_literals;

namespace {

class place {
 public:
  place() {
    std::string name = "/tmp/penstock-quarantine-XXXXXX";
    ::mkdtemp(name.data());
    folder_ = name;
  }
  ~place() { std::filesystem::remove_all(folder_); }
  place(const place&) = delete;
  place& operator=(const place&) = delete;
  [[nodiscard]] std::string file() const { return (folder_ / "q.jsonl").string(); }

 private:
  std::filesystem::path folder_;
};

scheduler::lost_sample lost(std::uint64_t sample) {
  scheduler::lost_sample what;
  what.sample = sample;
  what.name = "cat.jpg";
  what.attempts = 3;
  what.causes = {"SIGSEGV"};
  return what;
}

std::size_t entries_in(const std::string& file) {
  return control::read_quarantine(file).value().entries.size();
}

}  // namespace

TEST_CASE("quarantined samples are in the file after the keeper is closed, and the next keeper finds them") {
  const place here;
  quarantine_keeper keeper(here.file(), "photos");
  REQUIRE(keeper.open("abc"));
  keeper.keep(lost(7));
  keeper.keep(lost(8));
  keeper.release(7);
  keeper.close();
  quarantine_keeper next(here.file(), "photos");
  const auto known = next.open("abc");
  REQUIRE(known);
  REQUIRE(known->size() == 1);
  CHECK(known->front().sample == 8);
}

TEST_CASE("the log names the first ten samples that the file leaves out") {
  const place here;
  {
    quarantine_keeper keeper(here.file(), "photos");
    REQUIRE(keeper.open("abc"));
    for (std::uint64_t sample = 1; sample <= 11; ++sample) keeper.keep(lost(sample));
  }
  std::string logged;
  log::set_sink([&](log::level, std::string_view, std::string_view line) { logged += line; });
  quarantine_keeper next(here.file(), "photos");
  const auto known = next.open("abc");
  log::set_sink({});
  REQUIRE(known);
  CHECK(logged.starts_with("11 samples listed in '" + here.file() + "' are left out: sample 1 (cat.jpg), "));
  CHECK(logged.ends_with(", sample 10 (cat.jpg), ..."));
}

TEST_CASE("a quarantine file locked by another process delays neither the session nor its end") {
  const place here;
  std::ofstream(here.file()).flush();
  const unique_fd holder(::open(here.file().c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(holder.get(), LOCK_EX) == 0);
  const auto begin = std::chrono::steady_clock::now();
  {
    quarantine_keeper keeper(here.file(), "photos", {.reading = 10s, .closing = 20ms});
    REQUIRE(keeper.open("abc"));
    keeper.keep(lost(7));
    keeper.keep(lost(8));
    keeper.close();
  }
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  CHECK(entries_in(here.file()) == 0);
}

TEST_CASE("a FIFO in place of the quarantine file is refused without waiting") {
  const place here;
  REQUIRE(::mkfifo(here.file().c_str(), 0600) == 0);
  quarantine_keeper keeper(here.file(), "photos");
  const auto refused = keeper.open("abc");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::io);
  CHECK(refused.error().message.find("is not a regular file") != std::string::npos);
}
