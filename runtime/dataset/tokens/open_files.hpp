// The token files that a worker has open: the ones used last, up to a limit, because a dataset may have more files than
// a process may open. Used by the tokens dataset.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/tokens/megatron_index.hpp"
#include "runtime/dataset/tokens/token_index.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

class open_token_files {
 public:
  explicit open_token_files(std::string folder) : folder_(std::move(folder)) {}

  /// Fills `into` from byte `at` of a file. Refuses (errc::io), in one sentence without the file's name, what cannot be
  /// opened or read, a file that has another size than when it was listed, and a read beyond its end.
  result<void> read(const token_index& index, std::uint64_t file, std::uint64_t at, std::span<std::byte> into);
  /// The index of a file that has one. Valid until the next call of read or documents. Refuses as megatron_index and
  /// read do.
  result<const megatron_index*> documents(const token_index& index, std::uint64_t file);

  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

 private:
  struct kept_file {
    std::uint64_t file = 0;
    std::uint64_t used = 0;  ///< 0: nothing is kept here
    unique_fd fd;
    unique_fd index_fd;
    std::optional<megatron_index> documents;
  };
  /// The one for this file, opened; or the errors of opening.
  result<kept_file*> keep(const token_index& index, std::uint64_t file);

  std::string folder_;
  std::uint64_t uses_ = 0;
  std::array<kept_file, 128> kept_;
};

}  // namespace penstock
