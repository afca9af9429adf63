#include "runtime/storage/credentials.hpp"

#include <catch2/catch_test_macros.hpp>

#include <map>

using namespace penstock;

namespace {

using variables = std::map<std::string, std::string>;

result<s3_settings> settings(const variables& set, std::string_view credentials = "", std::string_view config = "") {
  return s3_settings_from(
      [&](const char* name) {
        const auto found = set.find(name);
        return found == set.end() ? nullptr : found->second.c_str();
      },
      credentials, config);
}

constexpr std::string_view two_profiles = R"(
# mine
[default]
aws_access_key_id = AKD
aws_secret_access_key = SKD=with=equals
[ work ]
aws_access_key_id=AKW
aws_secret_access_key=SKW
aws_session_token = TOKEN
[half]
aws_access_key_id = AKH
)";

}  // namespace

TEST_CASE("without any credentials requests are not signed") {
  const auto found = settings({});
  REQUIRE(found);
  CHECK_FALSE(found->who);
  CHECK(found->region == "us-east-1");
  CHECK(found->endpoint.empty());
}

TEST_CASE("variables take precedence over files") {
  const auto found = settings({{"AWS_ACCESS_KEY_ID", "AK"},
                               {"AWS_SECRET_ACCESS_KEY", "SK"},
                               {"AWS_SESSION_TOKEN", "T"},
                               {"AWS_REGION", "eu-west-1"},
                               {"AWS_DEFAULT_REGION", "us-west-2"},
                               {"AWS_ENDPOINT_URL", "http://localhost:9000/"}},
                              two_profiles);
  REQUIRE(found);
  CHECK(found->who == s3_credentials{"AK", "SK", "T"});
  CHECK(found->region == "eu-west-1");
  CHECK(found->endpoint == "http://localhost:9000");
}

TEST_CASE("a profile is found by name in both files") {
  CHECK(settings({}, two_profiles)->who == s3_credentials{"AKD", "SKD=with=equals", ""});
  const auto work = settings({{"AWS_PROFILE", "work"}}, two_profiles,
                             "[default]\nregion = nowhere\n[profile work]\nregion = eu-central-1\ns3 =\n  endpoint_url = x\nendpoint_url = https://store");
  REQUIRE(work);
  CHECK(work->who == s3_credentials{"AKW", "SKW", "TOKEN"});
  CHECK(work->region == "eu-central-1");
  CHECK(work->endpoint == "https://store");
}

TEST_CASE("unusable credentials are refused and named, without their contents") {
  CHECK(settings({{"AWS_PROFILE", "half"}}, two_profiles).error().message ==
        "the profile 'half' has aws_access_key_id without aws_secret_access_key");
  CHECK(settings({{"AWS_SECRET_ACCESS_KEY", "hidden"}}).error().message ==
        "AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID");
  CHECK(settings({{"AWS_PROFILE", "none"}}, two_profiles).error().message ==
        "AWS_PROFILE is 'none', but neither credentials nor config has that profile");
  CHECK(settings({}, "", "[default]\nrole_arn = arn:x").error().message.find("through 'role_arn'") != std::string::npos);
}
