// Sends GET requests over HTTP, many at a time, on one thread. Reuses connections, repeats a request
// after a transient error, and sends a second request when an answer takes much longer than others.
// Used by the object store.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"
#include "runtime/storage/checksum.hpp"
#include "runtime/storage/readable.hpp"
#include "runtime/storage/url.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct transfer_request {
  url to;             ///< http or https, with the path in the form in which it is sent
  std::string query;  ///< encoded, without '?'
  std::optional<byte_range> range;
  std::string expected_tag;     ///< the ETag that the answer must have; empty: any
  std::uint64_t bytes_max = 0;  ///< size limit of the body, if no range is requested
  bool may_sign = false;
  bool is_whole = false;  ///< the range is the whole object, so checksums can be checked
};

struct transfer_answer {
  std::vector<std::byte> body;
  std::string tag;                ///< the ETag, else "modified " and Last-Modified, else empty
  std::uint64_t object_bytes = 0;  ///< size of the whole object, if the request had a range
  std::vector<stated_sum> sums;    ///< checksums of the whole object that the store sent, apart from the ETag
  bool tag_may_be_sum = true;      ///< false: the object's encryption makes its ETag something other than an MD5
};

/// Signs requests. The transfers call it for each attempt.
struct request_signer {
  /// Lines "Name: value" to add. Called on the thread of the transfers.
  std::function<std::vector<std::string>(const transfer_request&)> headers;
  /// Called after a refusal. Reads the credentials again and returns whether they have changed.
  std::function<bool()> renewed;
};

struct transfer_counts {
  std::uint64_t attempts = 0;
  std::uint64_t retries = 0;
  std::uint64_t hedges = 0;
};

class transfers {
 public:
  class exchange;
  using ticket = std::shared_ptr<exchange>;

  /// `patience`: time limit of one exchange, including all its attempts. Refuses what curl_library refuses, and
  /// (errc::system) a failure to start the thread.
  static result<std::unique_ptr<transfers>> open(nanoseconds patience, request_signer signer);
  ~transfers();
  transfers(const transfers&) = delete;
  transfers& operator=(const transfers&) = delete;

  // Thread-safe.
  ticket start(transfer_request request);
  /// Waits for the answer and takes it; call it once for each ticket. Refuses an object that cannot be fetched
  /// (errc::io) or that has a different tag than expected_tag (errc::dataset). The message is meant to follow an
  /// object's name: "answers HTTP 404: there is no such object".
  result<transfer_answer> wait(const ticket& of);
  [[nodiscard]] transfer_counts counts() const;

 private:
  class loop;
  explicit transfers(std::unique_ptr<loop> running);

  std::unique_ptr<loop> loop_;
};

/// Whether the ETag is a strong one, so that If-Match can be used to check an answer.
bool is_strong_tag(std::string_view tag) noexcept;

}  // namespace penstock
