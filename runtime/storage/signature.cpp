#include "runtime/storage/signature.hpp"

#include "runtime/storage/sha256.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

std::string amz_date(std::chrono::sys_seconds when) {
  const auto day = std::chrono::floor<std::chrono::days>(when);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(when - day);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count());
}

std::string authorization_for(const request_to_sign& request, const s3_credentials& who, const signing_scope& scope,
                              std::chrono::sys_seconds when) {
  std::vector<http_header> headers = request.headers;
  std::ranges::sort(headers);
  std::string canonical = fmt::format("{}\n{}\n{}\n", request.method, request.path, request.query);
  std::string names;
  for (const auto& [name, value] : headers) {
    canonical += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  canonical += fmt::format("\n{}\n{}", names, request.payload_sum);

  const std::string date = amz_date(when);
  const std::string day = date.substr(0, 8);
  const std::string credential_scope = fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", date, credential_scope, hex_of(sha256(canonical)));
  sha256_sum key = hmac_sha256("AWS4" + who.secret_key, day);
  for (const std::string_view part : {std::string_view(scope.region), std::string_view(scope.service),
                                      std::string_view("aws4_request")})
    key = hmac_sha256(bytes_of(key), part);
  return fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}", who.access_key,
                     credential_scope, names, hex_of(hmac_sha256(bytes_of(key), to_sign)));
}

std::vector<http_header> s3_headers(const std::string& host, const std::string& path, const std::string& query,
                                    const s3_credentials& who, const std::string& region,
                                    std::chrono::sys_seconds when, std::vector<http_header> more) {
  const std::string no_body = hex_of(sha256(""));
  std::vector<http_header> added = std::move(more);
  added.emplace_back("x-amz-content-sha256", no_body);
  added.emplace_back("x-amz-date", amz_date(when));
  if (!who.session_token.empty()) added.emplace_back("x-amz-security-token", who.session_token);
  request_to_sign request{"GET", path, query, added, no_body};
  request.headers.emplace_back("host", host);
  added.emplace_back("Authorization", authorization_for(request, who, {region, "s3"}, when));
  return added;
}

}  // namespace penstock
