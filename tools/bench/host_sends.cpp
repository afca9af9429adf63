// Compares ways to send the batches of a loader host over TCP: send, MSG_ZEROCOPY, and io_uring on both ends. For docs/decisions/0043.
//
//     penstock-bench-host-sends BATCHES [ADDRESS [NETWORK_NAMESPACE]]      receivers listen there; at 127.0.0.1 without that
//
// Prints GB/s and processor seconds a GB for 1, 2 and 4 connections: medians of rounds in turn. Each connection has a thread on either
// side, which sends from one batch, or receives into another one.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t batch_bytes = 128 * 150528;
constexpr std::size_t piece_bytes = 256 * 1024;  // as host_stream
constexpr int rounds = 3;

enum class method { send, zerocopy, uring, uring_zerocopy };
constexpr std::array<const char*, 4> names{"send", "MSG_ZEROCOPY", "io_uring", "io_uring, SEND_ZC"};

long check(long value, const char* what) {
  if (value >= 0) return value;
  std::perror(what);
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): nothing to clean up
}

double seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; }

double processor_seconds(const rusage& use) { return seconds(use.ru_utime) + seconds(use.ru_stime); }

/// A ring with one request at a time.
class ring {
 public:
  ring() {
    fd_ = static_cast<int>(check(::syscall(SYS_io_uring_setup, 4, &about_), "io_uring_setup"));
    sq_ = map(about_.sq_off.array + about_.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    cq_ = map(about_.cq_off.cqes + about_.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    requests_ = reinterpret_cast<io_uring_sqe*>(map(about_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  }

  /// The result of the request. A SEND_ZC has also released the memory.
  long run(std::uint8_t what, int socket, const char* at, std::size_t size, std::uint32_t flags) {
    unsigned& tail = number(sq_, about_.sq_off.tail);
    const unsigned slot = tail & number(sq_, about_.sq_off.ring_mask);
    io_uring_sqe& request = requests_[slot];
    std::memset(&request, 0, sizeof request);
    request.opcode = what;
    request.fd = socket;
    request.addr = reinterpret_cast<std::uintptr_t>(at);
    request.len = static_cast<std::uint32_t>(size);
    request.msg_flags = flags;
    (&number(sq_, about_.sq_off.array))[slot] = slot;
    std::atomic_ref(tail).store(tail + 1, std::memory_order_release);
    unsigned new_ones = 1;
    long result = 0;
    for (bool more = true; more; new_ones = 0) {
      unsigned& head = number(cq_, about_.cq_off.head);
      if (new_ones != 0 || head == std::atomic_ref(number(cq_, about_.cq_off.tail)).load(std::memory_order_acquire))
        check(::syscall(SYS_io_uring_enter, fd_, new_ones, 1, IORING_ENTER_GETEVENTS, nullptr, 0), "io_uring_enter");
      const auto* all = reinterpret_cast<const io_uring_cqe*>(cq_ + about_.cq_off.cqes);
      const io_uring_cqe& done = all[head & number(cq_, about_.cq_off.ring_mask)];
      if ((done.flags & IORING_CQE_F_NOTIF) == 0) result = done.res;
      more = (done.flags & IORING_CQE_F_MORE) != 0;
      std::atomic_ref(head).store(head + 1, std::memory_order_release);
    }
    errno = result < 0 ? static_cast<int>(-result) : 0;
    return check(result, "a request of io_uring");
  }

  ~ring() { ::close(fd_); }
  ring(const ring&) = delete;
  ring& operator=(const ring&) = delete;

 private:
  char* map(std::size_t size, std::uint64_t offset) const {
    void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, static_cast<off_t>(offset));
    check(at == MAP_FAILED ? -1 : 0, "mmap of io_uring");
    return static_cast<char*>(at);
  }
  static unsigned& number(char* ring, std::uint32_t offset) { return *reinterpret_cast<unsigned*>(ring + offset); }

  io_uring_params about_{};
  int fd_ = -1;
  char* sq_ = nullptr;
  char* cq_ = nullptr;
  io_uring_sqe* requests_ = nullptr;
};

/// Waits until the kernel has released `sent` pieces. Counts those that it has copied after all.
void await_released(int socket, unsigned& released, unsigned sent, std::atomic<unsigned>& copied) {
  while (released < sent) {
    pollfd look{socket, 0, 0};  // POLLERR needs no request
    check(::poll(&look, 1, -1), "poll");
    std::array<char, 256> room{};
    msghdr message{};
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    if (::recvmsg(socket, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      if (errno == EAGAIN) continue;
      check(-1, "recvmsg");
    }
    sock_extended_err news{};
    std::memcpy(&news, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof news);
    const unsigned pieces = news.ee_data - news.ee_info + 1;
    released += pieces;
    if ((news.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) copied += pieces;
  }
}

void send_all(int socket, method how, int count, std::atomic<unsigned>& pieces, std::atomic<unsigned>& copied) {
  const std::vector<char> batch(batch_bytes, 'x');
  std::unique_ptr<ring> requests = how == method::uring || how == method::uring_zerocopy ? std::make_unique<ring>() : nullptr;
  const int yes = 1;
  if (how == method::zerocopy) check(::setsockopt(socket, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof yes), "SO_ZEROCOPY");
  unsigned sent = 0;
  unsigned released = 0;
  for (int i = 0; i < count; ++i) {
    for (std::size_t at = 0; at < batch_bytes;) {
      const char* from = batch.data() + at;
      const std::size_t size = std::min(piece_bytes, batch_bytes - at);
      switch (how) {
        case method::send: at += static_cast<std::size_t>(check(::send(socket, from, size, MSG_NOSIGNAL), "send")); break;
        case method::zerocopy: {
          const ssize_t some = ::send(socket, from, size, MSG_NOSIGNAL | MSG_ZEROCOPY);
          if (some < 0 && errno == ENOBUFS) {
            await_released(socket, released, sent, copied);
            continue;
          }
          at += static_cast<std::size_t>(check(some, "send with MSG_ZEROCOPY"));
          ++sent;
          break;
        }
        case method::uring: at += static_cast<std::size_t>(requests->run(IORING_OP_SEND, socket, from, size, MSG_WAITALL | MSG_NOSIGNAL)); break;
        case method::uring_zerocopy:
          at += static_cast<std::size_t>(requests->run(IORING_OP_SEND_ZC, socket, from, size, MSG_WAITALL | MSG_NOSIGNAL));
          break;
      }
    }
    await_released(socket, released, sent, copied);  // the worker fills the slot again
  }
  pieces += sent;
  ::close(socket);
}

void receive_all(int socket, bool uring) {
  std::vector<char> batch(batch_bytes);
  std::unique_ptr<ring> requests = uring ? std::make_unique<ring>() : nullptr;
  for (std::size_t at = 0;;) {
    const std::size_t size = std::min(piece_bytes, batch_bytes - at);
    char* to = batch.data() + at;
    const long got = requests ? requests->run(IORING_OP_RECV, socket, to, size, 0) : check(::recv(socket, to, size, 0), "recv");
    if (got == 0) return;
    at = (at + static_cast<std::size_t>(got)) % batch_bytes;
  }
}

struct figures {
  double rate = 0;
  double cost = 0;  // processor seconds a GB
};

figures measure(const std::string& address, const std::string& name_space, method how, int batches, int connections, unsigned& pieces,
                unsigned& copied) {
  std::array<int, 2> port{};
  check(::pipe2(port.data(), O_CLOEXEC), "pipe2");
  sockaddr_in where{};
  where.sin_family = AF_INET;
  check(::inet_pton(AF_INET, address.c_str(), &where.sin_addr) - 1, "an IPv4 address is needed");
  const pid_t child = static_cast<pid_t>(check(::fork(), "fork"));
  if (child == 0) {
    if (!name_space.empty()) {
      const int at = static_cast<int>(check(::open(("/var/run/netns/" + name_space).c_str(), O_RDONLY | O_CLOEXEC), name_space.c_str()));
      check(::setns(at, CLONE_NEWNET), "setns");
    }
    const int listener = static_cast<int>(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    socklen_t size = sizeof where;
    check(::bind(listener, reinterpret_cast<sockaddr*>(&where), size), "bind");
    check(::listen(listener, connections), "listen");
    check(::getsockname(listener, reinterpret_cast<sockaddr*>(&where), &size), "getsockname");
    check(::write(port[1], &where.sin_port, sizeof where.sin_port), "write");
    std::vector<std::jthread> threads;
    for (int i = 0; i < connections; ++i) {
      const int end = static_cast<int>(check(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept"));
      threads.emplace_back(receive_all, end, how == method::uring || how == method::uring_zerocopy);
    }
    threads.clear();
    ::_exit(0);
  }
  ::close(port[1]);  // so that read() returns if the receiver fails
  check(::read(port[0], &where.sin_port, sizeof where.sin_port) - 1, "the receiver does not listen");
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  const auto begun = std::chrono::steady_clock::now();
  std::atomic<unsigned> of_pieces{0};
  std::atomic<unsigned> of_copied{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < connections; ++i) {
    const int end = static_cast<int>(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    check(::connect(end, reinterpret_cast<sockaddr*>(&where), sizeof where), "connect");
    threads.emplace_back(send_all, end, how, batches / connections, std::ref(of_pieces), std::ref(of_copied));
  }
  threads.clear();
  int status = 0;
  rusage receiver{};
  check(::wait4(child, &status, 0, &receiver), "wait4");
  check(status == 0 ? 0 : -1, "the receiver failed");
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begun;
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  ::close(port[0]);
  pieces += of_pieces;
  copied += of_copied;
  const double gigabytes = static_cast<double>(batches / connections * connections) * static_cast<double>(batch_bytes) / 1e9;
  return {gigabytes / time.count(), (processor_seconds(after) - processor_seconds(before) + processor_seconds(receiver)) / gigabytes};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int batches = argc > 1 ? std::atoi(argv[1]) : 0;
  if (batches < 4) {
    std::fputs("usage: penstock-bench-host-sends BATCHES [ADDRESS [NETWORK_NAMESPACE]], with at least 4 batches\n", stderr);
    return 64;
  }
  const std::string address = argc > 2 ? argv[2] : "127.0.0.1";
  const std::string name_space = argc > 3 ? argv[3] : "";
  for (const int connections : {1, 2, 4}) {
    std::array<std::vector<double>, names.size()> rates;
    std::array<std::vector<double>, names.size()> costs;
    unsigned pieces = 0;
    unsigned copied = 0;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        const figures found = measure(address, name_space, static_cast<method>(i), batches, connections, pieces, copied);
        rates[i].push_back(found.rate);
        costs[i].push_back(found.cost);
      }
    }
    for (std::size_t i = 0; i < names.size(); ++i)
      std::printf("%d connections  %-18s %6.2f GB/s  %.3f processor s a GB\n", connections, names[i], median(rates[i]), median(costs[i]));
    std::printf("%d connections  the kernel copied %u of %u pieces sent with MSG_ZEROCOPY\n", connections, copied, pieces);
    std::fflush(stdout);
  }
}
