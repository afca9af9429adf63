// The lines of `penstock map --input`: line_splitter (pure) splits chunks of bytes into lines, line_source
// reads a file or a pipe. Memory is bounded by the longest accepted line, whatever the input contains.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/wake_event.hpp"
#include "runtime/base/xxh3.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::cli {

/// U+FEFF in UTF-8. JSON parsers skip it, but a JSON value in the middle of a text must not begin with it.
inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// How a line of the input ends.
enum class line_end : char { line_feed = '\n', nul = '\0' };

struct input_line {
  std::uint64_t number = 0;  ///< from 1
  /// The line without its line feed and, if it is the first one, without a byte order mark (which editors on
  /// Windows write). If the line is too long, only its beginning.
  std::string text;
  std::uint64_t bytes = 0;  ///< equals text.size() unless the line is too long
  std::uint64_t hash = 0;   ///< XXH3-64 of the whole line as read, without its line feed
  [[nodiscard]] bool too_long() const noexcept { return bytes > text.size(); }
};

class line_splitter {
 public:
  /// Keeps only the first `longest` bytes of longer lines.
  explicit line_splitter(std::size_t longest, line_end end = line_end::line_feed);

  /// Adds input. Call only after next() has returned nothing.
  void feed(std::string_view bytes);
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// Ends the input: text after the last line end is a line too, unless it is empty.
  void end();
  /// Empty: call feed() or end().
  std::optional<input_line> next();

 private:
  void add(std::string_view part);
  input_line take();

  const std::size_t longest_;
  const char end_of_line_;
  std::string fed_;
  std::size_t at_ = 0;  // in fed_
  bool ended_ = false;
  bool open_ = false;  // `line_` has begun
  input_line line_;
  std::uint64_t number_ = 0;
  xxh3 hash_;
};

/// One thread reads; any thread may call interrupt().
class line_source {
 public:
  /// "-" is stdin.
  static result<std::unique_ptr<line_source>> open(const std::string& path, std::size_t longest,
                                                   line_end end = line_end::line_feed);

  /// Shows `look` the first `count` lines without their text, or all if there are fewer; next() still returns
  /// them. Call before next(). Ends early after interrupt(), and when `look` refuses a line. Keeps what a
  /// pipe delivers meanwhile in a temporary file.
  result<void> look_ahead(std::uint64_t count, const std::function<result<void>(const input_line&)>& look);
  /// Waits for the next line. Empty at the end, and after interrupt().
  result<std::optional<input_line>> next();
  void interrupt() noexcept;

  /// The size of a regular file; otherwise empty.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept { return size_; }
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// "items.jsonl", "stdin".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  line_source(std::string name, unique_fd own, int fd, wake_event wake, std::size_t longest, line_end end);
  result<std::optional<input_line>> next_of(line_splitter& lines);
  result<std::string_view> piece();
  result<std::string_view> piece_of_input();
  result<void> begin_again(off_t at);

  const std::string name_;
  const unique_fd own_;
  const int fd_;
  const wake_event wake_;
  const line_end end_;
  std::optional<std::uint64_t> size_;
  line_splitter lines_;
  std::string piece_;
  bool ended_ = false;
  bool looking_ahead_ = false;
  unique_fd kept_;  // what look_ahead() has read from a pipe, until next() has read it again
  std::atomic<bool> interrupted_{false};
};

}  // namespace penstock::cli
