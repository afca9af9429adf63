#include "runtime/sink/npy_writer.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace penstock::sink {
namespace {

std::string_view descr_of(dtype type) {
  switch (type) {
    case dtype::uint8: return "|u1";
    case dtype::int8: return "|i1";
    case dtype::uint16:
    case dtype::bfloat16: return "<u2";
    case dtype::int16: return "<i2";
    case dtype::uint32: return "<u4";
    case dtype::int32: return "<i4";
    case dtype::uint64: return "<u8";
    case dtype::int64: return "<i8";
    case dtype::float16: return "<f2";
    case dtype::float32: return "<f4";
    case dtype::float64: return "<f8";
  }
  return "|u1";
}

}  // namespace

std::string npy_header(dtype type, const std::vector<std::uint64_t>& shape) {
  std::string tuple;
  for (const std::uint64_t extent : shape) tuple += fmt::format("{}, ", extent);
  if (shape.size() > 1) tuple.resize(tuple.size() - 2);
  if (shape.size() == 1) tuple.resize(tuple.size() - 1);  // a tuple of one number ends in a comma
  std::string dictionary =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr_of(type), tuple);
  constexpr std::size_t preamble = 10;  // magic, version, length
  while ((preamble + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dictionary.size() & 0xffU);
  header += static_cast<char>(dictionary.size() >> 8U);
  return header + dictionary;
}

result<void> write_npy(const std::filesystem::path& file, const tensor_view& tensor) {
  const std::filesystem::path temporary = file.string() + ".tmp";
  const auto no = [&](int code, std::string_view doing) {
    ::unlink(temporary.c_str());
    return refuse_os(errc::sink, code, fmt::format("{} '{}'", doing, printable(file.string())));
  };
  unique_fd out(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!out) return no(errno, "creating");
  const std::string header = npy_header(tensor.type, tensor.shape);
  if (const int code = write_all(out.get(), header)) return no(code, "writing");
  if (const int code =
          write_all(out.get(), std::span(static_cast<const std::byte*>(tensor.data), tensor.bytes())))
    return no(code, "writing");
  if (::fsync(out.get()) != 0) return no(errno, "syncing");
  out.reset();
  if (::rename(temporary.c_str(), file.c_str()) != 0) return no(errno, "renaming to");
  return {};
}

}  // namespace penstock::sink
