#include "runtime/process/stack_frame.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace penstock::process {
namespace {

constexpr std::size_t frames_max = 64;
constexpr std::size_t symbols_at_once = 256;

// Static, because the signal stack is small.
std::array<Elf64_Sym, symbols_at_once> symbols;

struct best_symbol {
  std::uint64_t start = 0;
  std::uint64_t name = 0;  // offset in the table of names; 0: none found
};
std::array<best_symbol, frames_max> best;

/// Returns false if the file is too short.
template <class T>
bool read_at(int file, std::uint64_t offset, T& into) noexcept {
  return ::pread(file, &into, sizeof into, static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof into);
}

/// The address that symbol tables give to the module's base: not 0 for programs that are not
/// position-independent.
std::uint64_t base_in_tables(int file, const Elf64_Ehdr& head) noexcept {
  for (std::uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part;
    if (!read_at(file, head.e_phoff + i * sizeof part, part)) break;
    if (part.p_type == PT_LOAD) return part.p_vaddr - part.p_offset;
  }
  return 0;
}

/// The full symbol table if the file has one, else the table of exported symbols.
std::optional<Elf64_Shdr> table_of(int file, const Elf64_Ehdr& head) noexcept {
  std::optional<Elf64_Shdr> found;
  for (std::uint64_t i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!read_at(file, head.e_shoff + i * sizeof section, section)) break;
    if (section.sh_type == SHT_SYMTAB) return section;
    if (section.sh_type == SHT_DYNSYM) found = section;
  }
  return found;
}

bool same_module(const stack_frame& a, const stack_frame& b) noexcept {
  return std::strcmp(a.module.data(), b.module.data()) == 0;
}

void match(const Elf64_Sym& symbol, std::span<const stack_frame> frames, std::size_t first,
           std::uint64_t base) noexcept {
  if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) return;
  for (std::size_t i = first; i < frames.size(); ++i) {
    const std::uint64_t at = frames[i].offset + base;
    if (at < symbol.st_value || at >= symbol.st_value + symbol.st_size ||
        !same_module(frames[i], frames[first]))
      continue;
    if (best[i].name == 0 || symbol.st_value > best[i].start) best[i] = {symbol.st_value, symbol.st_name};
  }
}

/// Sets the function names of all frames in the module of `first`.
void name_in(int file, std::span<stack_frame> frames, std::size_t first) noexcept {
  Elf64_Ehdr head;
  if (!read_at(file, 0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64)
    return;
  const auto table = table_of(file, head);
  Elf64_Shdr names;
  if (!table || !read_at(file, head.e_shoff + table->sh_link * sizeof names, names)) return;
  const std::uint64_t base = base_in_tables(file, head);
  for (std::uint64_t done = 0; done < table->sh_size;) {
    const std::uint64_t wanted = std::min<std::uint64_t>(sizeof symbols, table->sh_size - done);
    const ssize_t bytes = ::pread(file, symbols.data(), wanted, static_cast<off_t>(table->sh_offset + done));
    if (bytes < static_cast<ssize_t>(sizeof symbols[0])) break;
    const std::size_t count = static_cast<std::size_t>(bytes) / sizeof symbols[0];
    for (std::size_t i = 0; i < count; ++i) match(symbols[i], frames, first, base);
    done += count * sizeof symbols[0];
  }
  for (std::size_t i = first; i < frames.size(); ++i) {
    if (best[i].name == 0 || !same_module(frames[i], frames[first])) continue;
    auto& name = frames[i].function;
    const ssize_t bytes =
        ::pread(file, name.data(), name.size() - 1, static_cast<off_t>(names.sh_offset + best[i].name));
    name[static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))] = '\0';
  }
}

}  // namespace

void name_functions(std::span<stack_frame> all) noexcept {
  const auto frames = all.first(std::min(all.size(), frames_max));
  best = {};
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const auto earlier = frames.first(i);
    const auto done = [&](const stack_frame& f) { return same_module(f, frames[i]); };
    if (frames[i].module[0] != '/' || std::any_of(earlier.begin(), earlier.end(), done)) continue;
    const int file = ::open(frames[i].module.data(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    name_in(file, frames, i);
    ::close(file);
  }
}

}  // namespace penstock::process
