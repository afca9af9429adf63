// Full-screen mode of the terminal: alternate screen, no cursor, unbuffered keys. A guard process restores
// the terminal however the program ends, even by SIGKILL. Used by top.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "tools/penstock/watch/top_screen.hpp"

#include <sys/types.h>
#include <termios.h>

#include <chrono>
#include <string>
#include <vector>

namespace penstock::cli {

class full_screen {
 public:
  /// Takes over the terminal of stdin and stdout. Call before starting threads: this forks.
  static result<full_screen> take();
  full_screen(full_screen&& other) noexcept;
  full_screen& operator=(full_screen&&) = delete;
  ~full_screen();

  [[nodiscard]] screen_size size() const;
  void show(const std::vector<std::string>& lines);

  struct input {
    char key = 0;    ///< 0: none
    int signal = 0;  ///< SIGINT, SIGTERM, SIGHUP: end; SIGWINCH: the size changed
    bool closed = false;
  };
  /// The next key or signal; empty after this time.
  input wait(std::chrono::milliseconds longest);

 private:
  full_screen() = default;

  termios before_{};
  unique_fd signals_;
  unique_fd lifeline_;  // when it closes, the guard knows that we are gone
  pid_t guard_ = -1;
};

}  // namespace penstock::cli
