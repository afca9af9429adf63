// The token files that a worker reads. Used by the tokens dataset.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/file_pool.hpp"
#include "runtime/dataset/tokens/megatron_index.hpp"
#include "runtime/dataset/tokens/token_index.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace penstock {

class open_token_files {
 public:
  /// `store`: for URLs, otherwise null.
  open_token_files(std::string folder, std::shared_ptr<object_store> store)
      : folder_(std::move(folder)), files_(std::move(store), file_check::size_when_opened) {}

  [[nodiscard]] bool is_remote() const noexcept { return files_.is_remote(); }
  /// A token file. Its read() refuses, without the file's name, a file that cannot be read or has changed since it was listed.
  std::shared_ptr<readable> file(const token_index& index, std::uint64_t file);
  /// The index of a local file that has one. Valid until the next call. Refuses what megatron_index and local_file refuse.
  result<const megatron_index*> documents(const token_index& index, std::uint64_t file);

 private:
  struct kept_index {
    std::uint64_t file = 0;
    std::uint64_t used = 0;  ///< 0: this entry is empty
    std::unique_ptr<readable> opened;
    std::optional<megatron_index> documents;
  };

  std::string folder_;
  file_pool files_;
  std::uint64_t uses_ = 0;
  std::array<kept_index, 128> kept_;
};

}  // namespace penstock
