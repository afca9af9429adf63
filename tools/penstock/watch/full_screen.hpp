// The terminal while a program has it to itself: alternate screen, no cursor, keys as they are pressed. It is
// given back whatever becomes of the program, SIGKILL included: a process of its own waits for that. Used by
// top.
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
  /// Takes the terminal of stdin and stdout. Not with other threads running: it forks.
  static result<full_screen> take();
  full_screen(full_screen&& other) noexcept;
  full_screen& operator=(full_screen&&) = delete;
  ~full_screen();

  [[nodiscard]] screen_size size() const;
  void show(const std::vector<std::string>& lines);

  struct input {
    char key = 0;    ///< 0: none
    int signal = 0;  ///< SIGINT, SIGTERM, SIGHUP: somebody wants us to end; SIGWINCH: the size changed
    bool closed = false;
  };
  /// The next key or signal, or nothing after that time.
  input wait(std::chrono::milliseconds longest);

 private:
  full_screen() = default;

  termios before_{};
  unique_fd signals_;
  unique_fd lifeline_;  // its end tells the guard that we are gone
  pid_t guard_ = -1;
};

}  // namespace penstock::cli
