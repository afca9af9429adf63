#include "runtime/process/output_file.hpp"

#include "runtime/base/mapping.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace penstock::process {
namespace {

constexpr std::size_t output_bytes = MiB;

}  // namespace

result<output_file> output_file::create() {
  constexpr std::string_view what = "a file for the output of a program";
  auto file = create_memory_file("penstock-output", what);
  if (!file) return tl::unexpected(std::move(file.error()));
  if (::ftruncate(file->get(), output_bytes) != 0)
    return refuse_os(errc::system, errno, fmt::format("setting the size of {}", what));
  if (auto ok = seal_memory_file(file->get(), seal::size, what); !ok)
    return tl::unexpected(std::move(ok.error()));
  return output_file(std::move(*file));
}

std::string output_file::text() const {
  std::string all(output_bytes, '\0');
  const ssize_t bytes = ::pread(file_.get(), all.data(), all.size(), 0);
  all.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  // The file is full of zeros at first, so the first zero is where the child's output ends.
  all.resize(std::min(all.size(), all.find('\0')));
  return all;
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of("\n\r ");
  if (end == std::string::npos) return {};
  const std::size_t begin = text.find_last_of('\n', end);
  return printable(text.substr(begin == std::string::npos ? 0 : begin + 1,
                               end - (begin == std::string::npos ? std::size_t(-1) : begin)));
}

}  // namespace penstock::process
