#include "actors/remote/received_file.hpp"

#include "runtime/base/units.hpp"

#include <fcntl.h>

#include <cerrno>

namespace penstock::hosts {

result<received_file> received_file::make(std::uint64_t bytes, std::string_view what) {
  auto file = create_memory_file("penstock-received", what);
  if (!file) return tl::unexpected(std::move(file.error()));
  int status = 0;
  do {
    status = ::fallocate(file->get(), 0, 0, static_cast<off_t>(bytes));  // now, because writing to a page without memory would raise SIGBUS
  } while (status != 0 && errno == EINTR);
  mapping memory = status == 0 ? map_shared(file->get(), {0, bytes}) : mapping();
  if (!memory) return refuse_os(errc::out_of_memory, errno, fmt::format("{}: {}", what, bytes_for_people(bytes)));
  return received_file(std::move(*file), std::move(memory));
}

result<unique_fd> received_file::seal() && {
  memory_ = mapping();  // a file that is mapped for writing cannot be sealed
  if (auto ok = seal_memory_file(file_.get(), penstock::seal::size_and_contents, "a received file"); !ok)
    return tl::unexpected(std::move(ok.error()));
  return std::move(file_);
}

}  // namespace penstock::hosts
