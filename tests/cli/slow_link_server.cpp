// An HTTP server for measuring: files of a folder, in ranges, over one link of a given rate, with latency, errors and stalls.
// A thread for each connection; answers what the object store asks for and nothing else.
//
//   slow_link_server FOLDER LATENCY_MS BYTES_A_SECOND ERROR_SHARE STALL_SHARE STALL_MS     prints its port
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

struct settings {
  std::string folder;
  std::chrono::milliseconds latency;
  double rate;
  double errors;
  double stalls;
  std::chrono::milliseconds stall;
} given;

class link {
 public:
  void carry(std::size_t bytes) {
    clock::time_point due;
    {
      const std::lock_guard lock(mutex_);
      free_ = std::max(free_, clock::now() - 5ms);
      free_ += std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(static_cast<double>(bytes) / given.rate));
      due = free_;
    }
    std::this_thread::sleep_until(due);
  }

 private:
  std::mutex mutex_;
  clock::time_point free_;
} the_link;

double draw() {
  static std::mutex mutex;
  static std::mt19937_64 random(1);
  const std::lock_guard lock(mutex);
  return std::uniform_real_distribution<double>(0, 1)(random);
}

bool send_all(int to, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(to, bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool send_text(int to, const std::string& text) {
  return send_all(to, text.data(), text.size());
}

/// Returns whether the connection stays open.
bool answer(int to, std::string_view request) {
  std::this_thread::sleep_for(given.latency);
  const double drawn = draw();
  if (drawn < given.errors) return send_text(to, "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n");
  if (drawn < given.errors + given.stalls) std::this_thread::sleep_for(given.stall);
  const std::size_t path_end = request.find(' ', 4);
  const std::string path = given.folder + std::string(request.substr(4, path_end - 4));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct ::stat facts {};
  if (file < 0 || ::fstat(file, &facts) != 0) return send_text(to, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  unsigned long long begin = 0;
  unsigned long long last = static_cast<unsigned long long>(facts.st_size) - 1;
  if (const std::size_t range = request.find("Range: bytes="); range != std::string_view::npos)
    std::sscanf(request.data() + range, "Range: bytes=%llu-%llu", &begin, &last);
  last = std::min(last, static_cast<unsigned long long>(facts.st_size) - 1);
  char head[300];
  const int head_size = std::snprintf(head, sizeof head,
                                      "HTTP/1.1 206 Partial Content\r\nContent-Length: %llu\r\nContent-Range: bytes %llu-%llu/%lld\r\nETag: \"%llx\"\r\n\r\n",
                                      last + 1 - begin, begin, last, static_cast<long long>(facts.st_size),
                                      static_cast<unsigned long long>(facts.st_mtim.tv_nsec));
  bool sound = send_all(to, head, static_cast<std::size_t>(head_size));
  std::vector<char> piece(64 * 1024);
  while (sound && begin <= last) {
    const ssize_t got = ::pread(file, piece.data(), std::min<std::size_t>(piece.size(), last + 1 - begin), static_cast<off_t>(begin));
    if (got <= 0) sound = false;
    if (!sound) break;
    the_link.carry(static_cast<std::size_t>(got));
    sound = send_all(to, piece.data(), static_cast<std::size_t>(got));
    begin += static_cast<unsigned long long>(got);
  }
  ::close(file);
  return sound;
}

void serve(int connection) {
  const int on = 1;
  ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::string received;
  char more[4096];
  for (bool goes_on = true; goes_on;) {
    const std::size_t end = received.find("\r\n\r\n");
    if (end != std::string::npos) {
      goes_on = answer(connection, std::string_view(received).substr(0, end + 4));
      received.erase(0, end + 4);
      continue;
    }
    const ssize_t got = ::recv(connection, more, sizeof more, 0);
    if (got <= 0) break;
    received.append(more, static_cast<std::size_t>(got));
  }
  ::close(connection);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) return 2;
  std::signal(SIGPIPE, SIG_IGN);
  given = {arguments[1],
           std::chrono::milliseconds(std::atoi(arguments[2])),
           std::atof(arguments[3]),
           std::atof(arguments[4]),
           std::atof(arguments[5]),
           std::chrono::milliseconds(std::atoi(arguments[6]))};
  const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ::sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::socklen_t size = sizeof address;
  if (::bind(listening, reinterpret_cast<::sockaddr*>(&address), size) != 0 || ::listen(listening, 256) != 0 ||
      ::getsockname(listening, reinterpret_cast<::sockaddr*>(&address), &size) != 0)
    return 1;
  std::printf("%u\n", static_cast<unsigned>(ntohs(address.sin_port)));
  std::fflush(stdout);
  for (;;) {
    const int connection = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) std::thread(serve, connection).detach();
  }
}
