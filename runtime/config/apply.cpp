#include "runtime/config/apply.hpp"

#include <fmt/core.h>

namespace penstock::config_file {
namespace {

constexpr std::string_view variables_key = "vars";

/// Calls visit(path, key, entry or null) for each value of a layer that sets a key or an entry of a map.
template <class Visit>
void for_each_setting(const node& table, const std::string& path, const Visit& visit) {
  for (const member& one : table.members) {
    const std::string full = join(path, one.name);
    const key_info* const key = key_table::get().find_in(path, one.name);
    if (key == nullptr) {
      if (one.value.kind == node_kind::table) for_each_setting(one.value, full, visit);
    } else if (key->form.count == arity::map && one.value.kind == node_kind::table) {
      for (const member& entry : one.value.members) visit(join(full, entry.name));
    } else {
      visit(full);
    }
  }
}

class applier {
 public:
  applier(const layer_stack& stack, const reference_values& references, applied& into, complaints& found)
      : stack_(stack), references_(references), into_(into), found_(found) {
    for (std::size_t i = 0; i < stack.layers.size(); ++i) {
      for_each_setting(stack.layers[i].root, "", [&](const std::string& path) { last_[path] = i; });
    }
  }

  void variables(reference_values& references) {
    const key_info& key = *key_table::get().find(variables_key);
    for (layer_ = 0; layer_ < stack_.layers.size(); ++layer_) {
      const member* const vars = stack_.layers[layer_].root.find(variables_key);
      if (vars != nullptr) value(*vars, key, reference_scope::no_variables);
    }
    references.variables = into_.values.vars;
    for (const std::string& path : into_.broken) {
      if (path.starts_with("vars.")) references.broken_variables.insert(path.substr(5));
      // [vars] has no keys of its own to check.
      if (path == variables_key) references.all_variables_known = false;
    }
    for (const std::string& name : references.broken_variables) references.variables.erase(name);
  }

  void everything() {
    for (layer_ = 0; layer_ < stack_.layers.size(); ++layer_) table(stack_.layers[layer_].root, "");
  }

 private:
  void table(const node& from, const std::string& path) {
    const key_table& all = key_table::get();
    for (const member& one : from.members) {
      const std::string full = join(path, one.name);
      if (full == variables_key || full == "include") continue;  // handled earlier
      const key_info* const key = all.find_in(path, one.name);
      if (key != nullptr) {
        value(one, *key, reference_scope::everything);
      } else if (all.find_table_in(path, one.name) == nullptr) {
        if (!found_.full()) found_.add(unknown_key(one, path));
      } else if (one.value.kind == node_kind::table) {
        into_.tables[full] = one.key;
        table(one.value, full);
      } else {
        found_.add({.key = full,
                    .at = one.value.at,
                    .message = fmt::format("'{}' must be a table", full),
                    .label = fmt::format("found {}", name_of(one.value.kind)),
                    .help = one.value.kind == node_kind::array ? fmt::format("write [{}]", full) : ""});
        into_.broken.insert(full);
      }
    }
  }

  [[nodiscard]] bool overridden(const std::string& path) const {
    const auto at = last_.find(path);
    return at != last_.end() && at->second > layer_;
  }

  void remember(const std::string& path, const member& from, bool sound) {
    if (sound) {
      into_.places[path] = {from.key, from.value.at};
      into_.broken.erase(path);
    } else if (!overridden(path)) {
      into_.broken.insert(path);
    }
  }

  void value(const member& from, const key_info& key, reference_scope scope) {
    reading how{.references = references_, .found = found_, .scope = scope, .overridden = false};
    if (key.form.count == arity::map && from.value.kind == node_kind::table) {
      auto& map = *static_cast<string_map*>(key.locate(&into_.values));
      for (const member& entry : from.value.members) {
        const std::string path = join(key.path, entry.name);
        how.overridden = overridden(path);
        remember(path, entry, value_reader(key, how).read_entry(entry, map));
      }
      into_.tables[key.path] = from.key;
      return;
    }
    how.overridden = overridden(key.path);
    const bool sound = value_reader(key, how).read(from.value, &into_.values);
    remember(key.path, from, sound);
    if (!sound || key.form.element != scalar::table) return;
    for (std::size_t i = 0; i < from.value.elements.size(); ++i) {
      const node& element = from.value.elements[i];
      const std::string path = fmt::format("{}[{}]", key.path, i);
      into_.places[path] = {element.at, element.at};
      for (const member& inner : element.members)
        into_.places[join(path, inner.name)] = {inner.key, inner.value.at};
    }
  }

  const layer_stack& stack_;
  const reference_values& references_;
  applied& into_;
  complaints& found_;
  std::size_t layer_ = 0;
  std::map<std::string, std::size_t> last_;  ///< the highest layer that sets a path
};

}  // namespace

void collect_variables(const layer_stack& stack, reference_values& references, applied& into,
                       complaints& found) {
  const reference_values before = references;
  applier(stack, before, into, found).variables(references);
}

void apply(const layer_stack& stack, const reference_values& references, applied& into, complaints& found) {
  applier(stack, references, into, found).everything();
}

}  // namespace penstock::config_file
