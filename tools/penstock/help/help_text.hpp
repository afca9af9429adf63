// The text for `penstock help`, man and shell completion, generated from the table of verbs. Pure.
#pragma once

#include "tools/penstock/verb_table.hpp"

#include <string>

namespace penstock::cli {

/// Fits 80 columns. With colours: headings are bold.
[[nodiscard]] std::string help_of_all(const verb_table& table, bool colours);
[[nodiscard]] std::string help_of_verb(const verb_table::entry& verb, bool colours);
/// "exit-codes" and "targets"; empty for any other topic.
[[nodiscard]] std::string help_of_topic(const std::string& topic, bool colours);

/// penstock(1), for man.
[[nodiscard]] std::string man_page(const verb_table& table, const std::string& version);

/// The completion script of bash, zsh or fish; empty for any other shell.
[[nodiscard]] std::string completion_script(const verb_table& table, const std::string& shell);

/// Wraps text to lines of at most `width` columns, each indented by `indent` blanks. Keeps paragraphs (empty
/// lines) and lines that begin with a blank.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t indent, std::size_t width = 80);

}  // namespace penstock::cli
