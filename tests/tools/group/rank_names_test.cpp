#include "tools/penstock/group/rank_names.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::cli;

namespace {

std::vector<named_session> sessions(std::initializer_list<const char*> names) {
  std::vector<named_session> all;
  for (const char* name : names) all.push_back({name, std::string("/run/") + name});
  return all;
}

}  // namespace

TEST_CASE("a rank is named after its group, and other names are not ranks") {
  const auto rank = parse_rank_name("a-rank1-rank12");
  REQUIRE(rank);
  CHECK(rank->group == "a-rank1");
  CHECK(rank->rank == 12);
  for (const char* name : {"", "photos", "photos-rank", "-rank0", "photos-rank0-471", "photos-rankx",
                           "photos-rank-1", "photos-rank99999999999"})
    CHECK_FALSE(parse_rank_name(name));
}

TEST_CASE("the ranks of a group are found among other sessions, in their order") {
  const auto groups = groups_among(sessions({"b-rank0", "a-rank10", "other", "a-rank2"}));
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].name == "a");
  REQUIRE(groups[0].ranks.size() == 2);
  CHECK(groups[0].ranks[0].rank == 2);
  CHECK(groups[0].ranks[1].session.socket == "/run/a-rank10");
}

TEST_CASE("two launches of one file are two groups, whatever names their sessions have") {
  using penstock::control::rank_note;
  const std::vector<named_session> live{
      {"photos-rank0", "/a", rank_note{"launch-1", "photos", 0}},
      {"photos-rank1", "/b", rank_note{"launch-1", "photos", 1}},
      {"photos-rank0-471", "/c", rank_note{"launch-2", "photos", 0}},  // the name "photos-rank0" was taken
      {"photos-rank2", "/d", rank_note{"launch-2", "photos", 2}},
      {"photos-rank7", "/e", {}},  // its launch is unknown
      {"other-rank0", "/f", rank_note{"launch-1", "other", 0}},
  };
  const auto groups = groups_among(live);
  REQUIRE(groups.size() == 4);
  CHECK(groups[0].full_name() == "launch-1/other");
  CHECK(groups[1].full_name() == "photos");
  CHECK(groups[2].full_name() == "launch-1/photos");
  CHECK(groups[3].full_name() == "launch-2/photos");
  REQUIRE(groups[3].ranks.size() == 2);
  CHECK(groups[3].ranks[0].session.socket == "/c");
  CHECK(groups[3].ranks[1].rank == 2);
  CHECK(groups_named(groups, "other").size() == 1);
  REQUIRE(groups_named(groups, "launch-2/photos").size() == 1);
  CHECK(groups_named(groups, "launch-2/photos")[0].job == "launch-2");
  CHECK(groups_named(groups, "launch-3/photos").empty());
  CHECK_FALSE(only_group({live[0], live[2]}));
  CHECK(only_group({live[0], live[1]}));
  CHECK(groups_named(groups, "photos").size() == 3);
}

TEST_CASE("without a name a verb means the group only if no other session is live") {
  CHECK(only_group(sessions({"a-rank0", "a-rank1"})));
  CHECK_FALSE(only_group(sessions({})));
  CHECK_FALSE(only_group(sessions({"a-rank0"})));  // a single rank alone: verbs show its session
  CHECK_FALSE(only_group(sessions({"a-rank0", "a-rank1", "other"})));
  CHECK_FALSE(only_group(sessions({"a-rank0", "b-rank0"})));
}
