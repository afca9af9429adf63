// Files and their includes.
#include "runtime/base/fd.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/layers.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

namespace penstock::config_file {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t file_bytes_max = MiB;  // far larger than a config with every key
constexpr std::size_t include_depth_max = 16;
/// A file may be included more than once. This limit stops a chain in which each file includes the next one
/// twice.
constexpr std::size_t includes_max = 256;

struct file_text {
  std::string text;
  int error = 0;  ///< errno; EFBIG: larger than file_bytes_max
};

file_text read_file(const fs::path& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {{}, errno};
  std::string text(file_bytes_max + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got == 0) break;
    if (got < 0 && errno != EINTR) return {{}, errno};
    if (got > 0) size += static_cast<std::size_t>(got);
  }
  if (size > file_bytes_max) return {{}, EFBIG};
  text.resize(size);
  return {std::move(text), 0};
}

std::string reason(int error) {
  if (error == EISDIR) return "it is a folder; a config file is a TOML file";
  if (error == EFBIG) return fmt::format("larger than {}", bytes_for_people(file_bytes_max));
  return std::generic_category().message(error);
}

/// Identifies a file regardless of the path to it.
std::string identity(const fs::path& path) {
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(path, ignored);
  return (ignored ? path : real).string();
}

class gatherer {
 public:
  gatherer(layer_stack& stack, const source_request& request, const reference_values& references,
           complaints& found)
      : stack_(stack), request_(request), references_(references), found_(found) {}

  void run() {
    if (request_.file.empty()) {
      stack_.add_source(source_kind::file, "no file", {}, request_.working_folder);
      return;
    }
    const fs::path path = (request_.working_folder / request_.file).lexically_normal();
    file_text read = read_file(path);
    const std::string shown = printable(request_.file.string());
    if (read.error != 0) {
      const source& none = stack_.add_source(source_kind::file, shown, {}, path.parent_path());
      stack_.complete = false;
      stack_.unreadable = read.error;
      found_.add({.at = {&none, span::everything, span::everything},
                  .message = fmt::format("cannot read {}: {}", shown, reason(read.error))});
      return;
    }
    const source& text =
        stack_.add_source(source_kind::file, shown, std::move(read.text), path.parent_path());
    add(text, path, request_.file);
  }

 private:
  struct open_file {
    std::string identity;
    std::string shown;
  };
  struct known_file {
    const source* text = nullptr;
    document parsed;
  };

  void add(const source& text, const fs::path& path, const fs::path& shown) {
    const std::string id = identity(path);
    known_file& known = known_[id];
    if (known.text == nullptr) known = {&text, parse_document(text, found_)};
    stack_.complete = stack_.complete && known.parsed.complete;
    chain_.push_back({id, printable(shown.string())});
    for (const node& tree : known.parsed.trees) {
      if (const member* const include = tree.find("include")) add_includes(*include, path, shown);
    }
    chain_.pop_back();
    for (const node& tree : known.parsed.trees) stack_.layers.push_back({known.text, tree});
  }

  void add_includes(const member& include, const fs::path& path, const fs::path& shown) {
    penstock::config scratch;
    value_reader reader(*key_table::get().find("include"),
                        {.references = references_, .found = found_, .scope = reference_scope::no_variables});
    if (!reader.read(include.value, &scratch)) {
      stack_.complete = false;
      return;
    }
    for (std::size_t i = 0; i < scratch.include.size(); ++i) {
      add_include(scratch.include[i], include.value.elements[i].at, path, shown);
    }
  }

  void refuse(span at, std::string message, std::string label, std::string help = {}) {
    stack_.complete = false;
    found_.add({.key = "include",
                .at = at,
                .message = std::move(message),
                .label = std::move(label),
                .help = std::move(help)});
  }

  void add_include(const std::string& name, span at, const fs::path& includer,
                   const fs::path& includer_shown) {
    const fs::path path = (includer.parent_path() / name).lexically_normal();
    const fs::path shown = (includer_shown.parent_path() / name).lexically_normal();
    const std::string id = identity(path);
    const auto open =
        std::find_if(chain_.begin(), chain_.end(), [&](const open_file& f) { return f.identity == id; });
    if (open != chain_.end()) {
      std::string chain;
      for (auto file = open; file != chain_.end(); ++file) chain += file->shown + " -> ";
      refuse(at, "files include each other in a circle", "this closes the circle", chain + open->shown);
      return;
    }
    if (chain_.size() > include_depth_max) {
      refuse(at, fmt::format("includes are nested more than {} deep", include_depth_max), "too deep");
      return;
    }
    if (++includes_ > includes_max) {
      if (includes_ == includes_max + 1)
        refuse(at, fmt::format("more than {} includes", includes_max), "one include too many");
      return;
    }
    const auto known = known_.find(id);
    const source* text = known != known_.end() ? known->second.text : nullptr;
    if (text == nullptr) {
      file_text read = name.empty() ? file_text{{}, ENOENT} : read_file(path);
      if (read.error != 0) {
        refuse(at, fmt::format("cannot read the included file '{}'", printable(shown.string())),
               reason(read.error),
               name.starts_with('/')
                   ? ""
                   : "the names of included files are relative to the file that includes them");
        return;
      }
      text = &stack_.add_source(source_kind::include, printable(shown.string()), std::move(read.text),
                                path.parent_path());
    }
    add(*text, path, shown);
    stack_.included.push_back(text->name());
  }

  layer_stack& stack_;
  const source_request& request_;
  const reference_values& references_;
  complaints& found_;
  std::vector<open_file> chain_;
  std::map<std::string, known_file> known_;
  std::size_t includes_ = 0;
};

}  // namespace

const source& layer_stack::add_source(source_kind kind, std::string name, std::string text,
                                      std::filesystem::path folder) {
  return sources.emplace_back(kind, std::move(name), std::move(text), std::move(folder),
                              static_cast<std::uint32_t>(sources.size()));
}

void add_files(layer_stack& stack, const source_request& request, const reference_values& references,
               complaints& found) {
  gatherer(stack, request, references, found).run();
}

}  // namespace penstock::config_file
