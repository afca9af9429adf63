#include "tools/penstock/run/progress.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto redraw_every = 200ms;  // on a terminal
constexpr auto line_every = 5s;       // elsewhere

std::string ready_workers(const session_status& s) {
  const auto ready = std::ranges::count(s.workers, child_state::ready, &worker_status::state);
  return "  " + counted(static_cast<std::uint64_t>(ready), "worker");
}

std::string trouble(const session_status& s) {
  std::string text;
  if (s.worker_restarts > 0) text += "  " + counted(s.worker_restarts, "restart");
  if (s.failed > 0) text += fmt::format("  {} failed", s.failed);
  if (s.quarantined > 0) text += fmt::format("  {} quarantined", s.quarantined);
  if (s.state != session_state::ok) text += fmt::format("  {}", name_of(s.state));
  if (s.stalled) text += fmt::format("  stalled for {:.0f} s", s.stalled->seconds);
  return text;
}

}  // namespace

std::string progress_bar(double share, std::size_t cells) {
  const auto full = static_cast<std::size_t>(std::floor(share * static_cast<double>(cells)));
  std::string drawn(std::min(full, cells), '=');
  if (drawn.size() < cells) drawn += '>';
  drawn.resize(cells, ' ');
  return "[" + drawn + "]";
}

std::string time_left(double left, double rate) {
  if (rate <= 0 || left <= 0) return "";
  if (left < rate) return "  less than 1 s left";
  return "  " + duration_for_people(std::chrono::seconds(static_cast<std::int64_t>(std::ceil(left / rate)))) + " left";
}

std::string rate_for_people(double per_second, std::string_view noun) {
  return counted(static_cast<std::uint64_t>(std::llround(std::max(per_second, 0.0))), noun) + "/s";
}

namespace {

// What a narrow terminal omits, in this order.
enum class left_out : std::uint8_t { nothing, long_bar, bytes, workers, epoch, bar, time_left };

std::string line_of(const session_status& now, double rate, double bytes_rate, bool with_bar,
                    left_out without) {
  const auto shows = [&](left_out part) { return without < part; };
  std::string text = "starting";
  if (now.samples_expected > 0) {
    const double share = std::min(1.0, static_cast<double>(now.samples_before + now.samples_done) /
                                           static_cast<double>(now.samples_before + now.samples_expected));
    text =
        with_bar && shows(left_out::bar) ? progress_bar(share, shows(left_out::long_bar) ? 20 : 8) + " " : "";
    text += fmt::format("{:3.0f} %", std::floor(share * 100));
  }
  if (shows(left_out::epoch)) text += fmt::format("  epoch {}", now.epoch);
  text += "  " + rate_for_people(rate, "sample");
  if (shows(left_out::bytes))
    text += fmt::format("  {}/s", bytes_for_people(static_cast<std::uint64_t>(bytes_rate)));
  const std::uint64_t left = now.samples_expected - std::min(now.samples_done, now.samples_expected);
  if (shows(left_out::time_left)) text += time_left(static_cast<double>(left), rate);
  if (shows(left_out::workers)) text += ready_workers(now);
  return text + trouble(now);
}

}  // namespace

std::string progress_line(const session_status& now, const session_status& before, double seconds_between,
                          std::size_t width, bool with_bar) {
  const auto per_second = [&](std::uint64_t of_now, std::uint64_t of_before) {
    return seconds_between > 0 ? static_cast<double>(of_now - of_before) / seconds_between : 0;
  };
  const double rate = per_second(now.samples_delivered, before.samples_delivered);
  const double bytes_rate = per_second(now.bytes_uploaded, before.bytes_uploaded);
  std::string text;
  for (auto without = left_out::nothing; without <= left_out::time_left;
       without = static_cast<left_out>(static_cast<std::uint8_t>(without) + 1)) {
    text = line_of(now, rate, bytes_rate, with_bar, without);
    if (text.size() <= width) return text;
  }
  text.resize(width);
  return text;
}

progress_display::progress_display(progress_source source)
    : source_(std::move(source)), terminal_(is_terminal(STDERR_FILENO)) {
  if (terminal_) {
    // Log lines must not end up in the bar.
    log::set_sink([this](log::level severity, std::string_view part, std::string_view line) {
      const std::lock_guard hold(mutex_);
      clear();
      const style how = severity >= log::level::error  ? style::red
                        : severity == log::level::warn ? style::yellow
                                                       : style::faint;
      say(styled(how, part) + ": " + std::string(line));
    });
  }
  thread_ = std::thread([this] { run(); });
}

progress_display::~progress_display() {
  {
    const std::lock_guard hold(mutex_);
    over_ = true;
  }
  over_signal_.notify_all();
  thread_.join();
  if (terminal_) {
    log::set_sink({});
    const std::lock_guard hold(mutex_);
    clear();
  }
}

void progress_display::run() {
  std::unique_lock hold(mutex_);
  while (!over_signal_.wait_for(
      hold, terminal_ ? std::chrono::milliseconds(redraw_every) : std::chrono::milliseconds(line_every),
      [&] { return over_; })) {
    hold.unlock();
    const std::string line = source_(terminal_ ? terminal_width(STDERR_FILENO) - 1 : 200, terminal_);
    hold.lock();
    if (terminal_) {
      clear();
      say_raw(line);
      drawn_ = true;
    } else {
      say(line);
    }
  }
}

void progress_display::clear() {
  if (std::exchange(drawn_, false)) say_raw("\r\x1b[2K");
}

}  // namespace penstock::cli
