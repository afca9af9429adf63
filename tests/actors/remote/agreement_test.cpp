#include "actors/remote/agreement.hpp"

#include "actors/remote/host_security.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::hosts;

namespace {

std::string path_on_host(const std::string& path, const string_map& own, const string_map& of_session = {}) {
  config settings;
  settings.dataset.path = path;
  settings.loader.hosts.path_map = of_session;
  const auto there = config_on_host(settings, own);
  return there ? there->dataset.path : "refused: " + there.error().message;
}

}  // namespace

TEST_CASE("a path is mapped by the longest folder that contains it") {
  CHECK(path_on_host("/data/train", {}) == "/data/train");
  CHECK(path_on_host("/data/train", {}, {{"/data", "/mnt"}}) == "/mnt/train");
  CHECK(path_on_host("/data/train", {{"/data", "/mnt"}, {"/data/train", "/fast"}}) == "/fast");
  CHECK(path_on_host("/database/train", {}, {{"/data", "/mnt"}}) == "/database/train");
  CHECK(path_on_host("/data/train", {{"/data", "/own"}}, {{"/data", "/mnt"}}) == "/own/train");
  CHECK(path_on_host("s3://data/train", {}, {{"/data", "/mnt"}}) == "s3://data/train");
  CHECK(path_on_host("s3://data/train", {}, {{"s3://data", "s3://copy"}}) == "s3://copy/train");
}

TEST_CASE("with --data a host reads nothing outside of its folders") {
  CHECK(path_on_host("/etc/passwd", {{"/data", "/mnt"}}).starts_with("refused: the session reads '/etc/passwd'"));
  CHECK(path_on_host("/data/../etc/passwd", {{"/data", "/mnt"}}).starts_with("refused: "));
  CHECK(path_on_host("/data/x", {{"/home", "/mnt/a"}}, {{"/data", "/mnt/b"}}).starts_with("refused: "));
  CHECK(path_on_host("/data/x", {{"/home", "/mnt/a"}}, {{"/data", "/mnt/a/b"}}) == "/mnt/a/b/x");
  CHECK(path_on_host("/data/{a,../../etc}/x", {{"/data", "/mnt"}}).starts_with("refused: "));
  CHECK(path_on_host("/data/{a,b}/x", {{"/data", "/mnt"}}) == "/mnt/{a,b}/x");
  CHECK(path_on_host("s3://data/train", {{"/data", "/mnt"}}).starts_with("refused: the session reads 's3://data/train'"));
  CHECK(path_on_host("s3://data/train", {{"s3://data", "s3://data"}}) == "s3://data/train");
  CHECK(path_on_host("https://data.org/a/../b", {{"https://data.org/a", "https://data.org/a"}}).starts_with("refused: "));
}

TEST_CASE("a path of the host is reported as the session names it") {
  config here;
  here.loader.hosts.path_map = {{"/data", "/mnt"}, {"/data/b", "/fast"}};
  using lists = std::vector<std::vector<std::string>>;
  CHECK(arguments_of_session({"/mnt/a", "--fast"}, here, {}) == lists{{"/data/a", "--fast"}});
  CHECK(arguments_of_session({"/fast/a"}, here, {}) == lists{{"/data/b/a"}});
  CHECK(arguments_of_session({"/mntx/a"}, here, {}) == lists{{"/mntx/a"}});
  CHECK(arguments_of_session({"/mnt/b/a"}, here, {}) == lists{{"/mnt/b/a"}});  // the session's /data/b is /fast here, not /mnt/b
  CHECK(arguments_of_session({"--root=/mnt/a=b", "--x=y"}, here, {}) == lists{{"--root=/data/a=b", "--x=y"}});
  CHECK(arguments_of_session({}, here, {}) == lists{{}});
}

TEST_CASE("one folder of the host can stand for several folders of the session") {
  using lists = std::vector<std::vector<std::string>>;
  config here;
  here.loader.hosts.path_map = {{"/data", "/mnt"}};
  CHECK(arguments_of_session({"/mnt/a"}, here, {{"/own", "/mnt"}}) == lists{{"/own/a"}, {"/data/a"}});
  CHECK(arguments_of_session({"/m/a"}, here, {{"/x", "/m"}, {"/y", "/m"}}) == lists{{"/x/a"}, {"/y/a"}});
  const std::vector<std::string> many(20, "/m/a");
  CHECK(arguments_of_session(many, here, {{"/x", "/m"}, {"/y", "/m"}}).size() <= 64);
  const string_map session{{"worker arguments", "[\"/y/a\"]"}};
  CHECK(difference_of_facts(session, {{"worker arguments", "[\"/x/a\"]"}, {"worker arguments", "[\"/y/a\"]"}}).empty());
  CHECK(difference_of_facts(session, {{"worker arguments", "[\"/x/a\"]"}, {"worker arguments", "[\"/z/a\"]"}}) ==
        "the host has worker arguments [\"/x/a\"], but the session has worker arguments [\"/y/a\"]");
}

TEST_CASE("the files that a list names must also be below the folders of --data") {
  const string_map own{{"/data", "/mnt"}, {"s3://data", "s3://data"}};
  CHECK(check_list("/mnt/list.txt", "# all\r\n\r\na.tar\n/mnt/{000..127}.tar\ns3://data/c.tar", own));
  for (const char* outside : {"../a.tar", "/etc/passwd", "/mnt/../etc/passwd", "{a,../../b}.tar", "{.,x}./a.tar", ".{,}./a.tar", "s3://other/a.tar", "/mntx/a.tar"}) {
    const auto refused = check_list("/mnt/list.txt", std::string("a.tar\n") + outside, own);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == std::string("line 2 of '/mnt/list.txt' is '") + outside + "', which is not below a folder of --data");
  }
}

TEST_CASE("a difference is reported with both values") {
  CHECK(difference_of_versions("1.0", protocol::version, "1.0").empty());
  CHECK(difference_of_versions("0.9", protocol::version, "1.0") == "the host runs penstock 0.9, but the session runs penstock 1.0");
  CHECK(difference_of_versions("1.0", protocol::version + 1, "1.0").starts_with("the host speaks protocol"));
  const dataset_description here{"raw", 40, {}, "abc"};
  CHECK(difference_of_datasets(here, {"raw", 40, {}, "abc"}).empty());
  CHECK(difference_of_datasets(here, {"raw", 41, {}, "abc"}) == "the host's dataset has 41 samples, but the session's has 40");
  CHECK(difference_of_datasets(here, {"raw", 40, {}, "abd"}) ==
        "the host's dataset has the fingerprint abd, but the session's has abc");
}

TEST_CASE("versions of a program that differ or are missing are reported with both values") {
  const string_map here{{"Python", "3.11.2"}, {"torch", "2.5.0"}};
  CHECK(difference_of_facts(here, {{"Python", "3.11.2"}, {"torch", "2.5.0"}, {"numpy", "1"}}).empty());
  CHECK(difference_of_facts(here, {{"Python", "3.12.0"}, {"torch", "2.5.0"}}) ==
        "the host has Python 3.12.0, but the session has Python 3.11.2");
  CHECK(difference_of_facts(here, {{"Python", "3.11.2"}}) == "the host has no torch, but the session has torch 2.5.0");
}

TEST_CASE("addresses of sessions are HOST:PORT") {
  CHECK(parse_address("trainer:7077")->name == "trainer");
  CHECK(parse_address("[fe80::1]:7077")->name == "fe80::1");
  for (const char* wrong : {"", "trainer", ":7077", "trainer:", "trainer:70777", "trainer:x"}) CHECK_FALSE(parse_address(wrong));
}
