// The memory file in which a session hands a dataset's index to its workers: made and sealed by the session,
// mapped read-only by each worker. Used by the indexes of listings, tokens and
// arrays.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock {

/// An empty file for an index of `bytes`. `of`: what it indexes, for messages ("12 files"). Refuses
/// (errc::out_of_memory) a size that RLIMIT_FSIZE forbids: exceeding it would raise SIGXFSZ.
result<unique_fd> create_index(std::string_view of, std::uint64_t bytes);
/// Makes its contents permanent, once they are written.
result<void> seal_index_file(int fd);

/// Maps an index. `what` begins the messages ("the dataset's index"). Refuses (errc::protocol) a file that is not
/// sealed, or is shorter than the index's header.
result<mapping> map_index(int fd, std::string_view what, std::size_t header_bytes);

}  // namespace penstock
