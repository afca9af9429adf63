#include "runtime/device/nvjpeg.hpp"

#include "runtime/base/units.hpp"

#include <fmt/core.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

namespace penstock::device {
namespace {

namespace fs = std::filesystem;

constexpr std::array names{"libnvjpeg.so.13", "libnvjpeg.so.12"};
constexpr int oldest_major = 12;

/// Where pip puts NVIDIA's libraries in the active environment.
std::vector<fs::path> folders_of_python() {
  std::vector<fs::path> folders;
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const root = std::getenv(variable);
    if (root == nullptr || *root == '\0') continue;
    std::error_code ignored;
    for (const fs::directory_entry& lib : fs::directory_iterator(fs::path(root) / "lib", ignored)) {
      if (!lib.path().filename().string().starts_with("python3")) continue;
      for (const char* const folder : {"cu13/lib", "nvjpeg/lib"})
        folders.push_back(lib.path() / "site-packages/nvidia" / folder);
    }
  }
  return folders;
}

std::vector<std::string> candidates() {
  const char* const named = std::getenv("PENSTOCK_NVJPEG");
  if (named != nullptr && *named != '\0') return {named};
  std::vector<std::string> files(names.begin(), names.end());
  std::vector<fs::path> folders = folders_of_python();
  folders.emplace_back("/usr/local/cuda/lib64");
  std::error_code ignored;
  for (const fs::path& folder : folders)
    for (const char* const name : names)
      if (fs::exists(folder / name, ignored)) files.push_back(folder / name);
  return files;
}

}  // namespace

result<std::shared_ptr<const nvjpeg_library>> nvjpeg_library::open() {
  constexpr std::string_view remedy =
      "install it (libnvjpeg of CUDA's packages, or nvidia-nvjpeg of pip), name its file in PENSTOCK_NVJPEG, "
      "or set "
      "[image] decoder = \"cpu\"";
  std::string trouble;
  for (const std::string& file : candidates()) {
    driver_library found(file);
    if (!found) {
      if (trouble.empty()) trouble = found.trouble();
      continue;
    }
    std::shared_ptr<nvjpeg_library> made(new nvjpeg_library(std::move(found)));
    int (*property)(int, int*) = nullptr;
    bool known = made->library_.find("nvjpegGetProperty", property);
    for (int i = 0; i < 3; ++i) known = known && property(i, &made->version_[i]) == nvjpeg_abi::success;
    const bool old = known && made->version_[0] < oldest_major;
    if (known && !old && made->find_all()) return std::shared_ptr<const nvjpeg_library>(std::move(made));
    trouble = !known ? fmt::format("{} is not nvJPEG", file)
                     : fmt::format("{} is nvJPEG {}, but {}", made->path(), made->version_text(),
                                   old ? fmt::format("{} or later is needed", oldest_major) : "lacks functions that decoding needs");
  }
  return refuse(errc::device_unavailable, "decoding JPEGs on the GPU needs nvJPEG: {}; {}", trouble, remedy);
}

bool nvjpeg_library::find_all() {
  return library_.find("nvjpegCreateEx", create) && library_.find("nvjpegDestroy", destroy) &&
         library_.find("nvjpegJpegStateCreate", create_state) &&
         library_.find("nvjpegJpegStateDestroy", destroy_state) &&
         library_.find("nvjpegDecodeBatchedInitialize", begin_batch) &&
         library_.find("nvjpegDecodeBatched", decode_batch);
}

std::string nvjpeg_library::version_text() const {
  return fmt::format("{}.{}.{}", version_[0], version_[1], version_[2]);
}

std::string nvjpeg_library::text_of(int status) {
  constexpr std::array<std::string_view, 11> texts{
      "success",        "not initialised",  "invalid parameter",     "bad JPEG",       "JPEG not supported",
      "out of memory",  "execution failed", "architecture mismatch", "internal error", "not supported",
      "incomplete file"};
  const auto at = static_cast<std::size_t>(status);
  return fmt::format("{} ({})", at < texts.size() ? texts[at] : "unknown status", status);
}

std::string nvjpeg_library::out_of_memory(std::uint64_t requested, std::uint64_t free, std::uint64_t total) {
  return fmt::format(
      "allocating memory for decoding JPEGs on the GPU (requested {}, free {} of {}); lower [gpu] buffers or "
      "[sampler] batch_size, or set [image] decoder = \"cpu\"",
      bytes_for_people(requested), bytes_for_people(free), bytes_for_people(total));
}

}  // namespace penstock::device
