#include "tools/penstock/launch/session_ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace penstock::cli;

namespace {

/// The value of an option; the last one counts.
std::string value_of(const std::vector<std::string>& words, const std::string& option,
                     const std::string& key = {}) {
  std::string found = "(none)";
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == option && words[i + 1].starts_with(key)) found = words[i + 1];
  }
  return found;
}

}  // namespace

TEST_CASE("each rank runs the same file, with its own name, device, files and port") {
  const session_work work{"photos.toml", "photos",  "127.0.0.1:9100", {"--epochs", "2"},
                          "npy",         "batches", "/tmp/x"};
  const auto words = rank_arguments(work, {launch_gpu{5, "H100", "GPU-f", {}}, {}}, 3);
  CHECK(words[0] == "run");
  CHECK(words[1] == "photos.toml");
  CHECK(value_of(words, "--epochs") == "2");
  CHECK(value_of(words, "--set", "name=") == "name=photos-rank3");
  CHECK(value_of(words, "--set", "sampler.rank=") == "sampler.rank=auto");
  CHECK(value_of(words, "--set", "metrics.listen=") == "metrics.listen=127.0.0.1:9103");
  CHECK(value_of(words, "--device") == "cuda:3");  // as CUDA_VISIBLE_DEVICES numbers it
  CHECK(value_of(words, "--out") == "batches/rank3");
  CHECK(value_of(words, "--report") == "/tmp/x/rank3.json");
}

TEST_CASE("ranks without a GPU use the host device, and a port that the kernel chooses is unchanged") {
  const session_work work{"bytes.toml", "bytes", "127.0.0.1:0", {}, "journal:j", "", "/tmp/x"};
  const auto words = rank_arguments(work, {}, 1);
  CHECK(value_of(words, "--device") == "host");
  CHECK(value_of(words, "--set", "metrics.listen=") == "metrics.listen=127.0.0.1:0");
  CHECK(value_of(words, "--sink") == "journal:j-rank1");
  CHECK(value_of(words, "--out") == "(none)");
}

TEST_CASE("a rank's report is its session's, with rank and world size, and a rank without one has failed") {
  const auto report =
      rank_report(R"({"schema":"penstock.run/1","outcome":"finished"})", 1, 4, {{"end", "exit code 0"}});
  CHECK(report["outcome"] == "finished");
  CHECK(report["rank"] == 1);
  CHECK(report["world_size"] == 4);
  CHECK(report["process"]["end"] == "exit code 0");
  for (const char* nothing : {"", "{", "[]"}) {
    const auto none = rank_report(nothing, 0, 4, {{"end", "SIGKILL"}});
    CHECK(none["outcome"] == "failed");
    CHECK(none["error"] == "it wrote no report: SIGKILL");
  }
}

TEST_CASE("a session's own error is the cause") {
  const reported_cause why = cause_in(R"({"error":"no such folder","error_kind":"io"})");
  CHECK(why.text == "no such folder");
  CHECK_FALSE(why.rank);
  for (const char* nothing : {R"({"error":null})", "", "[]", R"({"group":null})"})
    CHECK(cause_in(nothing).text.empty());
}

TEST_CASE("a session that ends with its group reports the group's first cause") {
  const reported_cause why =
      cause_in(R"({"error":"rank 2 (node7, pid 4711): no such folder",)"
               R"("group":{"first_cause":{"rank":2,"host":"node7","pid":4711,"cause":"no such folder"}}})");
  CHECK(why.text == "no such folder");
  CHECK(why.rank == 2);
  CHECK(why.pid == 4711);
}

TEST_CASE("a rank that never arrived is reported with the error of a rank that waited for it") {
  const reported_cause why = cause_in(
      R"({"error":"rank 1 did not arrive within 2m",)"
      R"("group":{"first_cause":{"rank":1,"host":"","pid":0,"cause":"rank 1 did not arrive within 2m"}}})");
  CHECK(why.text == "rank 1 did not arrive within 2m");
  CHECK_FALSE(why.rank);
}
