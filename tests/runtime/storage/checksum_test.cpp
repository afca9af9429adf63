#include "runtime/storage/checksum.hpp"

#include "runtime/storage/sha256.hpp"

#include <catch2/catch_test_macros.hpp>

#include <string>

using namespace penstock;

namespace {

std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

TEST_CASE("the checksums of stores match the published check values") {
  const std::string_view digits = "123456789";
  CHECK(has_sum(bytes_in(digits), {sum_kind::crc32, "y/Q5Jg=="}) == true);             // base64 of cbf43926
  CHECK(has_sum(bytes_in(digits), {sum_kind::crc32c, "4waSgw=="}) == true);            // e3069283
  CHECK(has_sum(bytes_in(digits), {sum_kind::crc64nvme, "rosUhgp5mIg="}) == true);     // ae8b14860a799888
  CHECK(has_sum(bytes_in(digits), {sum_kind::crc32, "y/Q5Jw=="}) == false);
  CHECK(has_sum(bytes_in(""), {sum_kind::crc64nvme, "AAAAAAAAAAA="}) == true);
  if (!check_sha256()) SKIP("OpenSSL 3 is missing");
  CHECK(has_sum(bytes_in(digits), {sum_kind::md5, "JfnnlDI7RTiF9RgfG2JNCw=="}).value_or(true));
  CHECK(has_sum(bytes_in(digits), *sum_in_tag("\"25f9e794323b453885f5181f1b624d0b\"")).value_or(true));
  CHECK(has_sum(bytes_in("abc"), {sum_kind::sha256, "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="}) == true);
  CHECK(has_sum(bytes_in("abd"), {sum_kind::sha256, "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="}) == false);
}

TEST_CASE(
    "a checksum computed over eight bytes at a time equals the one over single bytes, at every length") {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += static_cast<char>(i * 37 + 11);
    std::uint64_t plain = 0xffffffffU;
    for (const char c : text) {
      plain ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) plain = (plain >> 1U) ^ ((plain & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    plain ^= 0xffffffffU;
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string stated;
    for (int digit = 7; digit >= 2; --digit) stated += digits[plain << 16U >> 6 * digit & 0x3fU];
    stated += "==";
    CHECK(has_sum(bytes_in(text), {sum_kind::crc32c, stated}) == true);
  }
}

TEST_CASE("headers and tags are used only for checksums of whole objects") {
  CHECK(sum_in_header("X-Amz-Checksum-CRC64NVME", "rosUhgp5mIg=")->kind == sum_kind::crc64nvme);
  CHECK(sum_in_header("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")->kind == sum_kind::md5);
  CHECK_FALSE(sum_in_header("x-amz-checksum-crc32", "y/Q5Jg==-3"));
  CHECK_FALSE(sum_in_header("x-amz-checksum-sha1", "x"));
  CHECK_FALSE(sum_in_header("x-amz-checksum-crc32", ""));
  CHECK(sum_in_tag("\"25f9e794323b453885f5181f1b624d0b\""));
  CHECK_FALSE(sum_in_tag("\"25f9e794323b453885f5181f1b624d0b-3\""));
  CHECK_FALSE(sum_in_tag("W/\"25f9e794323b453885f5181f1b624d0b\""));
  CHECK_FALSE(sum_in_tag("\"v1\""));
}
