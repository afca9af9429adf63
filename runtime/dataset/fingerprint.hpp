// Builds the fingerprint of a dataset from its facts. Used by the listings and the synthetic dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace penstock {

/// XXH3-128 over facts in order. Each text is preceded by its length, so "ab", "c" and "a", "bc" differ.
class fingerprint_hash {
 public:
  explicit fingerprint_hash(std::string_view type);
  fingerprint_hash(const fingerprint_hash&) = delete;
  fingerprint_hash& operator=(const fingerprint_hash&) = delete;
  ~fingerprint_hash();

  void add_number(std::uint64_t number) noexcept;
  void add_text(std::string_view text) noexcept;
  /// 32 hex digits.
  [[nodiscard]] std::string hex() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace penstock
