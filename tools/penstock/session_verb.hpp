// Adds verbs that operate a live session. Used by every file with such verbs.
#pragma once

#include "tools/penstock/session_link.hpp"
#include "tools/penstock/verb_table.hpp"

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace penstock::cli {

/// For adding the verb's own options: `verb.add_option("--tail", options->tail, ...)`.
template <class Options>
struct session_verb {
  CLI::App& verb;
  std::shared_ptr<Options> options;
};

/// `Options`: the parsed command line, a struct with a session_choice named `choice`; this adds its options.
template <class Options>
session_verb<Options> add_session_verb(verb_table& verbs, verb_facts facts,
                                       std::type_identity_t<std::function<int(const Options&)>> act) {
  auto options = std::make_shared<Options>();
  CLI::App& verb = verbs.add(std::move(facts), [options, act = std::move(act)] { return act(*options); });
  add_session_choice(verb, options->choice);
  return {verb, std::move(options)};
}

}  // namespace penstock::cli
