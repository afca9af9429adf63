#include "tools/penstock/watch/sample_history.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace penstock::cli;
using json = nlohmann::ordered_json;

namespace {

json failed_event() {
  return {{"time", "2026-11-27T09:12:44.123456Z"},
          {"kind", "sample_failed"},
          {"sample", 51},
          {"path", nullptr},
          {"exception", {{"type", "ValueError"}, {"message", "no line"}, {"frames", {"data.py:12, in __getitem__", "data.py:7, in line"}}}},
          {"text", "sample 51 failed: ValueError: no line"}};
}

}  // namespace

TEST_CASE("a target can be a sample, by number or by name") {
  CHECK(sample_in_target("sample/51") == "51");
  CHECK(sample_in_target("sample/cats/tom.jpg") == "cats/tom.jpg");
  CHECK_FALSE(sample_in_target("sample/"));
  CHECK_FALSE(sample_in_target("samples"));
  CHECK_FALSE(sample_in_target("worker/3"));
}

TEST_CASE("events belong to a sample by its number, or by its name if it has none") {
  CHECK(is_about_sample({{"sample", 51}, {"path", "a.jpg"}}, "51"));
  CHECK(is_about_sample({{"sample", 51}, {"path", "a.jpg"}}, "a.jpg"));
  CHECK_FALSE(is_about_sample({{"sample", 5}, {"path", nullptr}}, "51"));
  CHECK(is_about_sample({{"sample", nullptr}, {"path", "sample cat"}}, "cat"));
  CHECK(is_about_sample({{"sample", nullptr}, {"path", "cat"}}, "cat"));
  CHECK_FALSE(is_about_sample({{"sample", nullptr}, {"path", nullptr}}, "51"));
  CHECK_FALSE(is_about_sample({{"kind", "paused"}}, "51"));
}

TEST_CASE("a sample's history has the frames of its exception, the raising line first") {
  const std::string text = history_for_people({{"events", {failed_event()}}, {"quarantine", nullptr}}, 0);
  CHECK(text ==
        "sample 51\n"
        "  11-27 09:12:44    sample 51 failed: ValueError: no line\n"
        "    raised at       data.py:7, in line\n"
        "    called from     data.py:12, in __getitem__\n");
}

TEST_CASE("a sample's history has each stack of its dead workers once, with the attempts that ended there") {
  const json stacks{{{"attempts", {"1", "3"}}, {"lines", {"decode at data.py:7", "(5 frames of penstock and Python)"}}},
                    {{"attempts", {"2"}}, {"lines", {"read at data.py:3"}}}};
  CHECK(history_for_people({{"events", {failed_event()}}, {"quarantine", nullptr}, {"stacks", stacks}}, 0)
            .ends_with("  stack             the same in attempts 1 and 3:\n"
                       "                    decode at data.py:7\n"
                       "                    (5 frames of penstock and Python)\n"
                       "  stack             of attempt 2:\n"
                       "                    read at data.py:3\n"));
}

TEST_CASE("deaths in a sample's history are those blamed on it") {
  json about{{"events", {failed_event(), failed_event(), failed_event()}}};
  about["events"][1]["death"] = {{"attempt", 2}};
  about["events"][2]["death"] = {{"attempt", 0}};
  CHECK(deaths_in_history(about) == json::array({json{{"attempt", 2}}}));
}

TEST_CASE("status counts what earlier runs quarantined apart from what this one did") {
  json status{{"jobs", {{"of_batches", true}}}, {"failed", 4}, {"quarantined", 0}, {"samples_done", 10}, {"samples_delivered", 8}};
  CHECK(lost_for_people(status) == "4 sample failures, 0 samples quarantined; samples were left out of batches 2 times");
  status["quarantined_before"] = 1;
  CHECK(lost_for_people(status) ==
        "4 sample failures, 0 samples quarantined and 1 by earlier runs (`penstock quarantine list`); samples were left out of batches 2 times");
}

TEST_CASE("a sample quarantined by an earlier run has no events") {
  const json listed{{"sample", 7}, {"path", "cats/tom.jpg"}, {"causes", {"SIGABRT", "SIGABRT"}}, {"known", true}};
  CHECK(history_for_people({{"events", json::array()}, {"quarantine", listed}}, 0) ==
        "sample 7 (cats/tom.jpg)\n"
        "  quarantined       by an earlier run: 2 x SIGABRT\n");
}

namespace {

/// A session with one worker that loads this sample.
json status_while_loading() {
  return {{"state", "ok"},
          {"outcome", "running"},
          {"epoch", 0},
          {"workers", {{{"id", 3}, {"pid", 17}, {"current_sample", "cats/tom.jpg"}, {"current_index", 51}, {"current_attempt", 2}, {"current_sample_seconds", 14.2}}}}};
}

const json no_quarantine{{"quarantine", json::array()}};

json death_over_51() {
  return {{"time", "2026-11-27T09:12:44.123456Z"}, {"kind", "worker_died"}, {"sample", 51}, {"path", "cats/tom.jpg"},
          {"epoch", 0}, {"seq", 3}, {"text", "worker 1 (pid 16) ended: SIGSEGV, while loading sample 51 (cats/tom.jpg)"}};
}

json recovery_of(int seq) {
  return {{"time", "2026-11-27T09:12:45.123456Z"}, {"kind", "batch_recovered"}, {"sample", nullptr}, {"path", nullptr},
          {"epoch", 0}, {"seq", seq}, {"text", "batch 3 of epoch 0 was loaded by another worker, because the first one's process ended"}};
}

}  // namespace

TEST_CASE("while a sample is being loaded, its history says by whom, for how long and at which attempt") {
  for (const char* const name : {"51", "cats/tom.jpg"}) {
    const json about = history_of(name, status_while_loading(), json::array(), no_quarantine);
    REQUIRE(about.at("loading").size() == 1);
    CHECK(about.at("loading")[0].at("worker") == 3);
    CHECK(history_for_people(about, 0) ==
          "sample 51 (cats/tom.jpg)\n"
          "  loading now       by worker/3 (pid 17) for 14.2 s, attempt 2\n");
  }
  CHECK(history_of("5", status_while_loading(), json::array(), no_quarantine).at("loading").empty());
}

TEST_CASE("after a session was killed, the history of the sample that it waited for says by whom and since when it was being loaded") {
  json killed = status_while_loading();
  killed["state"] = "ended";
  killed["outcome"] = "died";
  killed["status_time"] = "2026-11-27T09:12:59.123456Z";
  killed["stalled"] = {{"kind", "sample"}, {"text", "waiting for worker/3"}, {"seconds", 44.2}, {"worker", 3}};
  CHECK(history_for_people(history_of("51", killed, json::array({death_over_51()}), no_quarantine), 0) ==
        "sample 51 (cats/tom.jpg)\n"
        "  11-27 09:12:44    worker 1 (pid 16) ended: SIGSEGV, while loading sample 51 (cats/tom.jpg)\n"
        "  was being loaded  by worker/3 (pid 17) for 14.2 s, attempt 2, when its status was recorded at 2026-11-27 09:12:59.123; the stream had made "
        "no progress for 44.2 s\n");
  killed["workers"][0]["current_sample"] = nullptr;  // the session ended in an orderly way
  CHECK(history_of("51", killed, json::array(), no_quarantine).at("loading").empty());
}

TEST_CASE("in a data loader the sample that is being loaded is known by its name, and the time may be that of its batch") {
  json status = status_while_loading();
  status["jobs"] = {{"of_batches", true}};
  status["workers"][0]["current_sample"] = "sample 37 (job 8)";
  for (const char* const of_sample : {"current_index", "current_attempt"}) status["workers"][0][of_sample] = nullptr;
  CHECK(history_for_people(history_of("37", status, json::array(), no_quarantine), 0) ==
        "sample 37\n  loading now       by worker/3 (pid 17), in a batch begun 14.2 s ago\n");
  status["workers"][0]["current_work_seconds"] = 2;
  CHECK(history_for_people(history_of("37", status, json::array(), no_quarantine), 0).ends_with(" for 2 s\n"));
}

TEST_CASE("after a death over a sample its history says that another worker loaded its batch, and that the batch was delivered") {
  json status = status_while_loading();
  status["workers"] = json::array();
  const json events{death_over_51(), recovery_of(4), recovery_of(3)};
  json about = history_of("51", status, events, no_quarantine);
  CHECK(about.at("events") == json{death_over_51(), recovery_of(3)});
  CHECK(about.at("batch") == json{{"epoch", 0}, {"seq", 3}, {"with_it", true}, {"delivered", false}});
  CHECK(history_for_people(about, 0).find("delivered") == std::string::npos);
  status["epoch"] = 1;
  about = history_of("51", status, events, no_quarantine);
  CHECK(history_for_people(about, 0).ends_with("was loaded by another worker, because the first one's process ended\n"
                                               "  delivered         batch 3 of epoch 0, with it\n"));
  json failed = failed_event();
  failed["epoch"] = 0;
  failed["seq"] = 3;
  status["epoch"] = 0;
  const json epoch_done{{"kind", "epoch_done"}, {"sample", nullptr}, {"path", nullptr}, {"epoch", 0}};
  about = history_of("51", status, {failed, epoch_done}, no_quarantine);
  CHECK(history_for_people(about, 0).ends_with("  delivered         batch 3 of epoch 0, without it\n"));
}

TEST_CASE("the history of a sample that was lost with its batch says which batch that was, and which sample is to blame") {
  const json lost{{"time", "2026-11-27T09:12:44.123456Z"}, {"kind", "batch_lost"}, {"sample", 61}, {"path", nullptr}, {"epoch", 0}, {"seq", 20},
                  {"samples", {60, 61, 62}}, {"samples_unlisted", 0}, {"text", "3 samples are lost with batch 20 of epoch 0, because sample 61 raised ValueError"}};
  const json events = json::array({lost});
  json status = status_while_loading();
  status["workers"] = json::array();
  status["outcome"] = "finished";
  const std::string line = "  11-27 09:12:44    3 samples are lost with batch 20 of epoch 0, because sample 61 raised ValueError\n";
  for (const char* const sample : {"60", "61"}) {
    const json about = history_of(sample, status, events, no_quarantine);
    CHECK(history_for_people(about, 0) == "sample " + std::string(sample) + "\n" + line);  // and not that the batch was delivered
  }
  CHECK(history_of("59", status, events, no_quarantine).at("events").empty());
  CHECK(history_of("cat", status, events, no_quarantine).at("events").empty());
}

TEST_CASE("where nothing is recorded of a sample, samples lost with a batch are mentioned if events do not list them") {
  const json status = status_while_loading();
  const json listed{{"kind", "batch_lost"}, {"samples", {5, 6}}, {"samples_unlisted", 0}};
  const json longer{{"kind", "batch_lost"}, {"samples", {5, 6}}, {"samples_unlisted", 7}};
  CHECK(nothing_recorded_of("60", status, json::array({listed})).ends_with("Single samples that were delivered are not recorded"));
  CHECK(nothing_recorded_of("60", status, json::array({listed, longer, longer}))
            .ends_with("Single samples that were delivered are not recorded; 14 samples were lost with a batch without being listed (`penstock events`)"));
}

TEST_CASE("a number that no sample of the dataset has is refused, if the dataset has a length") {
  json status = status_while_loading();
  const json none = json::array();
  CHECK(nothing_recorded_of("5000", status, none).starts_with("nothing is recorded of sample 5000"));  // an older session does not say
  status["dataset_samples"] = nullptr;
  CHECK(nothing_recorded_of("5000", status, none).starts_with("nothing is recorded of sample 5000"));
  status["dataset_samples"] = 640;
  CHECK(nothing_recorded_of("640", status, none) == "there is no sample 640: the dataset has 640 samples (0 to 639)");
  CHECK(nothing_recorded_of("639", status, none).starts_with("nothing is recorded of sample 639"));
  CHECK(nothing_recorded_of("cats/tom.jpg", status, none).starts_with("nothing is recorded of sample cats/tom.jpg"));
  status["dataset_samples"] = 1;
  CHECK(nothing_recorded_of("1", status, none) == "there is no sample 1: the dataset has 1 sample");
}
