#include "runtime/storage/url.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;

TEST_CASE("a URL is split into scheme, host and path") {
  const auto s3 = parse_url("s3://bucket/a b/train-000.tar");
  REQUIRE(s3);
  CHECK(s3->scheme == "s3");
  CHECK(s3->authority == "bucket");
  CHECK(s3->path == "/a b/train-000.tar");
  CHECK(parse_url("http://127.0.0.1:9000")->path == "/");
  CHECK(parse_url("https://[::1]:443/x")->authority == "[::1]:443");
  // S3 keys may contain these characters.
  CHECK(parse_url("s3://bucket/what?#")->path == "/what?#");
}

TEST_CASE("a URL that would reveal secrets, or that has no server, is refused") {
  CHECK(parse_url("https://me:secret@host/x").error().message.find("would appear in logs") != std::string::npos);
  CHECK(parse_url("https://me:secret@host/x").error().message.find("secret") == std::string::npos);
  CHECK(parse_url("https://host/x?X-Amz-Signature=1").error().message.find("X-Amz") == std::string::npos);
  CHECK_FALSE(parse_url("https://host/x#part"));
  CHECK(parse_url("s3:///key").error().message == "'s3:///key' names no bucket");
  CHECK(parse_url("http://:80/key").error().message == "'http://:80/key' names no host");
  CHECK_FALSE(parse_url("ftp://host/x"));
  CHECK_FALSE(is_url("s3:/bucket"));
  CHECK_FALSE(is_url("/data/s3://x"));
}

TEST_CASE("only a different scheme, host or port means a different server") {
  const auto same = [](std::string_view a, std::string_view b) { return is_same_server(*parse_url(a), *parse_url(b)); };
  CHECK(same("http://host/a", "http://host:80/b"));
  CHECK(same("https://host/a", "https://host:443/b"));
  CHECK(same("https://[::1]/a", "https://[::1]:443/b"));
  CHECK_FALSE(same("http://host/a", "http://host:8080/a"));
  CHECK_FALSE(same("http://host/a", "https://host/a"));
  CHECK_FALSE(same("http://host/a", "http://host.evil/a"));
}

TEST_CASE("keys are encoded as S3 does for signatures") {
  CHECK(percent_encoded("/a b/~c+d=\xc3\xa9", true) == "/a%20b/~c%2Bd%3D%C3%A9");
  CHECK(percent_encoded("a/b", false) == "a%2Fb");
  CHECK(path_as_sent("/a%20b c\n") == "/a%20b%20c%0A");
}
