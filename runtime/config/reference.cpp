// The key table as documentation: docs/config.md and `check-config --explain`.
#include "runtime/config/describe.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/wording.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::config_file {
namespace {

constexpr std::string_view introduction =
    R"(<!-- Made from runtime/include/penstock/config_keys.def by reference_markdown(); edit that, not this. -->
# Config keys

Every key of a config file, with its type, default, limits and meaning.

A config file is TOML. The tables [loader], [scheduler], [gpu], [group] and [supervisor] configure the part of penstock with that
name; the others describe the data and the session. Every key but the `path` of stored data has a default. `penstock check-config FILE` checks a file.
`--print-effective` shows each value and where it came from, and `--explain` what each table configures. `penstock schema` prints
the JSON Schema.

## Rules

- **Mistakes** are reported all at once, with file, line and column: unknown keys (with the nearest name), keys given
  twice, wrong types, values out of range, contradictions between keys. A value that has no effect with the rest of the
  file is a warning (an error with `--strict`), unless it is the default.
- **Durations and sizes carry their unit**: `"250ms"`, `"1.5s"`, `"10m"` (d, h, m, s, ms, us, ns); `"64MiB"`, `"2GiB"`
  (B, KiB, MiB, GiB, TiB, KB, MB, GB, TB).
- **Precedence**, lowest first: the default, included files, the file, the environment, `--set`. Tables whose keys are
  yours (such as [vars], [loader.env] and [dataset.members]) are merged entry by entry; arrays are replaced as a whole.
- **Includes**: `include = ["base.toml"]` at the top. Names are relative to the including file; later files override
  earlier ones, and the including file overrides them all. Includes may be 16 deep, and a file may be up to 1 MiB.
- **Environment**: `PENSTOCK__LOADER__WORKERS=4` sets `workers` in [loader]: upper case, two underscores between the
  parts. Keys of tables whose keys are yours keep their case: `PENSTOCK__VARS__data=/data`.
- **--set**: `--set loader.workers=4`. Here and in the environment the value is a TOML value; a value that is not TOML is
  taken as a string (`--set gpu.device=host`). A key of type string takes any value as a string (`--set name=7`).
- **References** in any string: `${env:NAME}`, `${env:NAME:-default}` (the default also replaces an empty value),
  `${cfg:dir}` (the folder of the file that contains it), `${var:NAME}` (from [vars]); `$$` is a dollar sign. [vars] and
  `include` may refer to the environment and `${cfg:dir}`, not to variables. A reference may also give a number or a
  boolean: `workers = "${env:WORKERS:-auto}"`, `shuffle = "${env:SHUFFLE:-true}"`.
- **Relative paths** in a file are relative to that file; those from the environment and `--set` to the current folder.

## Tables
)";

std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

std::string header_of(const table_info& table) {
  if (table.path.empty()) return "top of the file";
  if (table.path.ends_with("[]")) return fmt::format("[[{}]]", table.path.substr(0, table.path.size() - 2));
  return fmt::format("[{}]", table.path);
}

std::string effect_text(effect_time effect) {
  return effect == effect_time::worker ? "next session, and workers that start later" : "next session";
}

/// The file's tables. The tables of an array directly follow the table that contains the array.
std::vector<const table_info*> tables_in_order() {
  std::vector<const table_info*> order;
  const std::vector<table_info>& all = key_table::get().tables();
  for (const table_info& table : all) {
    if (table.path.ends_with("[]")) continue;
    order.push_back(&table);
    for (const table_info& inner : all) {
      if (!inner.path.ends_with("[]")) continue;
      const std::string_view after =
          inner.path == datasets_table ? "dataset" : inner.path.substr(0, inner.path.rfind('.'));
      if (after == table.path) order.push_back(&inner);
    }
  }
  return order;
}

}  // namespace

std::string reference_markdown() {
  const key_table& all = key_table::get();
  std::string text(introduction);
  for (const table_info* table : tables_in_order()) {
    text += fmt::format("\n### {}\n\nConfigures {}: {}.\n", header_of(*table), all.actor_of(table->path),
                        table->help);
    const std::vector<const key_info*> keys = all.keys_of(table->path);
    if (keys.empty()) continue;
    text += "\n| key | type | default | meaning | takes effect |\n| --- | --- | --- | --- | --- |\n";
    for (const key_info* key : keys) {
      text += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key->name, markdown_cell(type_text(*key)),
                          markdown_cell(key->default_text), markdown_cell(description_of(*key)),
                          effect_text(key->effect));
    }
  }
  return text;
}

std::string explain() {
  const key_table& all = key_table::get();
  std::string text = "What each table configures:\n\n";
  std::size_t width = 0;
  for (const table_info* table : tables_in_order()) width = std::max(width, header_of(*table).size());
  for (const table_info* table : tables_in_order()) {
    text +=
        fmt::format("  {:<{}}  {}: {}\n", header_of(*table), width, all.actor_of(table->path), table->help);
  }
  for (const table_info* table : tables_in_order()) {
    const std::vector<const key_info*> keys = all.keys_of(table->path);
    if (keys.empty()) continue;
    text += fmt::format("\n{} - {}\n", header_of(*table), all.actor_of(table->path));
    for (const key_info* key : keys) {
      text += fmt::format("  {} = {}\n      {}\n      {}\n", key->name, key->default_text,
                          description_of(*key), type_text(*key));
    }
  }
  return text;
}

}  // namespace penstock::config_file
