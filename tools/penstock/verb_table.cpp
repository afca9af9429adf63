#include "tools/penstock/verb_table.hpp"

#include "runtime/base/text.hpp"
#include "tools/penstock/help/help_text.hpp"
#include "tools/penstock/output.hpp"

#include <algorithm>

namespace penstock::cli {
namespace {

/// `penstock VERB --help` prints the same as `penstock help VERB`.
class help_of_the_table final : public CLI::FormatterBase {
 public:
  explicit help_of_the_table(const verb_table& table) : table_(table) {}
  std::string make_help(const CLI::App* app, std::string /*name*/,
                        CLI::AppFormatMode /*mode*/) const override {
    const verb_table::entry* verb = table_.find(app->get_name());
    return verb != nullptr ? help_of_verb(*verb, colours_on(1)) : help_of_all(table_, colours_on(1));
  }

 private:
  const verb_table& table_;
};

bool given(const std::vector<std::string>& arguments, std::string_view option) {
  return std::ranges::find(arguments, option) != arguments.end();
}

std::string first_word(const std::vector<std::string>& arguments) {
  const auto word = std::ranges::find_if(arguments, [](const std::string& a) { return !a.starts_with('-'); });
  return word == arguments.end() ? std::string() : *word;
}

/// The option that the user probably meant.
std::string nearest_option(const CLI::App& verb, const std::vector<std::string>& arguments) {
  std::vector<std::string> known;
  for (const CLI::Option* o : verb.get_options()) {
    if (o->get_group().empty()) continue;  // hidden
    for (const std::string& name : o->get_lnames()) known.push_back("--" + name);
  }
  for (const std::string& a : arguments) {
    if (a == "--") break;  // the rest are not options
    if (!a.starts_with("--")) continue;
    const std::string name = a.substr(0, a.find('='));
    if (std::ranges::find(known, name) != known.end()) continue;
    std::string_view near = nearest_name(name, known);
    // "--end" for "--ended": cut short rather than misspelt.
    if (const auto longer = std::ranges::find_if(known, [&](const std::string& one) { return one.starts_with(name); });
        near.empty() && name.size() > 4 && longer != known.end())
      near = *longer;
    if (!near.empty()) {
      return fmt::format("there is no option '{}'; did you mean '{}'?", printable(name), near);
    }
    return fmt::format("there is no option '{}'", printable(name));
  }
  return {};
}

/// CLI11 writes "WHAT:{ready,finished}" where we write "ready|finished".
std::string value_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const std::size_t begin = type.find(":{");
  const std::size_t end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return type;
  std::string words = type.substr(begin + 2, end - begin - 2);
  std::ranges::replace(words, ',', '|');
  return words;
}

/// CLI11 writes "--for: redy not in {ready,finished}" where we write "--for redy: must be ready or finished; did you mean 'ready'?". Empty: the
/// text is about something else.
std::string wrong_word(std::string_view why) {
  constexpr std::string_view separator = " not in {";
  const std::size_t name_end = why.find(": ");
  const std::size_t word_end = why.find(separator);
  if (name_end == std::string_view::npos || word_end == std::string_view::npos || word_end < name_end || !why.ends_with('}')) return {};
  const std::string_view word = why.substr(name_end + 2, word_end - name_end - 2);
  std::vector<std::string> words;
  for (std::string_view rest = why.substr(word_end + separator.size()); !rest.empty();) {
    const std::size_t end = rest.find_first_of(",}");
    words.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  std::string choices;
  for (std::size_t i = 0; i < words.size(); ++i) choices += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  const std::string_view near = nearest_name(word, words);
  return fmt::format("{} {}: must be {}{}", why.substr(0, name_end), printable(word), choices,
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

/// CLI11 counts values: "--workers: At Most 1 required but received 2", "--command: 1 required COMMAND missing". Empty: the text is about
/// something else.
std::string wrong_number_of_values(const CLI::App& verb, const std::string& why) {
  const std::string name = why.substr(0, why.find(": "));
  const CLI::Option* const option = verb.get_option_no_throw(name);
  if (option == nullptr) return {};
  constexpr std::string_view count = ": At Most 1 required but received ";
  if (const std::size_t at = why.find(count); at != std::string::npos)
    return fmt::format("{} is given {} times, but only once is allowed", name, why.substr(at + count.size()));
  if (why.find(" required but received ") != std::string::npos) return {};
  return fmt::format("{0} needs a value: {0} {1}", name, value_of(*option));
}

/// A required option that is missing: "--out PNG is missing: the output file".
std::string missing_option(const CLI::App& verb) {
  for (const CLI::Option* o : verb.get_options()) {
    if (!o->get_required() || o->count() > 0) continue;
    const std::string name =
        o->get_positional() ? o->get_single_name() : o->get_name(false, true) + " " + value_of(*o);
    return fmt::format("{} is missing: {}", name, o->get_description());
  }
  return {};
}

/// CLI11 only lists the surplus words. Returns "unexpected argument 'x'; usage: penstock map [FILE] [OPTIONS]".
std::string unexpected_words(const CLI::App& all, const verb_table::entry& verb) {
  std::vector<std::string> extra = verb.parser->remaining();
  if (extra.empty()) extra = all.remaining();
  if (extra.empty()) return {};
  if (extra.front().starts_with('-') && extra.front() != "--")
    return fmt::format("there is no option '{}'", printable(extra.front()));
  std::string why =
      fmt::format("unexpected argument '{}'; usage: {}", printable(extra.front()), synopsis_of(verb));
  if (verb.parser->get_option_no_throw("--command") != nullptr) why += "; pass a program with --command";
  return why;
}

/// Reports an option before the verb, with the verb and option that the user probably meant.
std::string option_before_verb(const verb_table& table, const std::vector<std::string>& arguments) {
  const std::string name = arguments.front().substr(0, arguments.front().find('='));
  const auto word =
      std::ranges::find_if(arguments, [&table](const std::string& a) { return table.find(a) != nullptr; });
  if (word == arguments.end())
    return fmt::format("'{}' comes before the verb: penstock VERB [OPTIONS]", printable(name));
  std::vector<std::string> known;
  for (const option_facts& o : options_of(*table.find(*word)->parser)) {
    for (std::size_t at = 0; !o.positional && at < o.names.size();) {
      const std::size_t end = std::min(o.names.find(',', at), o.names.size());
      known.push_back(o.names.substr(at, end - at));
      at = end + 1;
    }
  }
  const bool there = std::ranges::find(known, name) != known.end();
  const std::string_view near = there ? std::string_view(name) : nearest_name(name, known);
  const std::string before =
      fmt::format("'{}' comes before the verb, but options follow it", printable(name));
  if (near.empty()) return fmt::format("{}; '{}' has no such option", before, *word);
  return fmt::format("{}: penstock {} {}", before, *word, near);
}

}  // namespace

const char* title_of(verb_group group) noexcept {
  switch (group) {
    case verb_group::run: return "Run";
    case verb_group::operate: return "Operate a live session";
    case verb_group::look: return "Inspect and diagnose";
    case verb_group::shell: break;
  }
  return "This program";
}

const std::vector<exit_code_facts>& exit_codes() {
  static const std::vector<exit_code_facts> all{
      {exit_ok, "success"},
      {exit_failed, "the operation or the run failed"},
      {exit_usage, "the command line is wrong"},
      {exit_not_met, "a condition is not met: wait, status --check, doctor"},
      {exit_no_target, "there is no such target"},
      {exit_no_session, "no session can be reached"},
      {exit_timed_out, "timed out"},
      {exit_refused, "the session refused, or some ranks of a group did"},
      {exit_config, "the config file has mistakes: penstock check-config lists them"},
      {exit_interrupted, "ended cleanly because of SIGINT (Ctrl-C)"},
      {exit_terminated, "ended cleanly because of SIGTERM or SIGHUP"},
  };
  return all;
}

std::vector<option_facts> options_of(const CLI::App& verb) {
  std::vector<option_facts> all;
  for (const CLI::Option* o : verb.get_options()) {
    if (o->get_group().empty()) continue;  // hidden
    option_facts f;
    f.positional = o->get_positional();
    f.names = f.positional ? o->get_single_name() : o->get_name(false, true);
    f.value = o->get_items_expected_max() == 0 ? std::string() : value_of(*o);
    f.help = o->get_description();
    f.required = o->get_required();
    f.repeats = o->get_items_expected_max() > 1;
    if (const std::string usual = o->get_default_str(); !usual.empty() && !f.positional)
      f.help += fmt::format(" (default: {})", usual);
    all.push_back(std::move(f));
  }
  return all;
}

std::string synopsis_of(const verb_table::entry& verb) {
  std::string line = "penstock " + verb.facts.name;
  bool options = false;
  for (const option_facts& o : options_of(*verb.parser)) {
    options |= !o.positional;
    if (!o.positional) continue;
    const std::string name = o.names + (o.repeats ? "..." : "");
    line += o.required ? " " + name : " [" + name + "]";
  }
  return options ? line + " [OPTIONS]" : line;
}

std::string no_such_verb(const verb_table& table, const std::string& word) {
  std::vector<std::string> names;
  for (const auto& v : table.verbs()) names.push_back(v->facts.name);
  if (word.ends_with(".toml"))
    return fmt::format("there is no verb '{0}'; a config file comes after its verb: penstock run {0}", printable(word));
  std::string_view near = nearest_name(word, names);
  const auto begins = std::ranges::find_if(names, [&](const std::string& name) { return word.size() > 2 && name.starts_with(word); });
  if (near.empty() && begins != names.end()) near = *begins;
  return fmt::format("there is no verb '{}'", printable(word)) +
         (near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near));
}

verb_table::verb_table()
    : app_(
          "penstock feeds GPUs: loader worker processes, one GPU owner, and no batch is lost when one of them dies",
          "penstock") {
  app_.require_subcommand(1);
  app_.formatter(std::make_shared<help_of_the_table>(*this));
  app_.set_help_flag("-h,--help", "help for all verbs");
}

CLI::App& verb_table::add(verb_facts facts, action act) {
  CLI::App* const parser = app_.add_subcommand(facts.name, facts.summary);
  parser->set_help_flag("-h,--help", "print this text");
  parser->callback([this, act = std::move(act)] { chosen_ = act; });
  verbs_.push_back(std::make_unique<entry>(entry{std::move(facts), parser}));
  return *parser;
}

const verb_table::entry* verb_table::find(const std::string& name) const {
  const auto it = std::ranges::find_if(verbs_, [&](const auto& v) { return v->facts.name == name; });
  return it == verbs_.end() ? nullptr : it->get();
}

int verb_table::tell_usage_error(const CLI::ParseError& e, const std::vector<std::string>& arguments) const {
  std::string why = e.what();
  std::string where = "penstock help";
  const std::string word = first_word(arguments);
  if (arguments.front().starts_with("--") && arguments.front() != "--help") {
    why = option_before_verb(*this, arguments);
  } else if (const entry* verb = find(word)) {
    where += " " + word;
    std::string better = nearest_option(*verb->parser, arguments);
    if (better.empty() && e.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError))
      better = missing_option(*verb->parser);
    if (better.empty() && e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError))
      better = unexpected_words(app_, *verb);
    if (better.empty() && e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ValidationError)) better = wrong_word(why);
    if (better.empty() && e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) better = wrong_number_of_values(*verb->parser, why);
    if (!better.empty()) why = better;
  } else if (!word.empty()) {
    why = no_such_verb(*this, word);
  } else {
    why = "a verb is missing";
  }
  const bool as_json = given(arguments, "--json");
  return refuse_with(exit_usage, {errc::usage, why, 0}, as_json, where);
}

int verb_table::run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) {
    say_raw(help_of_all(*this, colours_on(2)));
    return exit_usage;
  }
  // These two options are accepted without a verb, as by other programs.
  if (arguments.front() == "--version" || arguments.front() == "-V") {
    char version[] = "version";
    char* with_verb[] = {argv[0], version};
    return run(2, with_verb);
  }
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    const std::string word = first_word(arguments);
    const entry* verb = find(word);
    if (verb == nullptr && !word.empty()) return tell_usage_error(help, arguments);
    print_raw(verb != nullptr ? help_of_verb(*verb, colours_on(1)) : help_of_all(*this, colours_on(1)));
    return exit_ok;
  } catch (const CLI::ParseError& e) {
    return tell_usage_error(e, arguments);
  }
  note_typed(arguments);
  return chosen_();
}

}  // namespace penstock::cli
