// The files of a tokens dataset, and the number of tokens in each. Used by the session.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/listing/found_files.hpp"
#include "runtime/dataset/tokens/megatron_index.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

struct token_file {
  std::string name;           ///< relative to the folder of the list, or absolute
  std::uint64_t bytes = 0;
  std::uint64_t data_at = 0;  ///< where the tokens begin; npy only
  std::uint64_t tokens = 0;
  std::uint64_t index_bytes = 0;  ///< size of the .idx next to it; 0 if there is none
  std::string tag;                ///< an object's version; empty for files
  std::string index_tag;          ///< the version of its .idx
};

struct token_file_list {
  std::string folder;  ///< without a trailing slash; "" is "/"
  dtype element = dtype::uint16;
  std::vector<token_file> files;  ///< at least one; each has at least one token
  std::uint64_t tokens = 0;
  std::vector<std::string> notices;
  std::shared_ptr<object_store> store;  ///< for URLs, otherwise null

  // A file and its index as they were listed. Reading refuses what local_file refuses.
  [[nodiscard]] std::shared_ptr<readable> open(const token_file& file) const;
  [[nodiscard]] std::shared_ptr<readable> open_index(const token_file& file) const;
};

/// Opens and examines every file that find_files finds: token files are *.bin and *.npy. A .bin with an .idx next to it
/// is Megatron's. Any other .bin is flat: tokens of [dataset] dtype without a header. Refuses (errc::dataset,
/// errc::config, errc::io) what find_files refuses, and a file that is empty, is not a token file, or has a different type
/// of token than the files before it.
result<token_file_list> list_token_files(const dataset_config& dataset, const store_options& options = {});

/// The value of token_file_list::folder for this path.
std::string folder_of_token_files(const std::string& path);

/// "a/b.bin" -> "a/b.idx"
std::string index_path_of(const std::string& path);

}  // namespace penstock
