#include "tools/penstock/jobs/map_run.hpp"

#include "tools/penstock/jobs/command_outcome.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::cli;
using nlohmann::json;

namespace {

job_outcome ok(const std::string& text) {
  job_outcome outcome;
  outcome.attempts = 1;
  outcome.result = json_of_bytes(text);
  return outcome;
}

job_outcome no(job_status status, const std::string& text = "it did not work") {
  job_failure why;
  why.status = status;
  why.text = text;
  why.attempts = 1;
  return outcome_of(why);
}

/// Inputs, outputs and journals of runs, in a temporary folder.
class bench {
 public:
  bench() {
    char name[] = "/tmp/penstock-map-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    folder_ = name;
    output_.reset(::memfd_create("output", MFD_CLOEXEC));
    errors_.reset(::memfd_create("errors", MFD_CLOEXEC));
  }
  ~bench() { std::filesystem::remove_all(folder_); }

  void input(const std::string& text) {
    const unique_fd file(::open(path("input").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    from("input");
  }
  void from(const std::string& name, std::size_t longest = 1000) {
    auto opened = line_source::open(name.front() == '/' ? name : path(name), longest);
    REQUIRE(opened);
    source_ = std::move(*opened);
  }
  void journal() {
    journal_.reset();  // releases the lock of the journal
    auto opened = map_journal::open(path("journal"), R"({"function":"f"})");
    REQUIRE(opened);
    journal_ = std::move(*opened);
  }

  map_run& make(map_rules rules, map_run::starter start) {
    REQUIRE(::ftruncate(output_.get(), 0) == 0);
    REQUIRE(::lseek(output_.get(), 0, SEEK_SET) == 0);
    told.clear();
    map_run::deps deps;
    deps.input = source_.get();
    deps.output = output ? *output : output_.get();
    deps.journal = journal_.get();
    deps.start = std::move(start);
    deps.abandon = [this] { abandoned = true; };
    deps.halt = [this] { halted = true; };
    deps.judge = [this](job_verdict one) { judged.push_back(one); };
    deps.log = log.get();
    deps.tell = [this](const std::string& line) { told.push_back(line); };
    deps.errors = errors_.get();
    run_ = std::make_unique<map_run>(rules, std::move(deps));
    return *run_;
  }

  std::string written() { return contents_of(output_.get()); }
  /// Everything that commands wrote to stderr since the last call.
  std::string passed_on() {
    std::string text = contents_of(errors_.get());
    REQUIRE(::ftruncate(errors_.get(), 0) == 0);
    REQUIRE(::lseek(errors_.get(), 0, SEEK_SET) == 0);
    return text;
  }
  std::vector<json> lines() {
    std::vector<json> all;
    const std::string text = written();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      REQUIRE(end != std::string::npos);
      all.push_back(json::parse(text.substr(at, end - at)));
      at = end + 1;
    }
    return all;
  }
  std::vector<std::string> column(const std::string& key) {
    std::vector<std::string> all;
    for (const json& line : lines())
      all.push_back(line[key].is_string() ? line[key].get<std::string>() : line[key].dump());
    return all;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  std::vector<std::string> told;
  std::vector<job_verdict> judged;
  std::unique_ptr<job_log> log;
  bool abandoned = false;
  bool halted = false;
  std::optional<int> output;

 private:
  static std::string contents_of(int file) {
    std::string text(static_cast<std::size_t>(::lseek(file, 0, SEEK_END)), '\0');
    REQUIRE(::pread(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
    return text;
  }

  std::filesystem::path folder_;
  unique_fd output_;
  unique_fd errors_;
  std::unique_ptr<line_source> source_;
  std::unique_ptr<map_journal> journal_;
  std::unique_ptr<map_run> run_;
};

/// Jobs that end at once; the result is the line in capitals.
result<void> at_once(const map_line& line, const map_run::settle& settled) {
  std::string text = *line.text;
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  settled(ok(text));
  return {};
}

/// Jobs that other threads finish, in any order.
class crowd {
 public:
  explicit crowd(std::uint64_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) threads_.emplace_back([this] { work(); });
  }
  ~crowd() {
    {
      const std::lock_guard hold(mutex_);
      over_ = true;
    }
    news_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  result<void> start(map_line line, map_run::settle settled) {
    const std::lock_guard hold(mutex_);
    jobs_.emplace_back(std::move(line), std::move(settled));
    most_ = std::max(most_, jobs_.size());
    news_.notify_one();
    return {};
  }
  std::size_t most() {
    const std::lock_guard hold(mutex_);
    return most_;
  }

 private:
  void work() {
    std::unique_lock hold(mutex_);
    while (true) {
      news_.wait(hold, [this] { return over_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::size_t which = random_() % jobs_.size();
      auto [line, settled] = std::move(jobs_[which]);
      jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(which));
      hold.unlock();
      settled(ok(*line.text));
      hold.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::pair<map_line, map_run::settle>> jobs_;
  std::size_t most_ = 0;
  bool over_ = false;
  std::mt19937_64 random_;
  std::vector<std::thread> threads_;
};

using strings = std::vector<std::string>;

}  // namespace

TEST_CASE("each input line has its line in the output") {
  bench b;
  b.input("a\n\nb c");
  map_run& run = b.make({}, at_once);
  REQUIRE(run.run());
  CHECK(b.column("result") == strings{"A", "", "B C"});
  CHECK(b.column("index") == strings{"0", "1", "2"});
  CHECK(run.counts().jobs == 3);
  CHECK(run.counts().of(job_status::ok) == 3);
}

TEST_CASE("an empty input produces an empty output") {
  bench b;
  b.input("");
  REQUIRE(b.make({}, at_once).run());
  CHECK(b.lines().empty());
}

TEST_CASE("results that come in any order from any thread are written in the order of the input") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    bench b;
    std::string text;
    for (int i = 0; i < 1000; ++i) text += std::to_string(i) + "\n";
    b.input(text);
    crowd workers(seed);
    map_rules rules;
    rules.under_way_max = 64;
    REQUIRE(b.make(rules, [&](auto line, auto settled) {
               return workers.start(std::move(line), std::move(settled));
             }).run());
    const auto got = b.column("result");
    REQUIRE(got.size() == 1000);
    for (int i = 0; i < 1000; ++i) REQUIRE(got[static_cast<std::size_t>(i)] == std::to_string(i));
    CHECK(workers.most() <= 64);
  }
}

TEST_CASE("no more lines are read than may be in progress, until the first of them has ended") {
  bench b;
  b.input("a\nb\nc\nd\ne\n");
  map_rules rules;
  rules.under_way_max = 3;
  std::vector<map_run::settle> open;
  std::atomic<bool> first_ended = false;
  std::jthread later;
  map_run& run = b.make(rules, [&](const auto&, auto settled) -> result<void> {
    open.push_back(std::move(settled));
    if (open.size() == 3) {
      // The others are done, but no line can be written yet.
      open[1](ok("2"));
      open[2](ok("3"));
      later = std::jthread([&first_ended, first = open[0]] {
        first_ended = true;
        first(ok("1"));
      });
    } else if (open.size() > 3) {
      CHECK(first_ended);
      open.back()(ok("later"));
    }
    return {};
  });
  REQUIRE(run.run());
  CHECK(b.column("result") == strings{"1", "2", "3", "later", "later"});
}

TEST_CASE("no more lines are read while results of many bytes wait for an earlier one") {
  bench b;
  b.input("a\nb\nc\nd\n");
  map_rules rules;
  rules.bytes_waiting_max = 1000;
  std::vector<map_run::settle> open;
  std::atomic<bool> first_ended = false;
  std::jthread later;
  map_run& run = b.make(rules, [&](const auto&, auto settled) -> result<void> {
    open.push_back(std::move(settled));
    if (open.size() == 2) {
      open[1](ok(std::string(2000, 'x')));
      later = std::jthread([&first_ended, first = open[0]] {
        first_ended = true;
        first(ok("1"));
      });
    } else if (open.size() > 2) {
      CHECK(first_ended);
      open.back()(ok("later"));
    }
    return {};
  });
  REQUIRE(run.run());
  CHECK(b.lines().size() == 4);
}

TEST_CASE("a result is written before the input has ended") {
  bench b;
  int in[2];
  int out[2];
  REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
  const unique_fd in_read(in[0]);
  unique_fd in_write(in[1]);
  const unique_fd out_read(out[0]);
  const unique_fd out_write(out[1]);
  b.from("/proc/self/fd/" + std::to_string(in[0]));
  b.output = out[1];
  map_run& run = b.make({}, at_once);
  std::thread runner([&] { CHECK(run.run()); });
  REQUIRE(::write(in_write.get(), "a\n", 2) == 2);
  char answer[200];
  const ssize_t got = ::read(out_read.get(), answer, sizeof answer);
  CHECK(json::parse(std::string(answer, static_cast<std::size_t>(std::max<ssize_t>(0, got))))["result"] ==
        "A");
  in_write.reset();
  runner.join();
}

TEST_CASE("a line that is not JSON ends the run and is named by its number, and the jobs before it finish") {
  bench b;
  b.input("1\n[2]\n{three}\n4\n");
  b.journal();
  map_rules rules;
  rules.lines = line_rule::json;
  const auto ended = b.make(rules, at_once).run();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().message.find("line 3 of ") != std::string::npos);
  CHECK(ended.error().message.find("is not JSON") != std::string::npos);
  CHECK(b.column("result") == strings{"1", "[2]"});
  b.journal();
  b.input("1\n[2]\n3\n4\n");
  map_run& again = b.make(rules, at_once);
  REQUIRE(again.run());
  CHECK(again.counts().from_journal == 2);
  CHECK(b.column("result") == strings{"1", "[2]", "3", "4"});
}

TEST_CASE("bad lines can be skipped, are named by number, and leave a gap in the indices") {
  bench b;
  b.input("1\nx\n\n4\n");
  map_rules rules;
  rules.lines = line_rule::json;
  rules.bad_lines = bad_line_rule::skip;
  map_run& run = b.make(rules, at_once);
  REQUIRE(run.run());
  CHECK(b.column("index") == strings{"0", "3"});
  CHECK(run.counts().skipped == 2);
  REQUIRE(b.told.size() == 2);
  CHECK(b.told[0].find("line 2 ") == 0);
  CHECK(b.told[1].find("line 3 ") == 0);
}

TEST_CASE("a few of thousands of bad lines are reported, and all are counted") {
  bench b;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "x\n";
  b.input(text);
  map_rules rules;
  rules.lines = line_rule::json;
  rules.bad_lines = bad_line_rule::skip;
  map_run& run = b.make(rules, at_once);
  REQUIRE(run.run());
  CHECK(run.counts().skipped == 2000);
  CHECK(b.told.size() == 11);
}

TEST_CASE("text can contain any bytes but NUL, which no argument can hold") {
  bench b;
  b.input(std::string("{x\n\xff\n", 5));
  REQUIRE(b.make({}, at_once).run());
  b.input(std::string("a\nb\0c\n", 6));
  CHECK(b.make({}, at_once).run().error().message.find("line 2") != std::string::npos);
}

TEST_CASE("a line that is too long is reported as too large, and the other lines run") {
  bench b;
  b.input("a\n" + std::string(2000, 'x') + "\nb\n");
  map_run& run = b.make({}, at_once);
  REQUIRE(run.run());
  CHECK(b.column("status") == strings{"ok", "too_large", "ok"});
  CHECK(run.counts().of(job_status::too_large) == 1);
}

TEST_CASE("a failed job is reported with its line and does not end the run") {
  bench b;
  b.input("a\nb\nc\n");
  map_run& run = b.make({}, [](const auto& line, const auto& settled) -> result<void> {
    settled(*line.text == "b" ? no(job_status::poisoned, "it killed three workers") : ok(*line.text));
    return {};
  });
  REQUIRE(run.run());
  CHECK(b.column("status") == strings{"ok", "poisoned", "ok"});
  REQUIRE(b.told.size() == 1);
  CHECK(b.told[0] == "line 2 (index 1): poisoned: it killed three workers");
}

TEST_CASE("a job is retried as often as requested, and its attempts add up") {
  bench b;
  b.input("works the third time\nnever works\nkills\n");
  map_rules rules;
  rules.retries = 2;
  std::map<std::string, int> tries;
  map_run& run = b.make(rules, [&](const auto& line, const auto& settled) -> result<void> {
    const int number = ++tries[*line.text];
    if (*line.text == "kills") {
      settled(no(job_status::poisoned));
    } else {
      settled(number == 3 && line.text->front() == 'w' ? ok("done") : no(job_status::exception));
    }
    return {};
  });
  REQUIRE(run.run());
  CHECK(b.column("status") == strings{"ok", "exception", "poisoned"});
  CHECK(b.column("attempts") == strings{"3", "3", "1"});
  CHECK(tries["kills"] == 1);
}

TEST_CASE("the pool hears once of each job that it ran, and not of attempts that are repeated") {
  bench b;
  b.input("works the third time\nexits with 3\nfails\nis cancelled\nnever reached the pool\n");
  map_rules rules;
  rules.retries = 2;
  std::map<std::string, int> tries;
  map_run& run = b.make(rules, [&](const auto& line, const auto& settled) -> result<void> {
    job_outcome outcome = line.text->front() == 'i' ? no(job_status::cancelled) : line.text->front() == 'w' && ++tries[*line.text] == 3 ? ok("") : no(job_status::exception);
    if (line.text->front() == 'e') outcome = outcome_of(protocol::command_outcome{3, {}, {}, 0}, exit_rule::any_is_ok);
    if (line.text->front() != 'w') outcome.again = false;
    outcome.from_pool = line.text->front() != 'n';
    settled(std::move(outcome));
    return {};
  });
  REQUIRE(run.run());
  CHECK(run.counts().nonzero_exits == 1);
  std::ranges::sort(b.judged);
  CHECK(b.judged == std::vector{job_verdict::ok, job_verdict::nonzero_exit, job_verdict::failed});
}

TEST_CASE("the job log has no line for a job that was cancelled before it started") {
  bench b;
  b.input("began\nnever began\n");
  b.log = std::move(*job_log::open(b.path("log")));
  REQUIRE(b.make({}, [](const auto& line, const auto& settled) -> result<void> {
             job_outcome outcome = no(job_status::cancelled);
             outcome.attempts = *line.text == "began" ? 1 : 0;
             settled(std::move(outcome));
             return {};
           }).run());
  CHECK(b.column("status") == strings{"cancelled", "cancelled"});
  std::ifstream log(b.path("log"));
  const std::string text{std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
  CHECK(std::ranges::count(text, '\n') == 1);
  CHECK(text.find("\"line\":\"began\"") != std::string::npos);
}

TEST_CASE("an interrupted run continues where it stopped, and its output is complete") {
  bench b;
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "\n";
  std::mt19937_64 random(7);
  std::map<std::string, int> finished;
  for (int round = 0; round < 20; ++round) {
    b.input(text);
    b.journal();
    std::vector<std::pair<std::string, map_run::settle>> open;
    std::size_t begun = 0;
    map_run* run = nullptr;
    run = &b.make({}, [&](const auto& line, auto settled) -> result<void> {
      if (++begun == 15) {
        run->stop();
        for (auto& [name, end] : open) end(no(job_status::cancelled));
        open.clear();
      }
      if (begun >= 15) {
        settled(no(job_status::cancelled));
        return {};
      }
      open.emplace_back(*line.text, std::move(settled));
      // Finishes one of the jobs in flight.
      const auto which = open.begin() + static_cast<std::ptrdiff_t>(random() % open.size());
      ++finished[which->first];
      which->second(ok(which->first));
      open.erase(which);
      return {};
    });
    REQUIRE(run->run());
  }
  b.input(text);
  b.journal();
  map_run& last = b.make({}, at_once);
  REQUIRE(last.run());
  CHECK(last.counts().from_journal == 100);
  const auto got = b.column("result");
  REQUIRE(got.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(got[static_cast<std::size_t>(i)] == std::to_string(i));
  for (const auto& [name, times] : finished) CHECK(times == 1);
}

TEST_CASE("a job cancelled by a stop is in the output, but runs again in the next run") {
  bench b;
  b.input("a\nb\n");
  b.journal();
  REQUIRE(b.make({}, [](const auto&, const auto& settled) -> result<void> {
             settled(no(job_status::cancelled));
             return {};
           }).run());
  CHECK(b.column("status") == strings{"cancelled", "cancelled"});
  b.input("a\nb\n");
  b.journal();
  REQUIRE(b.make({}, at_once).run());
  CHECK(b.column("status") == strings{"ok", "ok"});
}

TEST_CASE("a line that has changed since it was journaled is refused and named by its number") {
  bench b;
  b.input("a\nb\nc\n");
  b.journal();
  REQUIRE(b.make({}, at_once).run());
  b.input("a\nB\nc\n");
  b.journal();
  const auto refused = b.make({}, at_once).run();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::state_mismatch);
  CHECK(refused.error().message.find("line 2 of ") != std::string::npos);
}

TEST_CASE("a shortened input is reported, since the output lacks journaled jobs") {
  bench b;
  b.input("a\nb\nc\n");
  b.journal();
  REQUIRE(b.make({}, at_once).run());
  CHECK(b.told.empty());
  b.input("a\n");
  b.journal();
  REQUIRE(b.make({}, at_once).run());
  REQUIRE(b.told.size() == 1);
  CHECK(b.told[0].find("up to line 3") != std::string::npos);
  CHECK(b.column("index") == strings{"0"});
}

TEST_CASE("only failed jobs run again, and only on request") {
  bench b;
  const auto only_b_fails = [](const auto& line, const auto& settled) -> result<void> {
    settled(*line.text == "b" ? no(job_status::poisoned) : ok(*line.text));
    return {};
  };
  b.input("a\nb\nc\n");
  b.journal();
  REQUIRE(b.make({}, only_b_fails).run());

  b.input("a\nb\nc\n");
  b.journal();
  REQUIRE(b.make({}, at_once).run());
  CHECK(b.column("status") == strings{"ok", "poisoned", "ok"});

  b.input("a\nb\nc\n");
  b.journal();
  map_rules rules;
  rules.retry_failed = true;
  strings ran;
  REQUIRE(b.make(rules, [&](const auto& line, const auto& settled) {
             ran.push_back(*line.text);
             return at_once(line, settled);
           }).run());
  CHECK(ran == strings{"b"});
  CHECK(b.column("result") == strings{"a", "B", "c"});
}

TEST_CASE("if no more jobs can start, the run ends with the reason, and every started line is written") {
  bench b;
  b.input("a\nb\nc\n");
  const auto ended = b.make({}, [](const auto& line, const auto& settled) -> result<void> {
                        if (*line.text == "b") return refuse(errc::workers_exhausted, "no worker is left");
                        return at_once(line, settled);
                      }).run();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().code == errc::workers_exhausted);
  CHECK(b.column("status") == strings{"ok", "cancelled"});
}

TEST_CASE("an outcome that every job would have ends the run and is not journaled") {
  bench b;
  b.input("a\nb\n");
  b.journal();
  map_run& run = b.make({}, [](const auto&, const auto& settled) -> result<void> {
    job_outcome outcome = no(job_status::exception, "there is no function 'f'");
    outcome.ends_run = true;
    settled(outcome);
    return {};
  });
  const auto ended = run.run();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().message == "there is no function 'f'");
  CHECK(b.column("status") == strings{"exception"});
  b.input("a\nb\n");
  b.journal();
  REQUIRE(b.make({}, at_once).run());
  CHECK(b.column("status") == strings{"ok", "ok"});
}

TEST_CASE("a closed output ends the run") {
  bench b;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  ::close(ends[0]);
  const unique_fd write_end(ends[1]);
  ::signal(SIGPIPE, SIG_IGN);
  b.input("a\nb\n");
  b.output = ends[1];
  const auto ended = b.make({}, at_once).run();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().message.find("writing the results") != std::string::npos);
  CHECK(b.abandoned);
}

TEST_CASE("the output has the input of each job, as JSON if lines are JSON") {
  bench b;
  b.input("a \"b\"\n1\n");
  REQUIRE(b.make({}, at_once).run());
  CHECK(b.column("input") == strings{"a \"b\"", "1"});
  CHECK(b.lines()[1]["input"].is_string());
  b.input("{\"a\":12345678901234567890123}\n1\n");
  map_rules rules;
  rules.lines = line_rule::json;
  REQUIRE(b.make(rules, at_once).run());
  CHECK(b.written().find("\"input\":{\"a\":12345678901234567890123}}") != std::string::npos);
  CHECK(b.lines()[1]["input"] == 1);
}

TEST_CASE("the output of commands can be written unchanged, with their stderr passed on") {
  bench b;
  b.input("a\nb\nc\n");
  const auto command = [](const auto& line, const auto& settled) -> result<void> {
    protocol::command_outcome done;
    done.out.kept = *line.text == "b" ? std::string("\xff\0\n", 3) : "1\n2";
    done.out.written = done.out.kept.size() + (*line.text == "c" ? 10 : 0);
    done.err.kept = "E" + *line.text + "\n";
    done.err.written = done.err.kept.size();
    settled(outcome_of(done, exit_rule::any_is_ok));
    return {};
  };
  map_rules rules;
  rules.format = output_format::raw;
  REQUIRE(b.make(rules, command).run());
  CHECK(b.written() == std::string("1\n2\xff\0\n1\n2", 9));
  CHECK(b.passed_on() == "Ea\nEb\nEc\n");
  REQUIRE(b.told.size() == 1);
  CHECK(b.told[0].find("10 B of a command's output is missing") != std::string::npos);
  b.from("input");
  rules.format = output_format::tagged;
  REQUIRE(b.make(rules, command).run());
  CHECK(b.written() == std::string("a\t1\na\t2\nb\t\xff\0\nc\t1\nc\t2\n", 21));
  CHECK(b.passed_on() == "a\tEa\nb\tEb\nc\tEc\n");
}

TEST_CASE("a run ends with the failure that exceeds the limit, and reports it") {
  bench b;
  b.input("bad\na\nbad\nnever\n");
  map_rules rules;
  rules.failures_max = 2;
  const auto ended = b.make(rules, [](const auto& line, const auto& settled) -> result<void> {
                        settled(*line.text == "bad" ? no(job_status::exception) : ok(*line.text));
                        return {};
                      }).run();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().message == "2 jobs failed: ending the run because of --halt");
  CHECK(b.halted);
  CHECK(b.column("status") == strings{"exception", "ok", "exception"});
}

TEST_CASE("if files of a result cannot be written, the run ends") {
  bench b;
  b.input("a\nb\n");
  const auto ended = b.make({}, [](const auto& line, const auto& settled) -> result<void> {
                        job_outcome outcome = ok(*line.text);
                        outcome.trouble = failure{errc::io, "writing the result '1.result'", ENOSPC};
                        settled(outcome);
                        return {};
                      }).run();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().message == "writing the result '1.result'");
  CHECK(b.abandoned);
}

TEST_CASE("a run whose output is not read still ends when told to hurry") {
  bench b;
  b.input(std::string(200, 'x') + "\n" + std::string(200, 'y') + "\n");
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const unique_fd reader(ends[0]);
  const unique_fd writer(ends[1]);
  b.output = writer.get();
  std::atomic<int> started = 0;
  map_run& run = b.make({}, [&](const auto&, const auto& settled) -> result<void> {
    ++started;
    settled(ok(std::string(1 << 20, 'z')));
    return {};
  });
  std::thread hurry([&] {
    while (started < 2) std::this_thread::yield();
    run.stop();
    run.hurry(std::chrono::milliseconds(50));
  });
  const auto ended = run.run();
  hurry.join();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().code == errc::timed_out);
  CHECK(ended.error().message ==
        "writing the results to the output: the program that reads them does not respond; the remaining "
        "results are lost");
  CHECK((::fcntl(writer.get(), F_GETFL) & O_NONBLOCK) == 0);
}
