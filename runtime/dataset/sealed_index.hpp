// The memory file that passes a dataset's index from a session to its workers. The session creates and seals it; each
// worker maps it read-only. Used by the indexes of listings, tokens and arrays.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock {

/// Creates an empty file for an index of `bytes`. `of`: what it indexes, for messages ("12 files"). Refuses
/// (errc::out_of_memory) a size above RLIMIT_FSIZE: writing beyond it would raise SIGXFSZ.
result<unique_fd> create_index(std::string_view of, std::uint64_t bytes);
/// Seals the file once its contents are written. After that, they can no longer change.
result<void> seal_index_file(int fd);

/// Maps an index. `what` is its name in messages ("the dataset's index"). Refuses (errc::protocol) a file that is not
/// sealed or is shorter than the index's header.
result<mapping> map_index(int fd, std::string_view what, std::size_t header_bytes);

}  // namespace penstock
