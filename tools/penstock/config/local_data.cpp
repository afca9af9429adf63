#include "tools/penstock/config/local_data.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/dataset_type.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/arrays/array_index.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/tar/shard_list.hpp"
#include "runtime/dataset/tokens/token_files.hpp"

#include <filesystem>
#include <vector>

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t entries_max = 200'000;

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

/// Whether a run may find a picture: in the class folders or, if there are none, in the folder itself.
bool may_have_pictures(const fs::path& folder) {
  std::error_code fault;
  std::vector<fs::path> classes;
  bool beside = false;
  for (fs::directory_iterator at(folder, fault), end; !fault && at != end; at.increment(fault)) {
    if (is_hidden(at->path())) continue;
    if (std::error_code gone; at->is_directory(gone))
      classes.push_back(at->path());
    else
      beside |= is_picture_name(at->path().filename().string());
  }
  if (fault || (beside && classes.empty())) return true;
  std::size_t looked_at = 0;
  constexpr auto links_too = fs::directory_options::follow_directory_symlink;
  for (const fs::path& one : classes) {
    for (fs::recursive_directory_iterator at(one, links_too, fault), end; !fault && at != end; at.increment(fault)) {
      if (++looked_at > entries_max || is_picture_name(at->path().filename().string())) return true;
    }
    if (fault) return true;
  }
  return false;
}

std::optional<std::string> trouble_with_shards(const std::string& path) {
  const auto list = list_shards(path);
  if (!list) return list.error().message;
  if (list->store) return std::nullopt;
  std::size_t missing = 0;
  std::string first;
  for (std::size_t i = 0; i < list->names.size(); ++i) {
    std::error_code fault;
    if (fs::exists(list->path(i), fault) || fault) continue;
    if (missing++ == 0) first = list->path(i);
  }
  if (missing == 0) return std::nullopt;
  return fmt::format("{} of {} {} not exist on this machine: '{}'{}", missing, counted(list->names.size(), "shard"), missing == 1 ? "does" : "do",
                     printable(first), missing > 1 ? " and others" : "");
}

/// Whether listing the arrays may read and inflate all of their values.
bool may_be_deflated(const dataset_config& dataset) {
  std::error_code fault;
  return !fs::is_directory(dataset.path, fault);
}

std::optional<std::string> message_of(const auto& found) {
  return found ? std::nullopt : std::optional(found.error().message);
}

}  // namespace

std::optional<std::string> trouble_with_files(const config& settings) {
  const dataset_config& dataset = settings.dataset;
  if (dataset.path.empty() || is_url(dataset.path)) return std::nullopt;
  const bool is_list = ends_with_any_case(dataset.path, ".txt");  // a list may name objects
  switch (dataset.type) {
    case dataset_type::image_folder:
      if (is_list || may_have_pictures(dataset.path)) return std::nullopt;
      return message_of(list_dataset(settings));
    case dataset_type::tar: return is_list ? std::nullopt : trouble_with_shards(dataset.path);
    case dataset_type::tokens: return is_list ? std::nullopt : message_of(list_token_files(dataset, {}));
    case dataset_type::raw:
    case dataset_type::npy:
      if (has_several_arrays(dataset)) return may_be_deflated(dataset) ? std::nullopt : message_of(seal_array_index(dataset));
      return is_list ? std::nullopt : message_of(list_dataset(settings));
    default: return std::nullopt;
  }
}

}  // namespace penstock::cli
