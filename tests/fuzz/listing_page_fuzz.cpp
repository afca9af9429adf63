// Answers of S3 servers: arbitrary bytes in place of lists and errors are read or refused.
#include "runtime/storage/listing_page.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <cstdlib>

using namespace penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view xml(reinterpret_cast<const char*>(data), size);
  const auto page = parse_listing_page(xml);
  if (!page && page.error().message.empty()) std::abort();
  if (page)
    for (const listed_object& one : page->objects)
      if (one.key.empty()) std::abort();
  if (error_code_of(xml).size() > 64) std::abort();
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a&amp;&#65;&#x1f600;.tar</Key><ETag>&quot;x&quot;</ETag>"
      "<Size>10240</Size></Contents><NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
      "<?xml version='1.0'?><Error><Code>ExpiredToken</Code></Error>"};
}
