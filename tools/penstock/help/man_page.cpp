// Generates penstock(1) in roff from the table of verbs.
#include "tools/penstock/help/help_text.hpp"

#include <fmt/core.h>

namespace penstock::cli {
namespace {

/// Escapes text for roff: backslashes, hyphens of options, and lines that look like commands.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool line_begins = out.empty() || out.back() == '\n';
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

/// Writes paragraphs of running text; keeps lines that begin with a blank.
std::string paragraphs(const std::string& text) {
  std::string out;
  bool literal = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (const bool indented = line.starts_with(' '); indented != literal) {
      out += indented ? ".RS\n.nf\n" : ".fi\n.RE\n";
      literal = indented;
    }
    out += line.empty() ? ".PP\n" : roff(line) + "\n";
  }
  return literal ? out + ".fi\n.RE\n" : out;
}

std::string option_item(const option_facts& o) {
  std::string head = "\\fB" + roff(o.names) + "\\fR";
  if (!o.value.empty() && !o.positional) head += " \\fI" + roff(o.value) + "\\fR";
  return ".TP\n" + head + "\n" + roff(o.help) + "\n";
}

}  // namespace

std::string man_page(const verb_table& table, const std::string& version) {
  std::string out = fmt::format(
      ".\\\" Generated from the table of verbs: penstock help --man\n"
      ".TH PENSTOCK 1 \"\" \"penstock {}\" \"User Commands\"\n"
      ".SH NAME\npenstock \\- feed GPUs from loader worker processes that may die\n"
      ".SH SYNOPSIS\n.B penstock\n\\fIVERB\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n",
      version);
  out += paragraphs(
      "penstock brings samples to a GPU: loader worker processes fill shared memory, one GPU owner uploads "
      "it, a scheduler decides which worker loads what, and a supervisor restarts what fails. The stream of "
      "batches is the same bit for bit, whatever dies.\n\nOne config file describes a session; the "
      "verbs below run a session, operate it while it is live, and inspect its parts.");
  for (const verb_group group : {verb_group::run, verb_group::operate, verb_group::look, verb_group::shell}) {
    std::string title = title_of(group);
    for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    out += ".SH \"" + roff(title) + "\"\n";
    for (const auto& verb : table.verbs()) {
      if (verb->facts.group != group) continue;
      out += ".SS \"" + roff(synopsis_of(*verb)) + "\"\n";
      std::string summary = verb->facts.summary + ".";
      summary.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(summary.front())));
      out += roff(summary) + "\n";
      if (!verb->facts.text.empty()) out += ".PP\n" + paragraphs(verb->facts.text);
      for (const option_facts& o : options_of(*verb->parser)) {
        if (o.names != "-h,--help") out += option_item(o);
      }
      for (const verb_example& e : verb->facts.examples) {
        out += ".PP\n.RS\n.nf\n\\fB" + roff(e.command) + "\\fR\n.fi\n" + roff(e.what) + "\n.RE\n";
      }
    }
  }
  out += ".SH TARGETS\n";
  for (const auto& [name, what] : {std::pair{"worker/3", "one loader worker"},
                                   {"workers", "all loader workers"},
                                   {"sample/51", "what happened to a sample: for describe"},
                                   {"gpu", "the GPU owner"},
                                   {"scheduler", "decides which worker loads what"},
                                   {"host/alpha", "a loader host"},
                                   {"host/alpha/worker/3", "its fourth worker"},
                                   {"all", "everything"}}) {
    out += fmt::format(".TP\n.B {}\n{}\n", name, what);
  }
  out += ".SH EXIT STATUS\n";
  for (const exit_code_facts& e : exit_codes())
    out += fmt::format(".TP\n.B {}\n{}\n", e.code, roff(e.meaning));
  out +=
      ".SH ENVIRONMENT\n"
      ".TP\n.B PENSTOCK__TABLE__KEY\noverrides a key of the config file: PENSTOCK__LOADER__WORKERS=4\n"
      ".TP\n.B PENSTOCK_LIBEXEC\nwhere to look first for the worker and owner programs\n"
      ".TP\n.B XDG_RUNTIME_DIR\ncontrol sockets are in its folder penstock; without it, in "
      "/tmp/penstock\\-UID\n"
      ".TP\n.B NO_COLOR\nno colours\n"
      ".SH FILES\n.TP\n.I $XDG_RUNTIME_DIR/penstock/NAME.sock\nthe control socket of the live session NAME\n";
  return out;
}

}  // namespace penstock::cli
