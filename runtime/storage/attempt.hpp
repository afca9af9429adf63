// A request in flight: its libcurl handle, and its answer so far. Used by the transfers, on their thread.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/storage/curl_library.hpp"
#include "runtime/storage/transfers.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

class attempt {
 public:
  /// `headers`: lines of the form "Name: value".
  attempt(const curl_library& curl, const transfer_request& request, const std::vector<std::string>& headers,
          steady_time now);
  ~attempt();
  attempt(const attempt&) = delete;
  attempt& operator=(const attempt&) = delete;

  [[nodiscard]] CURL* handle() const noexcept { return easy_; }
  [[nodiscard]] steady_time began() const noexcept { return began_; }
  /// When the first line of the answer arrived.
  [[nodiscard]] std::optional<steady_time> answered() const noexcept { return answered_; }
  /// How the request ended, given libcurl's result.
  struct outcome {
    enum class kind : std::uint8_t { done, transient, redirected, denied, refused } what = kind::refused;
    failure why{};           ///< set unless `what` is done or redirected
    std::string location{};  ///< set if `what` is redirected
    bool no_connection = false;
  };
  [[nodiscard]] outcome outcome_of(CURLcode result) const;
  transfer_answer take_answer();

  /// How many times the credentials had been renewed when this request was signed.
  std::uint64_t renewals = 0;

 private:
  static std::size_t body_part(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t header_line(char* data, std::size_t size, std::size_t count, void* self);
  void take_header(std::string_view line);
  [[nodiscard]] outcome transport_outcome(CURLcode result) const;
  [[nodiscard]] outcome status_outcome() const;
  [[nodiscard]] outcome body_outcome() const;
  [[nodiscard]] std::string tag() const;

  const curl_library& curl_;
  const transfer_request& request_;
  steady_time began_;
  std::optional<steady_time> answered_;
  CURL* easy_ = nullptr;
  curl_slist* headers_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> error_{};
  int status_ = 0;
  std::uint64_t body_max_ = 0;
  bool too_long_ = false;
  std::string etag_;
  std::string modified_;
  std::string location_;
  std::string region_;
  std::string content_range_;
  std::vector<stated_sum> sums_;
  bool tag_may_be_sum_ = true;
  std::vector<std::byte> body_;
};

}  // namespace penstock
