// What the programs of these tests that are ranks of a group have in common: how they end.
#pragma once

#include <penstock/error.hpp>

#include <csignal>
#include <exception>
#include <iostream>

namespace penstock::testing {

/// For main(): what `run` returns; 3 and the name of the code for an error of penstock, 4 for another one.
template <class Run>
int rank_main(Run&& run) {
  // A launcher that ends the others sends it at once; the test wants to see what this rank says by itself.
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
