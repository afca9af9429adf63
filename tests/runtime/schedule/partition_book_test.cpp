// Which workers get slots, and what happens first: one rule a test.
#include "runtime/schedule/partition_book.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::schedule;

namespace {

dataset_description pictures() {
  return {"image-folder", 100, {{.name = "image", .type = dtype::uint8, .shape = {8, 8, 3}, .role = tensor_role::image}}, "ab12"};
}
served_dataset seen(dataset_description what, std::string own = {}) { return {std::move(what), std::move(own)}; }
served_functions functions(std::vector<std::string> names) { return {std::move(names)}; }

/// "adopt, prepare 3, give 3.1": the commands that a description leads to, and the failures that the run gets.
struct told {
  explicit told(partition_book made) : book(std::move(made)) {}

  std::string hears(worker_ref who, result<served> said, std::string fails_at = {}) {
    std::string text;
    welcome(book, who, std::move(said), [&](const auto& command) -> result<void> {
      const std::string one = in_words(command);
      text += (text.empty() ? "" : ", ") + one;
      if (!fails_at.empty() && one.starts_with(fails_at)) return refuse(errc::io, "no memory");
      return {};
    });
    return text;
  }

  std::string in_words(const adopt_served& c) {
    adopted = c.what;
    return "adopt";
  }
  std::string in_words(const prepare_partition& c) { return fmt::format("prepare {}", c.partition); }
  std::string in_words(const give_slots& c) { return fmt::format("give {}.{}", c.who.worker, c.who.incarnation); }
  std::string in_words(const refuse_slots& c) { return fmt::format("refuse {}.{}", c.who.worker, c.who.incarnation); }
  std::string in_words(const fail_run& c) {
    failed.push_back(c.why);
    return "fail";
  }

  partition_book book;
  std::optional<served> adopted;
  std::vector<failure> failed;
};

told stream(std::optional<dataset_description> expected = std::nullopt) {
  return told(partition_book(work_kind::samples, std::move(expected)));
}
told pool() { return told(partition_book(work_kind::jobs)); }

}  // namespace

TEST_CASE("everything is sized by the first description before any partition is prepared") {
  auto s = stream();
  CHECK(s.hears({2, 1}, seen(pictures())) == "adopt, prepare 2, give 2.1");
  CHECK(s.adopted == served(seen(pictures())));
  CHECK(s.hears({0, 1}, seen(pictures())) == "prepare 0, give 0.1");
}

TEST_CASE("the replacement of a worker gets the memory that its place already has") {
  auto s = stream(pictures());
  s.hears({1, 1}, seen(pictures()));
  CHECK(s.hears({1, 2}, seen(pictures())) == "give 1.2");
}

TEST_CASE("a worker that sees another dataset than the session's listing fails the run, even the first one") {
  auto s = stream(pictures());
  auto fewer = pictures();
  fewer.samples = 99;
  CHECK(s.hears({3, 1}, seen(fewer)) == "fail, refuse 3.1");
  REQUIRE(s.failed.size() == 1);
  CHECK(s.failed[0].code == errc::protocol);
  CHECK(s.failed[0].message == "worker 3 sees a different dataset than the session: 100 and 99 samples");
}

TEST_CASE("of two datasets that differ, the message names the most telling difference") {
  const auto difference = [](const served_dataset& first, const served_dataset& second) {
    auto s = stream();
    s.hears({0, 1}, first);
    s.hears({1, 1}, second);
    REQUIRE(s.failed.size() == 1);
    return s.failed[0].message.substr(s.failed[0].message.find(": ") + 2);
  };
  auto other = pictures();
  other.fingerprint = "cd34";
  CHECK(difference(seen(pictures()), seen(other)) == "fingerprints ab12 and cd34");
  CHECK(difference(seen(pictures(), "v1"), seen(other, "v2\n")) ==
        "fingerprints ab12 (its author's 'v1') and cd34 (its author's 'v2\\x0a')");
  other.tensors.clear();
  CHECK(difference(seen(pictures()), seen(other)) == "different tensors");
  other.type = "csv";
  CHECK(difference(seen(pictures()), seen(other)) == "type image-folder and csv");
}

TEST_CASE("a description that cannot be read fails the run with its reason") {
  auto s = stream();
  CHECK(s.hears({0, 1}, refuse(errc::dataset, "tensor 'x' is encoded")) == "fail, refuse 0.1");
  CHECK(s.failed[0].message == "tensor 'x' is encoded");
}

TEST_CASE("if sizing or a partition fails, the worker gets no slots") {
  auto sizing = stream();
  CHECK(sizing.hears({0, 1}, seen(pictures()), "adopt") == "adopt, fail, refuse 0.1");
  auto reserving = stream();
  CHECK(reserving.hears({0, 1}, seen(pictures()), "prepare") == "adopt, prepare 0, fail, refuse 0.1");
  CHECK(reserving.failed[0].message == "no memory");
}

TEST_CASE("after a failure every worker is refused, and the run is not failed again") {
  auto s = stream();
  s.hears({0, 1}, seen(pictures()), "prepare");
  CHECK(s.hears({1, 1}, seen(pictures())) == "refuse 1.1");
  CHECK(s.hears({2, 1}, functions({"f"})) == "refuse 2.1");
  CHECK(s.failed.size() == 1);
}

TEST_CASE("workers of a pool serve the same functions in any order") {
  auto p = pool();
  CHECK(p.hears({0, 1}, functions({"b", "a"})) == "adopt, prepare 0, give 0.1");
  CHECK(p.adopted == served(functions({"a", "b"})));
  CHECK(p.hears({1, 1}, functions({"a", "b"})) == "prepare 1, give 1.1");
  CHECK(p.hears({2, 1}, functions({"a"})) == "fail, refuse 2.1");
  CHECK(p.failed[0].code == errc::worker_program);
  CHECK(p.failed[0].message ==
        "worker 2 serves different functions than the first worker: a instead of a, b; was its program replaced in the meantime?");
}

TEST_CASE("a pool's worker in a session, and a session's worker in a pool, fail the run; the error says what to start instead") {
  auto s = stream(pictures());
  CHECK(s.hears({0, 1}, functions({"f"})) == "fail, refuse 0.1");
  CHECK(s.failed[0].message.find("serves functions of a pool (penstock::job_main)") != std::string::npos);
  auto p = pool();
  CHECK(p.hears({0, 1}, seen(pictures())) == "fail, refuse 0.1");
  CHECK(p.failed[0].message.find("see [loader] command") != std::string::npos);
}
