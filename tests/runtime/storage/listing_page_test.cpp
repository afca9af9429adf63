#include "runtime/storage/listing_page.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;

TEST_CASE("a page of objects is read with keys, sizes and versions") {
  const auto page = parse_listing_page(
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated>"
      "<Contents><Key>a/t&amp;&#x20;&#233;.tar</Key><Size>10240</Size><ETag>&quot;abc&quot;</ETag></Contents>"
      "<Contents><ETag>\"d\"</ETag><Key>a/u.tar</Key><Size>0</Size></Contents>"
      "<NextContinuationToken>to&amp;ken</NextContinuationToken></ListBucketResult>");
  REQUIRE(page);
  REQUIRE(page->objects.size() == 2);
  CHECK(page->objects[0].key == "a/t& \xc3\xa9.tar");
  CHECK(page->objects[0].bytes == 10240);
  CHECK(page->objects[0].tag == "\"abc\"");
  CHECK(page->objects[1].tag == "\"d\"");
  CHECK(page->next == "to&ken");
}

TEST_CASE("an empty list and the last page of a list have no next page") {
  const auto page = parse_listing_page("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
  REQUIRE(page);
  CHECK(page->objects.empty());
  CHECK(page->next.empty());
}

TEST_CASE("an answer that is not a list is refused") {
  CHECK_FALSE(parse_listing_page(""));
  CHECK_FALSE(parse_listing_page("<html><ListBucket></html>"));
  CHECK_FALSE(parse_listing_page("<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>"));
  CHECK_FALSE(parse_listing_page("<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>"));
  CHECK_FALSE(parse_listing_page("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"));
}

TEST_CASE("every prefix of a page is read or refused") {
  const std::string whole =
      "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>&lt;&#x;&bad;</Key><Size>7</Size></Contents>"
      "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>";
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) (void)parse_listing_page(whole.substr(0, bytes));
  CHECK(parse_listing_page(whole)->objects.front().key == "<&#x;&bad;");
}

TEST_CASE("the code of an error answer is read, and no other answer is taken for an error") {
  CHECK(error_code_of("<?xml?><Error><Code>ExpiredToken</Code><Message>m</Message></Error>") == "ExpiredToken");
  CHECK(error_code_of("<html><Code>x</Code></html>").empty());
  CHECK(error_code_of("<Error><Code>with \x1b[31m escapes</Code></Error>").empty());
}
