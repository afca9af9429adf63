#include "runtime/storage/attempt.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/storage/listing_page.hpp"
#include "runtime/storage/retry.hpp"

#include <cerrno>
#include <charconv>
#include <strings.h>

namespace penstock {
namespace {

using outcome = attempt::outcome;
using kind = attempt::outcome::kind;

constexpr std::uint64_t error_body_max = 16 * KiB;

template <class... Args>
outcome failed(kind what, fmt::format_string<Args...> format, Args&&... args) {
  return {what, failure{errc::io, fmt::format(format, std::forward<Args>(args)...), 0}};
}

bool is_success(int status) noexcept {
  return status == 200 || status == 206;
}

/// "bytes 8-9/1234": 8.
std::optional<std::uint64_t> begin_of(std::string_view content_range) {
  constexpr std::string_view unit = "bytes ";
  if (!content_range.starts_with(unit)) return std::nullopt;
  content_range.remove_prefix(unit.size());
  return whole_number<std::uint64_t>(content_range.substr(0, content_range.find('-')));
}

/// "bytes 8-9/1234": 1234.
std::optional<std::uint64_t> whole_of(std::string_view content_range) {
  const std::size_t slash = content_range.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return whole_number<std::uint64_t>(content_range.substr(slash + 1));
}

}  // namespace

bool is_strong_tag(std::string_view tag) noexcept {
  return tag.starts_with('"');
}

attempt::attempt(const curl_library& curl, const transfer_request& request, const std::vector<std::string>& headers,
                 steady_time now)
    : curl_(curl), request_(request), began_(now), easy_(curl.curl_easy_init()) {
  for (const std::string& line : headers) headers_ = curl.curl_slist_append(headers_, line.c_str());
  if (is_strong_tag(request.expected_tag))
    headers_ = curl.curl_slist_append(headers_, ("If-Match: " + request.expected_tag).c_str());
  const auto set = [&](CURLoption option, auto value) { curl.curl_easy_setopt(easy_, option, value); };
  const std::string address = fmt::format("{}://{}{}{}{}", request.to.scheme, request.to.authority, request.to.path,
                                          request.query.empty() ? "" : "?", request.query);
  set(CURLOPT_URL, address.c_str());
  set(CURLOPT_HTTPHEADER, headers_);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_ERRORBUFFER, error_.data());
  set(CURLOPT_CONNECTTIMEOUT_MS, 5000L);
  // Give up a connection on which nothing arrives for 8 s.
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, 8L);
  set(CURLOPT_TCP_NODELAY, 1L);
  set(CURLOPT_BUFFERSIZE, 256L * 1024L);
  set(CURLOPT_USERAGENT, "penstock");
  set(CURLOPT_WRITEFUNCTION, &attempt::body_part);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_HEADERFUNCTION, &attempt::header_line);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(CURLOPT_PRIVATE, static_cast<void*>(this));
  body_max_ = request.bytes_max;
  if (request.range) {
    const std::string range = fmt::format("{}-{}", request.range->at, request.range->at + request.range->bytes - 1);
    set(CURLOPT_RANGE, range.c_str());
    body_max_ = request.range->bytes;
    body_.reserve(request.range->bytes);
  }
}

attempt::~attempt() {
  curl_.curl_easy_cleanup(easy_);
  curl_.curl_slist_free_all(headers_);
}

std::size_t attempt::body_part(char* data, std::size_t size, std::size_t count, void* self) {
  attempt& to = *static_cast<attempt*>(self);
  const std::size_t bytes = size * count;
  const std::uint64_t most = is_success(to.status_) ? to.body_max_ : error_body_max;
  const bool unranged = to.status_ == 200 && to.request_.range.has_value();
  if (unranged || to.body_.size() + bytes > most) {
    to.too_long_ = true;
    return 0;
  }
  const auto* const from = reinterpret_cast<const std::byte*>(data);
  to.body_.insert(to.body_.end(), from, from + bytes);
  return bytes;
}

std::size_t attempt::header_line(char* data, std::size_t size, std::size_t count, void* self) {
  static_cast<attempt*>(self)->take_header(std::string_view(data, size * count));
  return size * count;
}

void attempt::take_header(std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {
    answered_ = std::chrono::steady_clock::now();
    const std::size_t blank = line.find(' ');
    status_ = 0;
    if (blank != std::string_view::npos)
      std::from_chars(line.data() + blank + 1, line.data() + line.size(), status_);
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = line.substr(0, colon);
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  const auto is = [&](std::string_view wanted) {
    return name.size() == wanted.size() && ::strncasecmp(name.data(), wanted.data(), name.size()) == 0;
  };
  if (is("etag")) etag_ = value;
  if (is("last-modified")) modified_ = value;
  if (is("location")) location_ = value;
  if (is("content-range")) content_range_ = value;
  if (is("x-amz-bucket-region")) region_ = value;
  if (is("x-amz-server-side-encryption-customer-algorithm") || (is("x-amz-server-side-encryption") && value != "AES256"))
    tag_may_be_sum_ = false;
  if (auto sum = sum_in_header(name, value)) sums_.push_back(std::move(*sum));
}

std::string attempt::tag() const {
  if (!etag_.empty()) return etag_;
  return modified_.empty() ? std::string() : "modified " + modified_;
}

outcome attempt::outcome_of(CURLcode result) const {
  const bool whole_answer = result == CURLE_OK || (result == CURLE_WRITE_ERROR && too_long_);
  if (!whole_answer) return transport_outcome(result);
  return is_success(status_) ? body_outcome() : status_outcome();
}

outcome attempt::transport_outcome(CURLcode result) const {
  const std::string text = printable(error_[0] != '\0' ? error_.data() : curl_.curl_easy_strerror(result));
  outcome found = failed(kind::refused, "cannot be fetched: {}", text);
  long os_code = 0;
  curl_.curl_easy_getinfo(easy_, CURLINFO_OS_ERRNO, &os_code);
  switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: found.no_connection = true; [[fallthrough]];
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: found.what = kind::transient; break;
    case CURLE_SSL_CONNECT_ERROR:
      // A server that is restarting closes connections during the handshake. Other
      // TLS errors are permanent.
      if (os_code != 0) found.what = kind::transient;
      [[fallthrough]];
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      found.why.message = fmt::format("cannot be fetched over TLS: {}", text);
      break;
    default: break;
  }
  return found;
}

outcome attempt::status_outcome() const {
  const std::string code =
      error_code_of({reinterpret_cast<const char*>(body_.data()), body_.size()});
  const std::string shown = code.empty() ? fmt::format("HTTP {}", status_) : fmt::format("HTTP {} {}", status_, code);
  if (is_transient_status(status_)) return failed(kind::transient, "answers {}", shown);
  if (!region_.empty() && request_.may_sign && (status_ == 301 || status_ == 307 || status_ == 400))
    return failed(kind::refused, "answers {}: the bucket is in the region {}; set AWS_REGION", shown,
                  printable(region_));
  if (status_ >= 301 && status_ <= 308 && status_ != 304 && !location_.empty())
    return {kind::redirected, {}, location_};
  switch (status_) {
    case 400:
    case 401:
    case 403:
      if (code.find("Expired") != std::string::npos)
        return failed(kind::denied, "answers {}: the credentials have expired", shown);
      if (code == "RequestTimeTooSkewed")
        return failed(kind::refused, "answers {}: the clock of this machine is wrong", shown);
      if (status_ == 400) return failed(kind::refused, "answers {}", shown);
      return failed(kind::denied, "answers {}: {}", shown,
                    request_.may_sign ? "these credentials are not allowed to read it" : "it cannot be read without credentials");
    case 404: {
      outcome missing = failed(kind::refused, "answers {}: there is no such object", shown);
      missing.why.os_code = ENOENT;
      return missing;
    }
    case 412: {
      outcome changed = failed(kind::refused, "changed since it was listed");
      changed.why.code = errc::dataset;
      return changed;
    }
    case 416: return failed(kind::refused, "answers {}: it is empty or has become shorter", shown);
    default: return failed(kind::refused, "answers {}", shown);
  }
}

outcome attempt::body_outcome() const {
  if (!request_.expected_tag.empty() && tag().empty())
    return failed(kind::transient, "answers without the ETag or modification time that it had when it was listed");
  if (!request_.expected_tag.empty() && tag() != request_.expected_tag) {
    outcome changed = failed(kind::refused, "changed since it was listed");
    changed.why.code = errc::dataset;
    return changed;
  }
  if (!request_.range)
    return too_long_ ? failed(kind::refused, "answers with more than {}", bytes_for_people(body_max_)) : outcome{kind::done};
  if (status_ == 200)
    return failed(kind::refused, "is on a server that does not support range requests");
  if (!whole_of(content_range_))
    return failed(kind::refused, "answers HTTP 206 without the object's size (Content-Range '{}')",
                  printable(shortened(content_range_, 60)));
  if (too_long_ || body_.size() != request_.range->bytes) {
    return failed(kind::transient, "answers with {} bytes instead of {}", body_.size(), request_.range->bytes);
  }
  if (begin_of(content_range_) != request_.range->at)
    return failed(kind::transient, "answers with another range than the requested one, which begins at byte {} (Content-Range '{}')",
                  request_.range->at, printable(shortened(content_range_, 60)));
  return {kind::done};
}

transfer_answer attempt::take_answer() {
  return {std::move(body_), tag(), whole_of(content_range_).value_or(body_.size()), std::move(sums_), tag_may_be_sum_};
}

}  // namespace penstock
