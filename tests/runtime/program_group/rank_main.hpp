// Shared by the test programs that are ranks of a group: their exit codes.
#pragma once

#include <penstock/error.hpp>

#include <csignal>
#include <exception>
#include <iostream>

namespace penstock::testing {

/// For main(): returns the result of `run`; 3 after a penstock error, whose code it prints; 4 after any other exception.
template <class Run>
int rank_main(Run&& run) {
  // A launcher that ends the other ranks does so at once, but the test wants to see this rank's own output.
  static_cast<void>(std::signal(SIGTERM, SIG_IGN));
  try {
    return run();
  } catch (const error& why) {
    std::cerr << name_of(why.code()) << ": " << why.what() << '\n';
    return 3;
  } catch (const std::exception& why) {
    std::cerr << why.what() << '\n';
    return 4;
  }
}

}  // namespace penstock::testing
