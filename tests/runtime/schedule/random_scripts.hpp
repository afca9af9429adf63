// Model tests: a simulated world follows a random script, step by step, until an invariant is violated; then the script is shrunk to
// what is needed for the same violation and printed, so that it can become a regression test. Used by the tests of pure cores, which
// define the world; explore() does the rest.
#pragma once

#include "tests/random_seed.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {

/// Thrown by a world in which an invariant is violated.
struct violation {
  std::string what;
};
inline void require(bool holds, const char* what) {
  if (!holds) throw violation{what};
}

template <class Act>
struct step {
  Act what{};
  /// taken modulo the number of choices, so that any part of a script is a valid script
  std::uint32_t pick = 0;
};

template <class Act>
using script_of = std::vector<step<Act>>;

/// Removes all steps that are not needed for `same` to hold.
template <class Act>
script_of<Act> shrunk(script_of<Act> script, const std::function<bool(const script_of<Act>&)>& same) {
  for (std::size_t part = script.size() / 2; part > 0; part /= 2) {
    for (std::size_t i = 0; i + part <= script.size();) {
      auto shorter = script;
      const auto first = shorter.begin() + static_cast<std::ptrdiff_t>(i);
      shorter.erase(first, first + static_cast<std::ptrdiff_t>(part));
      if (same(shorter)) {
        script = std::move(shorter);
      } else {
        i += part;
      }
    }
  }
  return script;
}

/// The script as source code for a test.
template <class Act>
std::string as_text(const script_of<Act>& script, std::span<const char* const> names) {
  std::string text;
  for (const auto& s : script)
    text += fmt::format("{{act::{}, {}}}, ", names[static_cast<std::size_t>(s.what)], s.pick);
  return text;
}

class random_choice {
 public:
  explicit random_choice(std::uint64_t seed) : bits_(seed) {}
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(bits_() % bound); }

 private:
  std::mt19937_64 bits_;
};

/// The number of steps of a model test: a million, or a quarter of that under sanitizers, which make each step expensive and look for other
/// kinds of bugs. PENSTOCK_TEST_STEPS overrides it.
inline std::uint64_t steps_of_this_run() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t usual = 250'000;
#else
  constexpr std::uint64_t usual = 1'000'000;
#endif
  const char* given = std::getenv("PENSTOCK_TEST_STEPS");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : usual;
}

/// Whether an event occurred more than this many times in a million steps: an event that never occurs is not tested.
inline bool is_tried(std::uint64_t times, std::uint64_t in_a_million) {
  return times * 1'000'000 > in_a_million * steps_of_this_run();
}

/// A model test. Settings describe a world, including an injected bug.
template <class Act, class Settings>
struct model {
  const char* name = "";
  std::span<const char* const> act_names;
  script_of<Act> (*random_script)(random_choice&) = nullptr;
  Settings (*random_settings)(random_choice&) = [](random_choice&) { return Settings(); };
  std::string (*describe)(const Settings&) = [](const Settings&) { return std::string(); };
  /// Throws a violation. Returns the number of steps done: a world may end before its script.
  std::function<std::size_t(const Settings&, const script_of<Act>&)> run;

  /// The violation; empty if none.
  [[nodiscard]] std::string trouble_with(const Settings& settings, const script_of<Act>& script) const {
    try {
      static_cast<void>(run(settings, script));
    } catch (const violation& v) {
      return v.what;
    }
    return {};
  }
  [[nodiscard]] script_of<Act> shortest(const Settings& settings, const script_of<Act>& script,
                                        const std::string& trouble) const {
    return shrunk<Act>(script,
                       [&](const script_of<Act>& part) { return trouble_with(settings, part) == trouble; });
  }
};

/// Runs the steps of random scripts in random worlds; fails the test with the shortest script that
/// shows the violation. Returns the number of scripts.
template <class Act, class Settings>
std::uint64_t explore(const model<Act, Settings>& m) {
  const std::uint64_t seed = seed_of_this_run(m.name);
  random_choice choose(seed);
  const std::uint64_t wanted = steps_of_this_run();
  std::uint64_t scripts = 0;
  for (std::uint64_t steps = 0; steps < wanted; ++scripts) {
    const Settings settings = m.random_settings(choose);
    const script_of<Act> script = m.random_script(choose);
    try {
      steps += m.run(settings, script);
    } catch (const violation& v) {
      FAIL("PENSTOCK_TEST_SEED=" << seed << ": " << v.what << "\n"
                                 << m.describe(settings) << "\nshortest script: "
                                 << as_text<Act>(m.shortest(settings, script, v.what), m.act_names));
    }
  }
  std::printf("%s: %llu steps in %llu scripts\n", m.name, static_cast<unsigned long long>(wanted),
              static_cast<unsigned long long>(scripts));
  return scripts;
}

/// Whether a few hundred scripts find the bug injected into a world: a model that misses it proves nothing.
template <class Act, class Settings>
bool finds_a_mistake(const model<Act, Settings>& m, const Settings& planted) {
  random_choice choose(1);
  for (int i = 0; i < 1000; ++i) {
    if (!m.trouble_with(planted, m.random_script(choose)).empty()) return true;
  }
  return false;
}

}  // namespace penstock::testing
