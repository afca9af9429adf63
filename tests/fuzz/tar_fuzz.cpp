// Tar archives: the parser takes or refuses any bytes, asks only for bytes within the archive, moves forward,
// and finds only members whose contents lie within it.
#include "runtime/dataset/tar/tar_parser.hpp"
#include "runtime/dataset/tar/tar_writer.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <cstdlib>
#include <cstring>

using namespace penstock;

namespace {

void must(bool condition) {
  if (!condition) std::abort();
}

/// Corrects every header's checksum, so that mutations get past it.
void mend_checksums(std::string& archive) {
  for (std::size_t at = 0; at + tar_block <= archive.size(); at += tar_block) {
    if (archive.compare(at + 257, 5, "ustar") != 0) continue;
    std::memset(archive.data() + at + 148, ' ', 8);
    unsigned sum = 0;
    for (std::size_t i = 0; i < tar_block; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    for (std::size_t digit = 0; digit < 6; ++digit)
      archive[at + 153 - digit] = static_cast<char>('0' + ((sum >> (3 * digit)) & 7U));
    archive[at + 154] = '\0';
  }
}

void walk(std::string_view archive) {
  tar_parser parser(archive.size());
  std::uint64_t seen = 0;
  while (const auto range = parser.wanted()) {
    must(range->at >= seen && range->at <= archive.size() && range->bytes <= archive.size() - range->at);
    const auto* const bytes = reinterpret_cast<const std::byte*>(archive.data()) + range->at;
    const auto member = parser.take({bytes, range->bytes});
    if (!member) {
      must(!member.error().message.empty());
      return;
    }
    must(!parser.wanted() || parser.wanted()->at > range->at);
    seen = range->at;
    if (!*member) continue;
    must((*member)->data_at <= archive.size() && (*member)->size <= archive.size() - (*member)->data_at);
    must((*member)->header_at < (*member)->data_at && (*member)->data_at % tar_block == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string archive(reinterpret_cast<const char*>(data), size);
  walk(archive);
  mend_checksums(archive);
  walk(archive);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::string plain;
  append_tar_member(plain, "a/1.jpg", "picture");
  append_tar_member(plain, "a/1.cls", "7");
  append_tar_member(plain, std::string(120, 'n') + ".jpg", std::string(600, 'x'));
  append_tar_end(plain);
  std::string pax;
  append_tar_member(pax, "PaxHeaders/1", "16 path=b/2.jpg\n10 size=3\n");
  pax[156] = 'x';
  append_tar_member(pax, "short", "abc");
  std::string sparse;
  append_tar_header(sparse, "holes.jpg", 4);
  sparse[156] = 'S';
  sparse[482] = 1;
  sparse += std::string(1024, '\0');
  mend_checksums(pax);
  mend_checksums(sparse);
  return {plain, pax, sparse, pax + plain};
}
