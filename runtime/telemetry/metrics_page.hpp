// Writes a page in Prometheus's text format 0.0.4, one metric after the other. Used for a session's own page and for
// the page of `penstock metrics`.
#pragma once

#include "runtime/base/batch_times.hpp"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::telemetry {

/// A page names at most this many samples, because each name is a time series.
inline constexpr std::size_t samples_named_max = 16;

/// A label and its value, which must be UTF-8.
using metric_labels = std::vector<std::pair<std::string_view, std::string>>;

/// Escapes the value of a label. Only the backslash, the quote and the line feed are special.
[[nodiscard]] inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

class metrics_page {
 public:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class Number>
  void value(Number number) {
    fmt::format_to(std::back_inserter(text_), "{} {}\n", name_, number);
  }
  template <class Number>
  void value(std::string_view label, std::string_view of, Number number) {
    fmt::format_to(std::back_inserter(text_), "{}{{{}=\"{}\"}} {}\n", name_, label, escaped(of), number);
  }
  template <class Number>
  void value(const metric_labels& labels, Number number) {
    std::string all;
    for (const auto& [label, of] : labels)
      all += fmt::format("{}{}=\"{}\"", all.empty() ? "" : ",", label, escaped(of));
    fmt::format_to(std::back_inserter(text_), "{}{{{}}} {}\n", name_, all, number);
  }
  template <class Number>
  void counter(std::string_view name, std::string_view help, Number number) {
    begin(name, "counter", help);
    value(number);
  }
  template <class Number>
  void gauge(std::string_view name, std::string_view help, Number number) {
    begin(name, "gauge", help);
    value(number);
  }
  void histogram(std::string_view label, std::string_view of, const stage_histogram& h) {
    std::uint64_t below = 0;
    const auto& bounds = stage_bounds_seconds();
    for (std::size_t i = 0; i < h.counts.size(); ++i) {
      below += h.counts[i];
      fmt::format_to(std::back_inserter(text_), "{}_bucket{{{}=\"{}\",le=\"{}\"}} {}\n", name_, label, of,
                     i < bounds.size() ? fmt::format("{}", bounds[i]) : "+Inf", below);
    }
    fmt::format_to(std::back_inserter(text_), "{0}_sum{{{1}=\"{2}\"}} {3}\n{0}_count{{{1}=\"{2}\"}} {4}\n",
                   name_, label, of, h.seconds, h.total);
  }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

}  // namespace penstock::telemetry
