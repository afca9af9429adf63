// Custom datasets: faults in their code are reported precisely, with the sample's name; samples of variable
// size arrive padded, with the same bytes whatever happens to the workers.
#include "runtime/base/log.hpp"
#include "tests/actors/session/support.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <set>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

config odd(string_map options = {}, std::uint32_t workers = 2) {
  config c = small(workers);
  c.dataset = {};
  c.dataset.type = dataset_type::custom;
  c.dataset.options = std::move(options);
  c.sampler.epochs = 1;
  c.sampler.shuffle = false;
  c.loader.command = {PENSTOCK_ODD_WORKER};
  return c;
}

template <class T>
std::vector<T> read(const Batch& batch, std::string_view tensor) {
  const auto bytes = batch.read_back(tensor);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

run_report run(const config& c) {
  session_options options = quietly();
  options.digests = true;
  Session session(c, options);
  while (session.next()) {
  }
  return session.report();
}

std::optional<failure> failure_of(const config& c) {
  try {
    run(c);
  } catch (const error& e) {
    return e.as_failure();
  }
  return std::nullopt;
}

std::string digest_of(const config& c) {
  return run(c).epochs.at(0).digest.value();
}

constexpr std::uint64_t length_of(std::uint64_t sample) {
  return sample % 7;  // as odd_worker does
}

}  // namespace

TEST_CASE("an exception fails its sample, and the report has the sample's name and the exception's text") {
  const run_report r = run(odd({{"throw", "13"}, {"throw_odd", "14"}}));
  REQUIRE(r.failures.size() == 2);
  CHECK(r.failures[0].sample == 13);
  CHECK(r.failures[0].path == "page-13");
  CHECK(r.failures[0].error == "page is torn");
  CHECK(r.failures[1].error == "int: an exception that is not a std::exception");
  CHECK(r.deaths.empty());
  CHECK(r.epochs.at(0).delivered == 58);
}

TEST_CASE("writing a tensor as another element type fails the sample, and the error names both types") {
  const run_report r = run(odd({{"wrong_type", "13"}}));
  REQUIRE(r.failures.size() == 1);
  CHECK(r.failures[0].path == "page-13");
  CHECK(r.failures[0].error == "tensor 'number' is int64, but the program accesses it as float64");
  CHECK(r.epochs.at(0).delivered == 59);
}

TEST_CASE("a tensor that the host can read is read in place, with its type checked") {
  Session session(odd(), quietly());
  const auto batch = session.next();
  REQUIRE(batch);
  const auto numbers = batch->tensor("number").host_as<std::int64_t>();
  CHECK(std::ranges::equal(numbers, batch->samples()));
  CHECK_THROWS_AS(batch->tensor("number").host_as<float>(), error);
}

TEST_CASE("a crash and an exit in user code are blamed on the sample, which is named and quarantined") {
  for (const char* const fault : {"segv", "exit"}) {
    const run_report r = run(odd({{fault, "13"}}));
    REQUIRE(r.quarantine.size() == 1);
    CHECK(r.quarantine[0].sample == 13);
    CHECK(r.quarantine[0].path == "page-13");
    CHECK(r.quarantine[0].causes.at(0) == (std::string(fault) == "segv" ? "SIGSEGV" : "exit 3"));
    CHECK(r.epochs.at(0).delivered == 59);
  }
}

TEST_CASE(
    "if a program's setup fails only in the sacrificial worker, the suspect sample is lost, not the run") {
  const std::string expected = digest_of(odd({{"segv", "13"}}));
  const std::map<std::string, std::string> words{
      {"throw", "no licence for one more"}, {"exit", "exit 3"}, {"segv", "SIGSEGV"}, {"hang", "hang"}};
  for (const auto& [how, why] : words) {
    CAPTURE(how);
    config c = odd({{"segv", "13"}, {"alone_in_setup", how}});
    c.loader.restart.backoff = {.base = 10ms, .max = 10ms};
    c.loader.restart.intensity.max = 2;
    if (how == "hang") c.loader.hang.start_deadline = 1s;
    const run_report r = run(c);
    REQUIRE(r.quarantine.size() == 1);
    CHECK(r.quarantine[0].sample == 13);
    CHECK(r.quarantine[0].path == "page-13");
    CHECK(r.quarantine[0].attempts == 2);
    CHECK(r.quarantine[0].causes.back().starts_with("could not be tried alone: worker "));
    CHECK(r.quarantine[0].causes.back().find(why) != std::string::npos);
    CHECK(r.epochs.at(0).delivered == 59);
    CHECK(r.epochs.at(0).digest == expected);
  }
}

TEST_CASE("a hang in user code is blamed on its sample, which is named") {
  config c = odd({{"hang", "13"}});
  c.loader.hang.item_timeout = 200ms;
  const run_report r = run(c);
  REQUIRE(r.quarantine.size() == 1);
  CHECK(r.quarantine[0].path == "page-13");
  CHECK(std::ranges::all_of(r.deaths, [](const death_report& d) { return d.cause == death_cause::hang; }));
}

TEST_CASE("loading CUDA in a worker fails the sample, and the error names worker, pid and rule") {
  const run_report r = run(odd({{"cuda", "13"}, {"fake_cuda", PENSTOCK_FAKE_CUDA}}));
  REQUIRE(r.failures.size() == 1);
  CHECK(r.failures[0].path == "page-13");
  CHECK(r.failures[0].error.find("only the GPU owner uses the GPU") != std::string::npos);
  CHECK(r.failures[0].error.find("into worker ") != std::string::npos);
  CHECK(r.failures[0].error.find("(pid ") != std::string::npos);
  CHECK(r.epochs.at(0).delivered == 59);
}

TEST_CASE("CUDA loaded before the first sample ends the run with the same rule") {
  const auto why = failure_of(odd({{"cuda_in", "setup"}, {"fake_cuda", PENSTOCK_FAKE_CUDA}}));
  REQUIRE(why);
  CHECK(why->message.find("only the GPU owner uses the GPU") != std::string::npos);
}

TEST_CASE("a dataset that cannot be made, described or set up ends the run with its own error text") {
  const std::map<std::string, std::string> words{
      {"constructor", "no such archive"}, {"describe", "the archive has no index"}, {"setup", "no licence"}};
  for (const auto& [where, expected] : words) {
    const auto why = failure_of(odd({{"throw_in", where}}));
    REQUIRE(why);
    CHECK(why->code == errc::dataset);
    CHECK(why->message.find(expected) != std::string::npos);
  }
}

TEST_CASE("if a dataset crashes before its first sample, deaths and the final error name the step") {
  struct step {
    std::string in, phase, words;
  };
  for (const step& s : {step{"constructor", "opening", "opening the dataset"}, step{"describe", "describing", "describing the dataset"},
                        step{"setup", "setup", "setting up the dataset"}}) {
    config c = odd({{"segv_in", s.in}}, 1);
    c.loader.restart.intensity = {1, std::chrono::seconds(60)};
    Session session(c, quietly());
    std::string why;
    try {
      static_cast<void>(session.next());
    } catch (const error& e) {
      why = e.what();
    }
    CHECK(why.find("no loader worker is left: worker 0 was restarted 1 time within 60 s, the limit of [loader.restart] intensity; "
                   "worker 0 ended with SIGSEGV, while " +
                   s.words) != std::string::npos);
    const run_report r = session.report();
    REQUIRE(r.deaths.size() == 2);
    CHECK(name_of(r.deaths[0].phase) == s.phase);
  }
}

TEST_CASE("a pool's worker program ends a run that needs a dataset, and the error says that it has none") {
  config c = odd();
  c.loader.command = {PENSTOCK_WORKER, "--commands"};
  const auto why = failure_of(c);
  REQUIRE(why);
  CHECK(why->code == errc::worker_program);
  CHECK(
      why->message ==
      "the worker program ([loader] command) serves functions of a pool (penstock::job_main), not a dataset "
      "(penstock::worker_main)");
}

TEST_CASE("samples of variable size arrive padded with zeros to the fixed maximum, with their lengths") {
  Session session(odd({{"length", "fixed"}}), quietly());
  std::uint64_t rows = 0;
  while (auto batch = session.next()) {
    CHECK(batch->tensor("tokens").shape == std::vector<std::uint64_t>{batch->rows(), 10, 2});
    CHECK(batch->tensor("tokens_length").type == dtype::int64);
    const auto lengths = read<std::int64_t>(*batch, "tokens_length");
    const auto tokens = read<std::uint16_t>(*batch, "tokens");
    for (std::size_t r = 0; r < batch->rows(); ++r) {
      const std::uint64_t sample = batch->samples()[r];
      REQUIRE(lengths[r] == static_cast<std::int64_t>(length_of(sample)));
      for (std::uint64_t i = 0; i < 20; ++i)
        REQUIRE(tokens[r * 20 + i] == (i < length_of(sample) * 2 ? sample * 100 + i : 0));
      ++rows;
    }
  }
  CHECK(rows == 60);
}

TEST_CASE(
    "padded to the batch's maximum, a batch is as long as its longest sample, and its rows are contiguous") {
  config c = odd({{"length", "batch"}, {"throw", "6"}});
  c.sampler.batch_size = 3;
  Session session(c, quietly());
  std::set<std::uint64_t> extents;
  std::uint64_t payload = 0;
  while (auto batch = session.next()) {
    std::uint64_t longest = 0;
    for (const std::uint64_t s : batch->samples()) longest = std::max(longest, length_of(s));
    extents.insert(longest);
    REQUIRE(batch->tensor("tokens").shape == std::vector<std::uint64_t>{batch->rows(), longest, 2});
    const auto lengths = read<std::int64_t>(*batch, "tokens_length");
    const auto tokens = read<std::uint16_t>(*batch, "tokens");
    payload += tokens.size() * 2 + lengths.size() * 16;
    for (std::size_t r = 0; r < batch->rows(); ++r) {
      const std::uint64_t sample = batch->samples()[r];
      REQUIRE(lengths[r] == static_cast<std::int64_t>(length_of(sample)));
      for (std::uint64_t i = 0; i < longest * 2; ++i)
        REQUIRE(tokens[r * longest * 2 + i] == (i < length_of(sample) * 2 ? sample * 100 + i : 0));
    }
  }
  CHECK(extents.size() > 3);
  CHECK(session.report().bytes == payload);
}

TEST_CASE("a stream of variable size is the same for any number of workers and any deaths") {
  for (const char* const rule : {"fixed", "batch"}) {
    config c = odd({{"length", rule}}, 1);
    c.sampler.shuffle = true;
    const std::string undisturbed = digest_of(c);
    c.loader.workers = 4;
    CHECK(digest_of(c) == undisturbed);
    c.dataset.options["segv_once"] = "13";
    const run_report r = run(c);
    CHECK(r.deaths.size() == 1);
    CHECK(r.epochs.at(0).digest == undisturbed);
  }
  CHECK(digest_of(odd({{"length", "fixed"}})) != digest_of(odd({{"length", "batch"}})));
}

TEST_CASE("the report of an ended stream lists a death that the supervisor is still reporting") {
  config c = odd();
  std::size_t batches = 0;
  {
    Session undisturbed(c, quietly());
    while (undisturbed.next()) ++batches;
  }
  c.dataset.options["segv_once"] = "13";
  c.log.level = log_level::warn;
  std::promise<void> delivered;
  std::promise<void> reported;
  std::atomic<bool> told = false;
  log::set_sink([&](log::level, std::string_view part, std::string_view line) {
    if (part != "supervisor" || line.find("ended: SIGSEGV") == line.npos || told.exchange(true)) return;
    // Gives the other worker time to load the sample, if it has already started.
    delivered.get_future().wait_for(5s);
    reported.get_future().wait_for(200ms);  // must time out: the session cannot end before this thread returns
  });
  {
    Session session(c, quietly());
    for (std::size_t i = 0; i < batches; ++i) REQUIRE(session.next());
    delivered.set_value();
    CHECK_FALSE(session.next());
    const std::size_t deaths = session.report().deaths.size();
    reported.set_value();
    CHECK(told);
    CHECK(deaths == 1);
  }
  log::set_sink({});
}

TEST_CASE("a length beyond the declared maximum, or one that was not declared, is the sample's failure") {
  const run_report longer = run(odd({{"length", "batch"}, {"too_long", "13"}}));
  REQUIRE(longer.failures.size() == 1);
  CHECK(longer.failures[0].error ==
        "std::out_of_range: it has 11 entries, but describe() declares at most 10");
  const run_report undeclared = run(odd({{"too_long", "13"}}));
  REQUIRE(undeclared.failures.size() == 1);
  CHECK(undeclared.failures[0].path == "page-13");
}

TEST_CASE("a batch whose samples all failed has no rows and no length") {
  config c = odd({{"length", "batch"}, {"throw", "13"}});
  c.sampler.batch_size = 1;
  Session session(c, quietly());
  bool seen = false;
  while (auto batch = session.next()) {
    if (batch->rows() > 0) continue;
    seen = true;
    CHECK(batch->tensor("tokens").shape == std::vector<std::uint64_t>{0, 0, 2});
    CHECK(batch->read_back("tokens").empty());
  }
  CHECK(seen);
}

TEST_CASE("collate sees every row of its batch and draws the same numbers in any worker") {
  config c = odd({{"collate", "mark"}});
  {
    Session session(c, quietly());
    const auto batch = session.next();
    REQUIRE(batch);
    const auto numbers = read<std::int64_t>(*batch, "number");
    for (std::size_t r = 0; r < numbers.size(); ++r)
      CHECK(numbers[r] == static_cast<std::int64_t>(batch->samples()[r] * 1000 + 8));
  }
  c.dataset.options["collate"] = "draw";
  const std::string two = digest_of(c);
  c.loader.workers = 4;
  CHECK(digest_of(c) == two);
}

TEST_CASE("if collate throws, the samples of its batch fail, and no others") {
  const run_report r = run(odd({{"collate", "throw"}}));
  REQUIRE(r.failures.size() == 8);
  CHECK(r.failures[0].error == "collating the batch: these do not go together");
  CHECK(r.epochs.at(0).delivered == 52);
  CHECK(r.epochs.at(0).failed == 8);
}

TEST_CASE("a collate that crashes is blamed on the last sample of its batch, and the run ends") {
  const run_report r = run(odd({{"collate", "segv"}}));
  REQUIRE_FALSE(r.deaths.empty());
  CHECK(r.deaths[0].phase == work_phase::collating);
  CHECK(r.deaths[0].sample == 7);
  CHECK(r.epochs.at(0).complete);
}

TEST_CASE("datasets without their author's fingerprint are distinguished by their samples and tensors") {
  std::vector<std::byte> state;
  {
    Session session(odd({{"nameless", "1"}}), quietly());
    REQUIRE(session.next());
    state = session.state();
  }
  const auto resume = [&](const config& c) -> std::optional<failure> {
    session_options options = quietly();
    options.state = state;
    Session session(c, options);
    try {
      static_cast<void>(session.next());
    } catch (const error& e) {
      return e.as_failure();
    }
    return std::nullopt;
  };
  CHECK_FALSE(resume(odd({{"nameless", "1"}})));
  for (const auto& other : {string_map{{"nameless", "1"}, {"samples", "61"}},
                            string_map{{"nameless", "1"}, {"length", "batch"}}, string_map{}}) {
    const auto no = resume(odd(other));
    REQUIRE(no);
    CHECK(no->code == errc::state_mismatch);
    CHECK(no->message.find("fingerprint") != std::string::npos);
  }
}

TEST_CASE("a run fails when more than half of its samples fail, and names the most frequent reason") {
  const auto why = failure_of(odd({{"throw_all", "1"}}));
  REQUIRE(why);
  CHECK(why->code == errc::dataset);
  // The number is not checked: it is 33 or, because a batch counts as a whole, a few more.
  CHECK(
      why->message.find("of the 60 samples of epoch 0 have failed, more than [loader] max_failed_fraction = "
                        "0.5 allows; the most frequent reason (") != std::string::npos);
  CHECK(why->message.find("... is not a page") != std::string::npos);
  config all_may = odd({{"throw_all", "1"}});
  all_may.loader.max_failed_fraction = 1;
  const run_report r = run(all_may);
  CHECK(r.outcome == run_outcome::finished);
  CHECK(r.epochs.at(0).failed == 60);
  // A small number of failures is always allowed.
  CHECK(run(odd({{"throw_all", "1"}, {"samples", "32"}})).epochs.at(0).failed == 32);
}
