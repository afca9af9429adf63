#include "runtime/config/key_table.hpp"

#include "runtime/config/value_types.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

namespace penstock::config_file {
namespace {

// The names used in the columns `limits` and `use` of config_keys.def.
constexpr value_limits any{};
constexpr value_limits a_path{.kind = limit_kind::path};
constexpr value_limits a_location{.kind = limit_kind::location};
constexpr value_limits a_command{.kind = limit_kind::command};
constexpr value_limits device_name{.kind = limit_kind::device};
constexpr value_limits session_name{.kind = limit_kind::session_name};
constexpr value_limits one_of_image_types{.kind = limit_kind::image_type};
constexpr value_limits listen_address{.kind = limit_kind::listen_address};
constexpr value_limits variable_names{.kind = limit_kind::variable_names};

constexpr double plain(double number) {
  return number;
}
constexpr double plain(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count());
}

template <class Low, class High>
constexpr value_limits between(Low low, High high) {
  return {limit_kind::range, plain(low), plain(high)};
}
constexpr value_limits at_least(std::uint64_t low) {
  return {.kind = limit_kind::range, .low = static_cast<double>(low)};
}

/// The member at the end of a chain of members, from a root of known type.
template <class Root, auto... Route>
void* locate(void* root) {
  return &(*static_cast<Root*>(root).*....*Route);
}

/// One specialisation for each struct of the .def, made below: list<Root, Route...>(builder) adds the table
/// that Route reaches from Root, with everything in it. keys() adds the table's contents at `path`.
template <class Table>
struct rows;

}  // namespace

class key_table_builder {
 public:
  explicit key_table_builder(key_table& into) : into_(into) {}

  void table(const table_info& about) { into_.tables_.push_back(about); }

  template <class T, class Root, auto... Route>
  void key(std::string_view table, std::string_view name, const value_limits& limits, used_with use,
           effect_time effect, std::string_view help) {
    key_info made;
    made.path = join(table, name);
    made.name = name;
    made.table = table;
    made.form = functions_of<T>().form();
    made.limits = limits;
    made.use = use;
    made.effect = effect;
    made.help = help;
    made.value = &functions_of<T>();
    made.locate = &locate<Root, Route...>;
    into_.index_.emplace(made.path, into_.keys_.size());
    into_.keys_.push_back(std::move(made));
  }

 private:
  key_table& into_;
};

namespace {

using namespace std::chrono_literals;
using enum used_with;

#define PENSTOCK_TABLE(type, path, actor, help)           \
  template <>                                             \
  struct rows<type> {                                     \
    using table = type;                                   \
    static constexpr table_info about{path, actor, help}; \
    template <class Root, auto... Route>                  \
    static void list(key_table_builder& out) {            \
      out.table(about);                                   \
      keys<Root, Route...>(out, path);                    \
    }                                                     \
    template <class Root, auto... Route>                  \
    static void keys(key_table_builder& out, [[maybe_unused]] std::string_view in) {
#define PENSTOCK_KEY(type, name, fallback, limits, use, effect, help) \
  out.key<type, Root, Route..., &table::name>(in, #name, limits, use, effect_time::effect, help);
#define PENSTOCK_KEYS_OF(type, name) rows<type>::template keys<Root, Route..., &table::name>(out, in);
#define PENSTOCK_SUBTABLE(type, name) rows<type>::template list<Root, Route..., &table::name>(out);
#define PENSTOCK_TABLE_END(type) \
  }                              \
  }                              \
  ;
#include <penstock/config_keys.def>

}  // namespace

key_table::key_table() {
  key_table_builder builder(*this);
  rows<penstock::config>::list<penstock::config>(builder);
  rows<fault_config>::list<fault_config>(builder);
  rows<mixed_dataset_config>::list<mixed_dataset_config>(builder);
}

const key_table& key_table::get() {
  static const key_table* const all = [] {
    auto* made = new key_table();  // never destroyed, so that it is usable until the last destructor of the process
    const penstock::config config_defaults;
    const fault_config fault_defaults;
    const mixed_dataset_config mixed_defaults;
    for (key_info& key : made->keys_) {
      const void* defaults = &config_defaults;
      if (key.table == faults_table) defaults = &fault_defaults;
      if (key.table == datasets_table) defaults = &mixed_defaults;
      // This comes after all keys are registered, because printing a list of faults uses the keys of a fault.
      key.default_text = key.value->write(key.locate_in(defaults));
    }
    return made;
  }();
  return *all;
}

std::vector<const key_info*> key_table::keys_of(std::string_view table) const {
  std::vector<const key_info*> found;
  for (const key_info& key : keys_) {
    if (key.table == table) found.push_back(&key);
  }
  return found;
}

const key_info* key_table::find(std::string_view path) const {
  const auto at = index_.find(path);
  return at == index_.end() ? nullptr : &keys_[at->second];
}

const key_info* key_table::find_in(std::string_view table, std::string_view name) const {
  return name.find_first_of(".[") == std::string_view::npos ? find(join(table, name)) : nullptr;
}

const table_info* key_table::find_table_in(std::string_view table, std::string_view name) const {
  return name.find_first_of(".[") == std::string_view::npos ? find_table(join(table, name)) : nullptr;
}

const table_info* key_table::find_table(std::string_view path) const {
  const auto at =
      std::find_if(tables_.begin(), tables_.end(), [&](const table_info& t) { return t.path == path; });
  return at == tables_.end() ? nullptr : &*at;
}

std::vector<const table_info*> key_table::tables_below(std::string_view path) const {
  std::vector<const table_info*> found;
  for (const table_info& table : tables_) {
    if (table.path.empty() || table.path.ends_with("[]")) continue;
    const std::size_t dot = table.path.rfind('.');
    const std::string_view parent = dot == std::string_view::npos ? "" : table.path.substr(0, dot);
    if (parent == path) found.push_back(&table);
  }
  return found;
}

std::string_view key_table::actor_of(std::string_view table) const {
  while (true) {
    const table_info* const about = find_table(table);
    if (about != nullptr && !about->actor.empty()) return about->actor;
    if (table.empty()) return {};
    const std::size_t dot = table.rfind('.');
    table = dot == std::string_view::npos ? std::string_view() : table.substr(0, dot);
  }
}

std::string join(std::string_view table, std::string_view name) {
  return table.empty() ? std::string(name) : fmt::format("{}.{}", table, name);
}

bool in_array(const key_info& key) noexcept {
  return key.table.ends_with("[]");
}

std::string key_info::subject() const {
  if (table.empty()) return fmt::format("'{}'", name);
  if (in_array(*this)) return fmt::format("'{}' in [[{}]]", name, table.substr(0, table.size() - 2));
  return fmt::format("'{}' in [{}]", name, table);
}

}  // namespace penstock::config_file
