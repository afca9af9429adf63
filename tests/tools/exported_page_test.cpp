// The page of metrics of all sessions, from made-up pages and records.
#include "tools/penstock/metrics/exported_page.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using json = nlohmann::ordered_json;

namespace {

bool has_line(const std::string& page, const std::string& line) {
  return ("\n" + page).find("\n" + line + "\n") != std::string::npos;
}

std::size_t count(const std::string& page, const std::string& words) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = page.find(words, at)) != std::string::npos; ++at) ++n;
  return n;
}

json ended(const std::string& id) {
  return {{"id", id},
          {"session", "photos"},
          {"started", "2026-11-24T01:00:00.000000Z"},
          {"ended", "2026-11-24T02:00:00.500000Z"},
          {"outcome", "failed"},
          {"reason", "the \"dataset\" is gone"},
          {"config_file", "/data/photos.toml"},
          {"status", {{"batches_delivered", 40}, {"failed", 2}}},
          {"last_death", nullptr},
          {"last_owner_death", nullptr},
          {"quarantine", json::array()}};
}

}  // namespace

TEST_CASE("pages of two sessions become one, with each metric once and the session on each line") {
  const std::string head = "# HELP a_total Things {of} any kind.\n# TYPE a_total counter\n";
  const std::string none = "# HELP b_info Nothing yet.\n# TYPE b_info gauge\n";
  cli::merged_pages all;
  all.add("one", none + head + "a_total 1\n");
  all.add("two", head + "a_total{sample=\"x } 7\"} 2.5\n" + none + "b_info{of=\"x\"} 1\n");
  const std::string page = std::move(all).text();
  CHECK(count(page, "# HELP a_total") == 1);
  CHECK(count(page, "# HELP b_info") == 1);
  CHECK(count(page, "# TYPE b_info") == 1);
  CHECK(page.find("# TYPE a_total counter\na_total{session=\"one\"} 1\na_total{session=\"two\",sample=\"x } 7\"} 2.5\n") !=
        std::string::npos);
  CHECK(has_line(page, "b_info{session=\"two\",of=\"x\"} 1"));
}

TEST_CASE("two sessions of one name are distinguished, and one that does not answer is down") {
  const std::string info = "# HELP penstock_session_info x\n# TYPE penstock_session_info gauge\n";
  cli::merged_pages all;
  all.add("photos", info + "penstock_session_info{session=\"photos\"} 1\n");
  all.add("photos-17", info + "penstock_session_info{session=\"photos\",id=\"photos@1-17\"} 1\n");
  all.add("silent", "");
  const std::string page = std::move(all).text();
  CHECK(has_line(page, "penstock_session_info{session=\"photos\"} 1"));
  CHECK(has_line(page, "penstock_session_info{session=\"photos-17\",id=\"photos@1-17\"} 1"));
  CHECK(has_line(page, "penstock_session_up{session=\"photos\"} 1"));
  CHECK(has_line(page, "penstock_session_up{session=\"silent\"} 0"));
}

TEST_CASE("for a session that does not answer, the page has what is visible from outside") {
  cli::merged_pages all;
  all.add("silent", "", {17, true, 1764158400.5, "silent@1-17"});
  all.add("other", "", {});
  const std::string page = std::move(all).text();
  CHECK(has_line(page, R"(penstock_session_process_info{session="silent",id="silent@1-17",pid="17",process="suspended"} 1)"));
  CHECK(has_line(page, R"(penstock_session_last_seen_timestamp_seconds{session="silent"} 1764158400.5)"));
  CHECK(page.find("process_info{session=\"other\"") == std::string::npos);
}

TEST_CASE("deaths of an ended session are counted by cause") {
  json one = ended("photos@1");
  one["deaths"] = {{"worker", {{"signal", 2}, {"heartbeat", 1}}}, {"gpu", json::object()}};
  const std::string page = cli::page_of_ended({one});
  CHECK(has_line(page, R"(penstock_session_ended_deaths{session="photos",id="photos@1",of="worker",cause="signal"} 2)"));
  CHECK(has_line(page, R"(penstock_session_ended_deaths{session="photos",id="photos@1",of="worker",cause="heartbeat"} 1)"));
}

TEST_CASE("for an ended session the page says how, why and when it ended and after how many batches") {
  const std::string page = cli::page_of_ended({ended("photos@1"), ended("photos@2")});
  CHECK(has_line(page, R"(penstock_session_ended_info{session="photos",id="photos@1",outcome="failed",)"
                       R"(reason="the \"dataset\" is gone",config_file="/data/photos.toml"} 1)"));
  CHECK(has_line(page, R"(penstock_session_ended_timestamp_seconds{session="photos",id="photos@2"} 1795485600.5)"));
  CHECK(has_line(page, R"(penstock_session_ended_start_timestamp_seconds{session="photos",id="photos@2"} 1795482000)"));
  CHECK(has_line(page, R"(penstock_session_ended_batches{session="photos",id="photos@1"} 40)"));
  CHECK(has_line(page, R"(penstock_session_ended_samples_failed{session="photos",id="photos@1"} 2)"));
  CHECK(page.find("penstock_session_ended_samples{") == std::string::npos);
  CHECK(page.find("last_death_info{") == std::string::npos);
}

TEST_CASE("for an ended pool the page says how many of its jobs have a result") {
  json pool = ended("map@1");
  pool["jobs"] = {{"ok", 20}, {"failed", 1}, {"cancelled", 4}};
  const std::string page = cli::page_of_ended({pool, ended("photos@1")});
  CHECK(has_line(page, R"(penstock_session_ended_jobs{session="photos",id="map@1",outcome="failed"} 1)"));
  CHECK(has_line(page, R"(penstock_session_ended_jobs{session="photos",id="map@1",outcome="cancelled"} 4)"));
  CHECK(count(page, "penstock_session_ended_jobs{") == 3);
}

TEST_CASE("a session that died before its first status is listed") {
  json died = ended("photos@3");
  died["outcome"] = "died";
  for (const char* key : {"status", "config_file", "started"}) died[key] = nullptr;
  const std::string page = cli::page_of_ended({died});
  CHECK(page.find(R"(id="photos@3",outcome="died")") != std::string::npos);
  CHECK(page.find("penstock_session_ended_batches{") == std::string::npos);
}

TEST_CASE("the last deaths and the last 16 quarantined samples of an ended session are named") {
  json s = ended("photos@4");
  s["last_death"] = {{"worker", 3}, {"cause", "signal"}, {"signal", "SIGSEGV"}, {"code", nullptr},
                     {"sample", 5}, {"path", nullptr}, {"time", "2026-11-24T01:30:00.000000Z"}};
  s["last_owner_death"] = {{"cause", "exit"}, {"signal", nullptr}, {"code", 79}, {"last_words", "allocating\nout of memory"}, {"reason", nullptr}, {"time", "2026-11-24T01:40:00.000000Z"}};
  for (int i = 0; i < 20; ++i) s["quarantine"].push_back({{"sample", i}, {"path", "cats/tom.jpg"}});
  const std::string page = cli::page_of_ended({s});
  CHECK(has_line(page, R"(penstock_session_ended_last_death_info{session="photos",id="photos@4",of="worker",worker="3",)"
                       R"(cause="signal",reason="",signal="SIGSEGV",code="",sample="sample 5",index="5"} 1)"));
  CHECK(has_line(page, R"(penstock_session_ended_last_death_info{session="photos",id="photos@4",of="gpu",worker="",)"
                       R"(cause="exit",reason="out of memory",signal="",code="79",sample="",index=""} 1)"));
  CHECK(has_line(page, R"(penstock_session_ended_last_death_timestamp_seconds{session="photos",id="photos@4",of="gpu"} 1795484400)"));
  CHECK(count(page, "penstock_session_ended_sample_quarantined_info{") == 16);
  CHECK(has_line(page, R"(penstock_session_ended_sample_quarantined_info{session="photos",id="photos@4",)"
                       R"(sample="cats/tom.jpg",index="19"} 1)"));
}

TEST_CASE("the last 16 samples that an ended session could not load are named once each, with the reason") {
  json s = ended("photos@1");
  s["failures"] = json::array();
  for (int i = 0; i < 20; ++i)
    s["failures"].push_back({{"sample", i}, {"path", nullptr}, {"text", "sample " + std::to_string(i) + " failed: no \"end\""}});
  s["failures"].push_back(s["failures"].back());
  const std::string page = cli::page_of_ended({s});
  CHECK(count(page, "penstock_session_ended_sample_failed_info{") == 16);
  CHECK(has_line(page, R"(penstock_session_ended_sample_failed_info{session="photos",id="photos@1",sample="sample 19",)"
                       R"(index="19",reason="sample 19 failed: no \"end\""} 1)"));
}

TEST_CASE(
    "poisoned jobs of an ended pool count as jobs and not as samples, even in the record of an older version") {
  json pool = ended("map@1");
  pool["jobs"] = {{"ok", 20}};
  pool["quarantine"] = {{{"job", 7}, {"work", "./job.sh 7"}, {"sample", 7}, {"path", "./job.sh 7"}}, {{"sample", 9}, {"path", "./job.sh 9"}}};
  const std::string page = cli::page_of_ended({pool});
  CHECK(has_line(page, R"(penstock_session_ended_job_poisoned_info{session="photos",id="map@1",job="7",work="./job.sh 7"} 1)"));
  CHECK(has_line(page, R"(penstock_session_ended_job_poisoned_info{session="photos",id="map@1",job="9",work="./job.sh 9"} 1)"));
  CHECK(page.find("penstock_session_ended_sample_quarantined_info{") == std::string::npos);
}
