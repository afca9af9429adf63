#include "tools/penstock/jobs/input_lines.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace penstock::cli {
namespace {

constexpr std::size_t bytes_at_a_time = 256 * KiB;

unique_fd temporary_file() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  return file ? unique_fd(::fcntl(::fileno(file.get()), F_DUPFD_CLOEXEC, 0)) : unique_fd();
}

}  // namespace

// ---- line_splitter ----------------------------------------------------------------------------------------

line_splitter::line_splitter(std::size_t longest, line_end end)
    : longest_(longest), end_of_line_(static_cast<char>(end)) {}

void line_splitter::feed(std::string_view bytes) {
  fed_.assign(bytes);
  at_ = 0;
}

void line_splitter::end() {
  ended_ = true;
}

std::optional<input_line> line_splitter::next() {
  if (at_ < fed_.size()) {
    const std::size_t end = fed_.find(end_of_line_, at_);
    add(std::string_view(fed_).substr(at_, end == std::string::npos ? end : end - at_));
    at_ = end == std::string::npos ? fed_.size() : end + 1;
    if (end != std::string::npos) return take();
  }
  if (ended_ && open_) return take();
  return std::nullopt;
}

void line_splitter::add(std::string_view part) {
  open_ = true;
  line_.bytes += part.size();
  line_.text.append(part.substr(0, longest_ - std::min(longest_, line_.text.size())));
  hash_.add(part);
}

input_line line_splitter::take() {
  line_.number = ++number_;
  line_.hash = hash_.value();
  hash_.reset();
  open_ = false;
  if (number_ == 1 && line_.text.starts_with(byte_order_mark)) {
    line_.text.erase(0, byte_order_mark.size());
    line_.bytes -= byte_order_mark.size();
  }
  return std::exchange(line_, {});
}

// ---- line_source ------------------------------------------------------------------------------------------

result<std::unique_ptr<line_source>> line_source::open(const std::string& path, std::size_t longest,
                                                       line_end end) {
  const bool is_stdin = path == "-";
  std::string name = is_stdin ? "stdin" : printable(path);
  unique_fd own;
  if (!is_stdin) {
    own.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!own) return refuse_os(errc::io, errno, fmt::format("opening the input '{}'", name));
  }
  const int fd = is_stdin ? STDIN_FILENO : own.get();
  struct stat facts {};
  if (::fstat(fd, &facts) != 0)
    return refuse_os(errc::io, errno, fmt::format("reading the input '{}'", name));
  if (S_ISDIR(facts.st_mode)) return refuse(errc::io, "the input '{}' is a folder", name);
  wake_event wake;
  if (wake.fd() < 0) return refuse_os(errc::system, errno, "making an eventfd");
  auto source = std::unique_ptr<line_source>(
      new line_source(std::move(name), std::move(own), fd, std::move(wake), longest, end));
  if (S_ISREG(facts.st_mode)) source->size_ = static_cast<std::uint64_t>(facts.st_size);
  return source;
}

line_source::line_source(std::string name, unique_fd own, int fd, wake_event wake, std::size_t longest,
                         line_end end)
    : name_(std::move(name)),
      own_(std::move(own)),
      fd_(fd),
      wake_(std::move(wake)),
      end_(end),
      lines_(longest, end),
      piece_(bytes_at_a_time, '\0') {}

result<void> line_source::look_ahead(std::uint64_t count,
                                     const std::function<result<void>(const input_line&)>& look) {
  if (count == 0) return {};
  const off_t begin = size_ ? ::lseek(fd_, 0, SEEK_CUR) : 0;
  if (!size_) {
    kept_ = temporary_file();
    if (!kept_) return refuse_os(errc::io, errno, "making a temporary file (in /tmp)");
  }
  looking_ahead_ = true;
  line_splitter ahead(0, end_);
  for (std::uint64_t seen = 0; seen < count; ++seen) {
    const auto line = next_of(ahead);
    if (!line) return tl::unexpected(line.error());
    if (!*line) break;
    if (auto ok = look(**line); !ok) return ok;
  }
  looking_ahead_ = false;
  return begin_again(begin);
}

result<void> line_source::begin_again(off_t at) {
  if (::lseek(size_ ? fd_ : kept_.get(), at, SEEK_SET) < 0)
    return refuse_os(errc::io, errno, fmt::format("reading the input '{}' again", name_));
  if (size_) ended_ = false;
  return {};
}

result<std::optional<input_line>> line_source::next() {
  return next_of(lines_);
}

result<std::optional<input_line>> line_source::next_of(line_splitter& lines) {
  while (true) {
    if (interrupted_) return std::nullopt;
    if (auto line = lines.next()) return line;
    if (lines.ended()) return std::nullopt;
    const auto more = piece();
    if (!more) return tl::unexpected(more.error());
    if (interrupted_) return std::nullopt;
    more->empty() ? lines.end() : lines.feed(*more);
  }
}

/// Empty at the end, and after interrupt().
result<std::string_view> line_source::piece() {
  if (!kept_ || looking_ahead_) {
    auto more = piece_of_input();
    if (!more || !kept_) return more;
    if (const int why = write_all(kept_.get(), *more); why != 0)
      return refuse_os(errc::io, why, "writing a temporary file (in /tmp)");
    return more;
  }
  const ssize_t got = ::read(kept_.get(), piece_.data(), piece_.size());
  if (got < 0) return refuse_os(errc::io, errno, "reading a temporary file (in /tmp)");
  if (got > 0) return std::string_view(piece_).substr(0, static_cast<std::size_t>(got));
  kept_.reset();
  return piece_of_input();
}

result<std::string_view> line_source::piece_of_input() {
  while (!interrupted_ && !ended_) {
    std::array<pollfd, 2> watched{{{wake_.fd(), POLLIN, 0}, {fd_, POLLIN, 0}}};
    if (::poll(watched.data(), 2, -1) < 0 && errno != EINTR)
      return refuse_os(errc::io, errno, fmt::format("waiting for the input '{}'", name_));
    if (watched[0].revents != 0 || watched[1].revents == 0) continue;
    const ssize_t got = ::read(fd_, piece_.data(), piece_.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return refuse_os(errc::io, errno, fmt::format("reading the input '{}'", name_));
    ended_ = got == 0;
    return std::string_view(piece_).substr(0, static_cast<std::size_t>(got));
  }
  return std::string_view();
}

void line_source::interrupt() noexcept {
  interrupted_ = true;
  wake_.raise();
}

}  // namespace penstock::cli
