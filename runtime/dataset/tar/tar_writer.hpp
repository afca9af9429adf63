// Writes members of a tar archive as ustar, with GNU long names where ustar's fields are too short. Used by
// `penstock pack` and tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// Appends a header for a regular file of `size` bytes. Mode 0644, owner 0 and time 0 make equal contents give equal
/// archives. Its contents must follow, then tar_padding(size) zeros.
void append_tar_header(std::string& to, std::string_view name, std::uint64_t size);

/// The number of zeros after contents of `size` bytes.
[[nodiscard]] std::uint64_t tar_padding(std::uint64_t size) noexcept;

/// Appends header, contents and padding.
void append_tar_member(std::string& to, std::string_view name, std::string_view contents);

/// The bytes that append_tar_member would append.
[[nodiscard]] std::uint64_t tar_member_bytes(std::string_view name, std::uint64_t size) noexcept;

/// The two blocks of zeros that end an archive.
void append_tar_end(std::string& to);

}  // namespace penstock
