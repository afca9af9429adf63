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
#include <vector>

namespace penstock {

class open_token_files {
 public:
  /// `store`: for URLs, else null.
  open_token_files(std::string folder, std::shared_ptr<object_store> store)
      : folder_(std::move(folder)), files_(std::move(store), file_check::size_when_opened) {}

  [[nodiscard]] bool is_remote() const noexcept { return files_.is_remote(); }
  /// A file. Its read() refuses, without its name, what cannot be read, and a file that is not as it was listed.
  std::shared_ptr<readable> file(const token_index& index, std::uint64_t file);
  /// The index of a local file that has one. Valid until the next call. Refuses as megatron_index and local_file do.
  result<const megatron_index*> documents(const token_index& index, std::uint64_t file);

 private:
  struct kept_index {
    std::uint64_t file = 0;
    std::uint64_t used = 0;  ///< 0: nothing is kept here
    std::unique_ptr<readable> opened;
    std::optional<megatron_index> documents;
  };

  std::string folder_;
  file_pool files_;
  std::uint64_t uses_ = 0;
  std::array<kept_index, 128> kept_;
};

}  // namespace penstock
