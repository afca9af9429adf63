#include "runtime/group/rank_files.hpp"

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace penstock::group;

TEST_CASE("ranks that are given the same names have separate files, folders and ports") {
  CHECK(with_rank("photos", 2) == "photos-rank2");
  CHECK(file_of_rank("report.json", 2) == "report.json-rank2");
  CHECK(folder_of_rank("batches", 2) == "batches/rank2");
  CHECK(sink_of_rank("journal:seen", 2) == "journal:seen-rank2");
  CHECK(address_of_rank("127.0.0.1:9464", 2) == "127.0.0.1:9466");
  CHECK(address_of_rank(":9464", 0) == ":9464");
}

TEST_CASE("paths meant to be shared by ranks stay unchanged") {
  CHECK(file_of_rank("", 2).empty());
  CHECK(folder_of_rank("", 2).empty());
  for (const char* const sink : {"null", "npy", "plugin:/lib/device.so"})
    CHECK(sink_of_rank(sink, 2) == sink);
  CHECK(address_of_rank("127.0.0.1:0", 2) == "127.0.0.1:0");  // with port 0, the kernel chooses
  CHECK(address_of_rank("", 2).empty());
}

TEST_CASE("a path to which a script has added its rank's number stays unchanged") {
  for (const char* const path :
       {"reports/rank3.json", "states/3", "report-3", "report-003.json", "log.3", "a/b_3.tar"}) {
    CHECK(names_rank(path, 3));
    CHECK_FALSE(names_rank(path, 2));
  }
  for (const char* const path : {"photos3", "data.h3", "3/report", "rank33", "report-3x", "", "-"})
    CHECK_FALSE(names_rank(path, 3));
}

TEST_CASE("a path with the number of another rank is recognised as that rank's") {
  CHECK(other_rank_named("run_2.state", 1, 4) == 2);
  CHECK(other_rank_named("run.state-rank0", 1, 4) == 0);
  CHECK_FALSE(other_rank_named("run_2.state", 2, 4));
  CHECK_FALSE(other_rank_named("run_4.state", 1, 4));  // there is no rank 4
  CHECK_FALSE(other_rank_named("run-1.2", 1, 4));      // names both
  CHECK_FALSE(other_rank_named("run.state", 1, 4));
  CHECK_FALSE(other_rank_named("", 1, 4));
}

TEST_CASE("adding the rank to a path twice changes nothing") {
  for (const std::uint32_t rank : {0U, 1U, 12U}) {
    const std::string file = file_of_rank("report.json", rank);
    CHECK(file_of_rank(file, rank) == file);
    const std::string folder = folder_of_rank("out", rank);
    CHECK(folder_of_rank(folder, rank) == folder);
    const std::string sink = sink_of_rank("journal:seen", rank);
    CHECK(sink_of_rank(sink, rank) == sink);
  }
}

TEST_CASE("no two ranks get the same file, whatever number the name ends in") {
  for (const std::string name : {"run-1", "run-1-rank2", "3", "x-rank1-rank2", "a.0"}) {
    std::set<std::string> files;
    std::set<std::string> folders;
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
      files.insert(file_of_rank(name, rank));
      folders.insert(folder_of_rank(name, rank));
    }
    CHECK(files.size() == 8);
    CHECK(folders.size() == 8);
  }
}
