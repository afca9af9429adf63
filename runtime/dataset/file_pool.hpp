// The files of a dataset that a worker reads. Local files stay open, up to a limit, because
// a dataset may have more files than a process can open. Objects come from an object_store.
#pragma once

#include "runtime/dataset/local_file.hpp"
#include "runtime/storage/object_store.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace penstock {

/// A file as it was when the dataset was listed.
struct pooled_file {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  ///< for file_check::size_and_time
  std::string tag;               ///< an object's version; otherwise empty
};

/// Thread-safe. The local files in it are not.
class file_pool {
 public:
  /// `store`: for URLs, otherwise null.
  file_pool(std::shared_ptr<object_store> store, file_check check);

  [[nodiscard]] bool is_remote() const noexcept { return store_ != nullptr; }
  /// Returns file `number` of the dataset. Calls `facts` if the file is not in the pool.
  std::shared_ptr<readable> file(std::uint64_t number, const std::function<pooled_file()>& facts);

 private:
  struct kept_file {
    std::shared_ptr<readable> file;
    std::uint64_t used = 0;
  };
  void drop_older_half();

  std::shared_ptr<object_store> store_;
  file_check check_;
  std::size_t kept_max_;
  std::mutex mutex_;
  std::uint64_t uses_ = 0;
  std::unordered_map<std::uint64_t, kept_file> kept_;
};

}  // namespace penstock
