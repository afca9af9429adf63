// The documents of token files, for [dataset] boundaries = "pack", which needs all their lengths. Used by the session.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/tokens/token_files.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace penstock {

/// The length of every document, in tokens, file after file; their sum is list.tokens. Comes from a file's index;
/// without one, from reading the whole file: a document ends after each `eos` and at the end of the file. A file with
/// neither an index nor an `eos` is one document, or several if it has 2^32 tokens or more. Refuses (errc::dataset,
/// errc::io) files that cannot be read, an index that is wrong, and documents of 2^32 tokens or more.
result<std::vector<std::uint32_t>> lengths_of_documents(const token_file_list& list, std::optional<std::uint32_t> eos);

}  // namespace penstock
