#include "tools/penstock/help/help_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace penstock::cli {
namespace {

constexpr std::size_t option_column = 24;  // where the descriptions of options start
constexpr std::array groups{verb_group::run, verb_group::operate, verb_group::look, verb_group::shell};

std::string heading(const std::string& text, bool colours) {
  return colours ? "\x1b[1m" + text + "\x1b[0m\n" : text + "\n";
}

/// Two columns; the left one on its own line if it is too long.
std::string row(const std::string& left, const std::string& right) {
  std::string text = "  " + left;
  if (text.size() + 2 > option_column) {
    text += "\n" + wrapped(right, option_column);
  } else {
    text += wrapped(right, option_column).substr(text.size());
  }
  return text;
}

std::string name_and_value(const option_facts& o) {
  std::string text = o.names;
  // "-f,--follow" reads better with a space after the comma.
  if (const std::size_t comma = text.find(','); comma != std::string::npos) text.insert(comma + 1, " ");
  if (!o.value.empty() && !o.positional)
    text += (o.value.find('|') == std::string::npos ? " " : "=") + o.value;
  return text;
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  const std::string margin(indent, ' ');
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const bool as_it_is = line.starts_with(' ');
    while (!as_it_is && indent + line.size() > width) {
      std::size_t cut = line.rfind(' ', width - indent);
      if (cut == std::string::npos || cut == 0) cut = line.find(' ');
      if (cut == std::string::npos) break;
      out += margin + line.substr(0, cut) + "\n";
      line.erase(0, cut + 1);
    }
    out += line.empty() ? "\n" : margin + line + "\n";
  }
  return out;
}

std::string help_of_all(const verb_table& table, bool colours) {
  std::string text =
      "penstock feeds GPUs: loader worker processes, one GPU owner, and no batch is\n"
      "lost when one of them dies.\n\n";
  text += heading("usage: penstock VERB [OPTIONS]", colours);
  for (const verb_group group : groups) {
    std::string rows;
    for (const auto& verb : table.verbs()) {
      if (verb->facts.group == group) rows += row(verb->facts.name, verb->facts.summary);
    }
    if (!rows.empty()) text += "\n" + heading(title_of(group), colours) + rows;
  }
  text +=
      "\n\"penstock help VERB\" explains a verb. See also: penstock help targets,\npenstock help "
      "exit-codes. With --json every verb answers in JSON, even errors.\n";
  return text;
}

std::string help_of_verb(const verb_table::entry& verb, bool colours) {
  std::string text = fmt::format("penstock {}: {}\n\n", verb.facts.name, verb.facts.summary);
  text += heading("usage: " + synopsis_of(verb), colours);
  if (!verb.facts.text.empty()) text += "\n" + wrapped(verb.facts.text, 0);
  std::string arguments;
  std::string options;
  for (const option_facts& o : options_of(*verb.parser))
    (o.positional ? arguments : options) += row(name_and_value(o), o.help);
  if (!arguments.empty()) text += "\n" + heading("Arguments", colours) + arguments;
  text += "\n" + heading("Options", colours) + options;
  if (!verb.facts.examples.empty()) {
    text += "\n" + heading("Examples", colours);
    for (const verb_example& e : verb.facts.examples) {
      text += "  " + e.command + "\n" + wrapped(e.what, 6);
    }
  }
  return text;
}

std::string help_of_topic(const std::string& topic, bool colours) {
  if (topic == "exit-codes") {
    std::string text = heading("Exit codes of penstock", colours);
    for (const exit_code_facts& e : exit_codes()) text += fmt::format("  {:>3}  {}\n", e.code, e.meaning);
    return text;
  }
  if (topic == "targets") {
    return heading("Targets", colours) +
           "  worker/3             one loader worker\n"
           "  workers              all loader workers\n"
           "  sample/51            what happened to a sample: for describe\n"
           "  gpu                  the GPU owner\n"
           "  scheduler            decides which worker loads what\n"
           "  host/alpha           a loader host\n"
           "  host/alpha/worker/0  one worker of a loader host\n"
           "  all                  everything\n\n" +
           wrapped(
               "The help of a verb says which targets it takes. A target that does not exist is refused with "
               "exit code 4.",
               0);
  }
  return {};
}

}  // namespace penstock::cli
