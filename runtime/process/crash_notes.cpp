#include "runtime/process/crash_notes.hpp"

#include "runtime/base/text.hpp"

#include <cxxabi.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace penstock::process {
namespace {

constexpr std::string_view mark = "penstock-stack: ";
constexpr std::string_view function_follows = " in ";
constexpr std::string_view sender_follows = ", sent by process ";
constexpr std::size_t readable_function_max = 300;  // templates
// A line of /proc/self/maps before its path: two addresses, permissions, offset, device, inode, separators.
constexpr std::size_t map_fields_max = 2 * 16 + 4 + 16 + 7 + 20 + 6;

// Room for the kernel's signal frame with the vector registers, for the unwinder, and for what
// instrumentation adds to both. Only pages that are touched cost memory.
constexpr std::size_t kernel_frame_bytes = 16 * 1024;
constexpr std::size_t unwinder_bytes = 48 * 1024;
constexpr std::size_t instrumentation_factor = 2;
constexpr std::size_t signal_stack_bytes = instrumentation_factor * (kernel_frame_bytes + unwinder_bytes);

std::atomic<int> worker_thread{0};
std::atomic<bool> passed_on{false};
std::atomic<pid_t> sender{0};  // the process that sent the signal; 0: none did
std::atomic<bool> written{false};

int this_thread() noexcept {
  return static_cast<int>(::syscall(SYS_gettid));
}

// ---- in the handler: no allocation, no lock, no stdio -----------------------------------------------------

// Static, because the signal stack is small. Only one thread at a time writes a stack.
std::array<stack_frame, stack_frames_max> frames;
std::array<void*, stack_frames_max> addresses;

class line {
 public:
  void add(std::string_view text) {
    const std::size_t bytes = std::min(text.size(), text_.size() - used_ - 1);
    std::memcpy(text_.data() + used_, text.data(), bytes);
    used_ += bytes;
  }
  void add_number(std::uint64_t value, unsigned base) {
    std::array<char, 24> digits;
    std::size_t at = digits.size();
    do {
      digits[--at] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value > 0);
    add({digits.data() + at, digits.size() - at});
  }
  void write() {
    text_[used_++] = '\n';
    [[maybe_unused]] const auto bytes = ::write(STDERR_FILENO, text_.data(), used_);
    used_ = 0;
  }

 private:
  std::array<char, stack_line_max> text_{};
  std::size_t used_ = 0;
};

/// Removes a hexadecimal number from the front of the text.
std::uint64_t take_hex(std::string_view& text) {
  std::uint64_t value = 0;
  while (!text.empty()) {
    const char c = text.front();
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<std::uint64_t>(digit);
    text.remove_prefix(1);
  }
  return value;
}

void skip(std::string_view& text, std::size_t count) {
  text.remove_prefix(std::min(count, text.size()));
}

/// A line of /proc/self/maps: "start-end perms offset dev inode   path".
class map_line {
 public:
  void take(std::string_view text, std::size_t count) {
    const std::uint64_t start = take_hex(text);
    skip(text, 1);
    const std::uint64_t end = take_hex(text);
    skip(text, 6);
    const std::uint64_t offset = take_hex(text);
    for (int spaces = 0; spaces < 3 && !text.empty(); skip(text, 1)) spaces += text.front() == ' ' ? 1 : 0;
    while (!text.empty() && text.front() == ' ') skip(text, 1);
    // A module's first mapping is its base, to which symbol tables are relative.
    const std::string_view known(module_.data(), std::strlen(module_.data()));
    if (text != known || offset == 0) {
      base_ = start - offset;
      const std::size_t bytes = std::min(text.size(), module_.size() - 1);
      std::memcpy(module_.data(), text.data(), bytes);
      module_[bytes] = '\0';
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (frames[i].address < start || frames[i].address >= end) continue;
      frames[i].offset = frames[i].address - base_;
      frames[i].module = module_;
    }
  }

 private:
  std::uint64_t base_ = 0;
  std::array<char, stack_module_max> module_{};
};

void find_modules(std::size_t count) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  static std::array<char, 4096> piece;
  static std::array<char, map_fields_max + stack_module_max> text;
  std::size_t used = 0;
  map_line parser;
  for (ssize_t bytes = 0; (bytes = ::read(maps, piece.data(), piece.size())) > 0;) {
    for (ssize_t i = 0; i < bytes; ++i) {
      const char c = piece[static_cast<std::size_t>(i)];
      if (c == '\n') {
        parser.take({text.data(), used}, count);
        used = 0;
      } else if (used < text.size()) {
        text[used++] = c;
      }
    }
  }
  ::close(maps);
}

std::uint64_t interrupted_at(const void* context) {
#if defined(__x86_64__)
  return static_cast<std::uint64_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<const ucontext_t*>(context)->uc_mcontext.pc;
#else
  static_cast<void>(context);
  return 0;
#endif
}

void write_stack(int signal, const void* context, pid_t sent_by) {
  const int found = ::backtrace(addresses.data(), static_cast<int>(addresses.size()));
  const std::uint64_t here = interrupted_at(context);
  // Frames newer than the interrupted instruction belong to this handler.
  std::size_t first = 0;
  while (first < static_cast<std::size_t>(found) && reinterpret_cast<std::uint64_t>(addresses[first]) != here)
    ++first;
  std::size_t count = 0;
  if (first == static_cast<std::size_t>(found)) {
    first = 0;
    frames[count++].address = here;
  }
  for (std::size_t i = first; i < static_cast<std::size_t>(found) && count < stack_frames_max; ++i) {
    // A return address points to the instruction after
    // the call. One byte earlier is still the call.
    const auto address = reinterpret_cast<std::uint64_t>(addresses[i]);
    frames[count++].address = i == first && address == here ? address : address - 1;
  }
  find_modules(count);
  name_functions({frames.data(), count});
  line out;
  out.add(mark);
  out.add("signal ");
  out.add_number(static_cast<std::uint64_t>(signal), 10);
  out.add(", thread ");
  out.add_number(static_cast<std::uint64_t>(this_thread()), 10);
  if (sent_by > 0) {
    out.add(sender_follows);
    out.add_number(static_cast<std::uint64_t>(sent_by), 10);
  }
  out.write();
  for (std::size_t i = 0; i < count; ++i) {
    out.add(mark);
    out.add("#");
    out.add_number(i, 10);
    out.add(" ");
    out.add(frames[i].module[0] != '\0' ? frames[i].module.data() : "?");
    out.add("+0x");
    out.add_number(frames[i].module[0] != '\0' ? frames[i].offset : frames[i].address, 16);
    if (frames[i].function[0] != '\0') {
      out.add(function_follows);
      out.add(frames[i].function.data());
    }
    out.write();
  }
}

void on_death(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const bool from_outside = info->si_code <= 0 && info->si_pid != ::getpid();
  const int worker = worker_thread.load(std::memory_order_relaxed);
  if (from_outside) sender.store(info->si_pid, std::memory_order_relaxed);
  if (from_outside && worker != 0 && worker != this_thread() && !passed_on.exchange(true)) {
    // Any thread may receive the signal, but we want the stack of the working thread.
    if (::syscall(SYS_tgkill, ::getpid(), worker, signal) == 0) {
      errno = saved;
      return;
    }
  }
  if (!written.exchange(true)) write_stack(signal, context, info->si_code <= 0 ? sender.load(std::memory_order_relaxed) : 0);
  ::signal(signal, SIG_DFL);
  // After we return, the fault recurs at its original instruction.
  if (info->si_code <= 0) ::syscall(SYS_tgkill, ::getpid(), this_thread(), signal);
  errno = saved;
}

// ---- parsing stacks ---------------------------------------------------------------------------------------

template <class Take>
void for_each_line(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

void write_stack_when_dying() {
  // The first call loads the unwinder, which allocates; later ones do not.
  ::backtrace(addresses.data(), 2);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction before {};
    if (::sigaction(number, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_sigaction = on_death;
    // A fault inside the handler must end the process. With SA_NODEFER it reenters the handler, which finds
    // `written` set and restores the default action.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(number, &action, nullptr);
  }
}

void this_thread_works() {
  if (worker_thread.load(std::memory_order_relaxed) == this_thread()) return;
  void* memory = ::mmap(nullptr, signal_stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) {
    const stack_t own{memory, 0, signal_stack_bytes};
    ::sigaltstack(&own, nullptr);
  }
  worker_thread.store(this_thread(), std::memory_order_relaxed);
}

int working_thread() noexcept {
  return worker_thread.load(std::memory_order_relaxed);
}

bool is_stack_line(std::string_view line) noexcept {
  return line.starts_with(mark);
}

std::string readable_stack_line(std::string_view line) {
  const std::size_t at = line.rfind(function_follows);
  if (at == std::string_view::npos) return std::string(line);
  const std::string mangled(line.substr(at + function_follows.size()));
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0) return std::string(line);
  return std::string(line.substr(0, at + function_follows.size())) +
         shortened(name.get(), readable_function_max);
}

std::vector<std::string> stack_in(std::string_view output) {
  std::vector<std::string> found;
  for_each_line(output, [&](std::string_view text) {
    if (!text.starts_with(mark)) return;
    text.remove_prefix(mark.size());
    if (!text.starts_with('#')) return found.clear();  // a new stack begins
    const std::size_t space = text.find(' ');
    if (space != std::string_view::npos && found.size() < stack_frames_max)
      found.push_back(readable_stack_line(text.substr(space + 1)));
  });
  return found;
}

pid_t sender_in(std::string_view output, int signal) {
  const std::string header = fmt::format("signal {},", signal);
  pid_t found = 0;
  for_each_line(output, [&](std::string_view text) {
    if (!text.starts_with(mark) || text.substr(mark.size()).starts_with('#')) return;
    found = 0;  // a new stack begins
    if (!text.substr(mark.size()).starts_with(header)) return;
    const std::size_t at = text.find(sender_follows);
    if (at != std::string_view::npos) std::from_chars(text.data() + at + sender_follows.size(), text.data() + text.size(), found);
  });
  return found;
}

std::string last_lines_without_stack(std::string_view output, std::size_t count) {
  std::vector<std::string_view> lines;
  for_each_line(output, [&](std::string_view text) {
    if (!text.starts_with(mark)) lines.push_back(text);
  });
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  // Python writes the innermost frame first, so the last lines of a long stack would show only the main
  // program. Keep the first lines of the stack instead.
  const auto stack = std::ranges::find(lines.rbegin(), lines.rend(), python_stack_begin);
  if (stack != lines.rend()) {
    const auto from_header = static_cast<std::size_t>(stack - lines.rbegin()) + 1;
    if (from_header > count) lines.resize(lines.size() - from_header + count);
  }
  std::string text;
  for (std::size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i) {
    if (!text.empty()) text += '\n';
    text += lines[i];
  }
  return text;
}

}  // namespace penstock::process
