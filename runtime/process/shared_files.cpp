#include "runtime/process/shared_files.hpp"

#include "runtime/base/signals.hpp"
#include "runtime/base/unix_sockets.hpp"
#include "runtime/base/wake_event.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace penstock::process {
namespace {

using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto told_every = 500ms;
constexpr auto refusal_pause = 5ms;

enum class word : char { wait = 'w', files = 'f', none = 'n' };

/// The pid of the process at the other end; empty unless it belongs to this user.
std::optional<pid_t> peer_of(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.uid != ::geteuid()) return std::nullopt;
  return peer.pid;
}

/// One message: a word, with descriptors.
struct spoken {
  char letter = 0;
  iovec piece{&letter, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(shared_files_max * sizeof(int))> control{};
  msghdr message{};

  spoken() {
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
};

/// Returns false if the other end is gone. Drops a word that does not fit, because the other process is then suspended.
bool send_word(int socket, word what, const std::vector<unique_fd>& files = {}) {
  spoken out;
  out.letter = static_cast<char>(what);
  std::vector<int> numbers;
  for (const unique_fd& file : files) numbers.push_back(file.get());
  pass_descriptors(out.message, numbers);
  return ::sendmsg(socket, &out.message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 || errno == EAGAIN;
}

struct heard {
  std::optional<word> what;  ///< empty: the connection has ended
  std::vector<unique_fd> files;
};

heard receive_word(int socket) {
  spoken in;
  heard made;
  const ssize_t n = ::recvmsg(socket, &in.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n != 1) return made;
  made.files = take_descriptors(in.message);
  made.what = static_cast<word>(in.letter);
  // Descriptors were lost, because this process has none left.
  if ((in.message.msg_flags & MSG_CTRUNC) != 0) made.what = word::none;
  return made;
}

int milliseconds_of(nanoseconds time) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
}

}  // namespace

// ---- the maker's thread

class shared_files::server {
 public:
  server(unique_fd listener, wake_event wake) : listener_(std::move(listener)), wake_(std::move(wake)) {
    const all_signals_blocked in_the_new_thread;
    thread_ = std::thread([this] { run(); });
  }
  ~server() {
    over_ = true;
    wake_.raise();
    thread_.join();
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  void publish(std::vector<unique_fd> files) {
    {
      const std::lock_guard hold(mutex_);
      files_ = std::move(files);
      made_ = true;
    }
    wake_.raise();
  }

 private:
  void run() {
    bool full = false;
    while (!over_) {
      std::array<pollfd, 2> polled{{{wake_.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}}};
      ::poll(polled.data(), full ? 1 : 2, full || !waiting_.empty() ? milliseconds_of(told_every) : -1);
      wake_.clear();
      full = !accept_all();
      answer();
    }
  }

  /// Returns false if this process has no descriptor left for processes that connect.
  bool accept_all() {
    while (true) {
      unique_fd one(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!one && errno == EAGAIN) return true;
      if (!one) return false;
      const auto pid = peer_of(one.get());
      if (!pid) continue;
      const bool again = *pid != 0 && !served_.insert(*pid).second;
      if (again)
        send_word(one.get(), word::none);
      else
        waiting_.push_back(std::move(one));
    }
  }

  void answer() {
    const std::lock_guard hold(mutex_);
    std::erase_if(waiting_, [this](const unique_fd& one) {
      if (!made_) return !send_word(one.get(), word::wait);
      send_word(one.get(), word::files, files_);
      return true;
    });
  }

  const unique_fd listener_;
  const wake_event wake_;
  std::atomic<bool> over_ = false;
  std::mutex mutex_;
  bool made_ = false;             // guarded by mutex_
  std::vector<unique_fd> files_;  // guarded by mutex_
  // Used by the thread only:
  std::vector<unique_fd> waiting_;
  std::set<pid_t> served_{::getpid()};
  std::thread thread_;
};

// ---- each process

shared_files shared_files::find(const std::string& name, const std::function<void()>& waiting, share_patience patience) {
  const abstract_address at(name);
  const auto until = clock::now() + patience.all;
  auto refused_until = clock::now() + patience.refusal;
  shared_files found;
  while (true) {
    unique_fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    wake_event wake;
    if (!socket || wake.fd() < 0) return found;
    if (::bind(socket.get(), at.get(), at.size()) == 0) {
      if (::listen(socket.get(), SOMAXCONN) == 0) found.server_ = std::make_unique<server>(std::move(socket), std::move(wake));
      return found;
    }
    if (errno != EADDRINUSE) return found;
    if (::connect(socket.get(), at.get(), at.size()) != 0) {
      if (clock::now() >= refused_until) return found;
      std::this_thread::sleep_for(refusal_pause);
      continue;
    }
    const auto maker = peer_of(socket.get());
    if (!maker) return found;
    heard latest{word::wait, {}};
    while (latest.what == word::wait) {
      const nanoseconds left = std::min<nanoseconds>(patience.silence, until - clock::now());
      pollfd one{socket.get(), POLLIN, 0};
      const int ready = left > 0ns ? ::poll(&one, 1, milliseconds_of(left)) : 0;
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return found;
      latest = receive_word(socket.get());
      if (latest.what == word::wait && waiting) waiting();
    }
    if (latest.what) {
      if (latest.what == word::files) found.received_ = std::move(latest.files);
      found.maker_ = found.received_.empty() ? 0 : *maker;
      return found;
    }
    refused_until = clock::now() + patience.refusal;  // the maker has ended without files, so look for the next one
  }
}

shared_files::shared_files() = default;
shared_files::~shared_files() = default;
shared_files::shared_files(shared_files&&) noexcept = default;
shared_files& shared_files::operator=(shared_files&&) noexcept = default;

void shared_files::publish(std::span<const int> files) {
  if (!server_) return;
  std::vector<unique_fd> copies;
  for (const int file : files) {
    unique_fd copy(::fcntl(file, F_DUPFD_CLOEXEC, 0));
    if (!copy) return server_.reset();
    copies.push_back(std::move(copy));
  }
  server_->publish(std::move(copies));
}

}  // namespace penstock::process
