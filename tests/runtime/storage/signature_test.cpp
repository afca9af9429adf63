#include "runtime/storage/signature.hpp"

#include "runtime/storage/sha256.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;

namespace {

// The time, key and scope of AWS's published test suite for Signature Version 4.
constexpr std::chrono::sys_seconds suite_time{std::chrono::seconds(1440938160)};
const s3_credentials suite_key{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
const std::string no_body = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The signature of a GET in the suite.
std::string suite_signature(const std::string& path, const std::string& query, std::vector<http_header> more = {},
                            const std::string& method = "GET") {
  request_to_sign request{method, path, query, {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}}, no_body};
  request.headers.insert(request.headers.end(), more.begin(), more.end());
  const std::string text = authorization_for(request, suite_key, {"us-east-1", "service"}, suite_time);
  return text.substr(text.rfind('=') + 1);
}

// The examples in Amazon's manual "Signature Calculations for the Authorization Header".
constexpr std::chrono::sys_seconds manual_time{std::chrono::seconds(1369353600)};
const s3_credentials manual_key{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};

std::string manual_signature(const std::string& path, const std::string& query, std::vector<http_header> more = {}) {
  request_to_sign request{"GET", path, query,
                          {{"host", "examplebucket.s3.amazonaws.com"}, {"x-amz-content-sha256", no_body}, {"x-amz-date", "20130524T000000Z"}},
                          no_body};
  request.headers.insert(request.headers.end(), more.begin(), more.end());
  const std::string text = authorization_for(request, manual_key, {"us-east-1", "s3"}, manual_time);
  return text.substr(text.rfind('=') + 1);
}

}  // namespace

TEST_CASE("SHA-256 gives the hashes of FIPS 180-4 at every length around a block") {
  CHECK(hex_of(sha256("")) == no_body);
  CHECK(hex_of(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex_of(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex_of(sha256(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("HMAC-SHA-256 gives the hashes of RFC 4231, with short and long keys") {
  CHECK(hex_of(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex_of(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("the requests of AWS's test suite get the signatures given there") {
  CHECK(amz_date(suite_time) == "20150830T123600Z");
  CHECK(suite_signature("/", "") == "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  CHECK(suite_signature("/", "Param1=value1&Param2=value2") ==
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  CHECK(suite_signature("/%E1%88%B4", "") == "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
}

TEST_CASE("the requests in Amazon's manual for S3 get the signatures printed there") {
  CHECK(manual_signature("/test.txt", "", {{"range", "bytes=0-9"}}) ==
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  CHECK(manual_signature("/", "lifecycle=") == "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  CHECK(manual_signature("/", "max-keys=2&prefix=J") ==
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("a session token is sent, and signed") {
  const s3_credentials temporary{"AK", "SK", "the-token"};
  const auto headers = s3_headers("host", "/key", "", temporary, "eu-west-1", suite_time);
  REQUIRE(headers.size() == 4);
  CHECK(headers[2] == http_header{"x-amz-security-token", "the-token"});
  CHECK(headers[3].second.find("20150830/eu-west-1/s3/aws4_request") != std::string::npos);
  CHECK(headers[3].second.find("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token") !=
        std::string::npos);
  CHECK(headers[3].second.find("SK") == std::string::npos);
}
