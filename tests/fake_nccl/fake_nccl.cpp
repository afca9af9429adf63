// A stand-in for libnccl.so.2 in tests on machines without GPUs: the functions that penstock calls and three collective
// operations, on host memory, over sockets. Opened through PENSTOCK_NCCL, by the same code that opens NCCL. It is not NCCL:
// operations run on a thread of each rank instead of a stream, and are over when the communicator's state says so.
//
// Like NCCL, it leaves a rank waiting forever if another one is gone; only an abort ends the wait.
//
// PENSTOCK_FAKE_NCCL causes faults: "init-hangs", "abort-hangs", "error-at:N" (an asynchronous error at the
// Nth operation). With PENSTOCK_FAKE_NCCL_ONCE=FILE, only in the process that could remove FILE.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

enum status : int { success = 0, system_error = 2, invalid_argument = 4, remote_error = 6, in_progress = 7 };

struct unique_id {
  char bytes[128];
};
struct config {
  std::size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
};

enum class kind : std::uint32_t { hello, all_reduce, broadcast, all_gather };
struct header {
  kind what = kind::hello;
  std::uint32_t rank = 0;
  std::uint32_t type = 0;  // type of the elements
  std::uint32_t how = 0;   // number of the reduction, or the root
  std::uint64_t count = 0;
};

std::size_t size_of(std::uint32_t type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type < std::size(sizes) ? sizes[type] : 0;
}

template <class T>
void reduce_as(void* to, const void* from, std::size_t count, std::uint32_t how) {
  auto* a = static_cast<T*>(to);
  const auto* b = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    if (how == 0) a[i] = static_cast<T>(a[i] + b[i]);
    if (how == 1) a[i] = static_cast<T>(a[i] * b[i]);
    if (how == 2) a[i] = a[i] < b[i] ? b[i] : a[i];
    if (how == 3) a[i] = b[i] < a[i] ? b[i] : a[i];
  }
}

void reduce(void* to, const void* from, std::size_t count, std::uint32_t type, std::uint32_t how) {
  switch (type) {
    case 0: return reduce_as<std::int8_t>(to, from, count, how);
    case 1: return reduce_as<std::uint8_t>(to, from, count, how);
    case 2: return reduce_as<std::int32_t>(to, from, count, how);
    case 3: return reduce_as<std::uint32_t>(to, from, count, how);
    case 4: return reduce_as<std::int64_t>(to, from, count, how);
    case 5: return reduce_as<std::uint64_t>(to, from, count, how);
    case 7: return reduce_as<float>(to, from, count, how);
    case 8: return reduce_as<double>(to, from, count, how);
    default: return;
  }
}

bool send_all(int fd, const void* bytes, std::size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = ::send(fd, at, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, void* bytes, std::size_t size) {
  auto* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t got = ::recv(fd, at, size, 0);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

sockaddr_un address_of(const unique_id& id, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "fake-nccl-" + std::string(id.bytes, ::strnlen(id.bytes, sizeof id.bytes));
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

/// One operation of all ranks, in the process that created the id. False: a rank is gone, and the others wait forever.
bool serve(const std::vector<int>& ranks) {
  header first;
  std::vector<char> result;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    header h;
    if (!receive_all(ranks[r], &h, sizeof h)) return false;
    const std::size_t bytes = h.count * size_of(h.type);
    std::vector<char> own(bytes);
    if (!receive_all(ranks[r], own.data(), bytes)) return false;
    if (r == 0) first = h;
    if (h.what != first.what || h.count != first.count) return false;  // NCCL would hang, too
    if (h.what == kind::all_gather) result.insert(result.end(), own.begin(), own.end());
    if (h.what == kind::broadcast && h.how == r) result = own;
    if (h.what == kind::all_reduce && r == 0) result = own;
    if (h.what == kind::all_reduce && r > 0) reduce(result.data(), own.data(), h.count, h.type, h.how);
  }
  for (const int fd : ranks) {
    if (!send_all(fd, result.data(), result.size())) return false;
  }
  return true;
}

/// The state of one communicator, for the life of the process: sockets of ranks that are gone stay open, so
/// other ranks do not notice.
void meet(int listener) {
  std::vector<int> ranks;
  std::size_t there = 0;
  while (ranks.empty() || there < ranks.size()) {
    const int fd = ::accept(listener, nullptr, nullptr);
    header h;
    if (fd < 0 || !receive_all(fd, &h, sizeof h)) continue;
    ranks.resize(h.count, -1);
    ranks[h.rank] = fd;
    ++there;
  }
  const char go = 1;
  for (const int fd : ranks) send_all(fd, &go, 1);
  while (serve(ranks)) {
  }
}

bool trouble(const char* what) {
  const char* const wanted = std::getenv("PENSTOCK_FAKE_NCCL");
  if (wanted == nullptr || std::strncmp(wanted, what, std::strlen(what)) != 0) return false;
  const char* const once = std::getenv("PENSTOCK_FAKE_NCCL_ONCE");
  static const bool ours = once == nullptr || ::unlink(once) == 0;
  return ours;
}

struct operation {
  header head;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes_back = 0;
};

}  // namespace

struct ncclComm {
  unique_id id{};
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::atomic<int> state{in_progress};
  std::atomic<int> fd{-1};
  std::mutex mutex;
  std::condition_variable changed;
  operation next;
  bool has_next = false;
  bool over = false;
  int operations = 0;
  std::thread worker;

  void run() {
    if (!connect()) return;
    state = success;
    std::unique_lock hold(mutex);
    while (true) {
      changed.wait(hold, [&] { return over || has_next; });
      if (over) return;
      const operation now = next;
      hold.unlock();
      const bool ended = do_it(now);
      hold.lock();
      has_next = false;
      if (!ended) {
        // The peer is gone; NCCL would not report that.
        changed.wait(hold, [&] { return over; });
        return;
      }
      if (state == in_progress) state = success;
    }
  }

  bool connect() {
    if (trouble("init-hangs")) return false;
    socklen_t length = 0;
    const sockaddr_un address = address_of(id, length);
    fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    header h;
    h.rank = rank;
    h.count = world_size;
    char go = 0;
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
           send_all(fd, &h, sizeof h) && receive_all(fd, &go, 1);
  }

  bool do_it(const operation& o) {
    ++operations;
    const char* const wanted = std::getenv("PENSTOCK_FAKE_NCCL");
    if (wanted != nullptr && std::strncmp(wanted, "error-at:", 9) == 0 &&
        operations == std::atoi(wanted + 9) && trouble("error-at:")) {
      state = remote_error;
      return false;
    }
    std::vector<char> back(o.bytes_back);
    if (!send_all(fd, &o.head, sizeof o.head) || !send_all(fd, o.from, o.head.count * size_of(o.head.type)) ||
        !receive_all(fd, back.data(), back.size()))
      return false;
    std::memcpy(o.to, back.data(), back.size());
    return true;
  }

  int begin(kind what, const void* from, void* to, std::size_t count, int type, int how, std::size_t copies) {
    const std::lock_guard hold(mutex);
    if (has_next || size_of(static_cast<std::uint32_t>(type)) == 0) return invalid_argument;
    next.head = {what, rank, static_cast<std::uint32_t>(type), static_cast<std::uint32_t>(how), count};
    next.from = from;
    next.to = to;
    next.bytes_back = copies * count * size_of(next.head.type);
    has_next = true;
    state = in_progress;
    changed.notify_all();
    return in_progress;
  }
};

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int penstock_nccl_works_on_host() {
  return 1;
}
EXPORTED int ncclGetVersion(int* version) {
  *version = 21800;
  return success;
}
EXPORTED const char* ncclGetErrorString(int status) {
  return status == remote_error ? "remote error" : "an error";
}

EXPORTED int ncclGetUniqueId(unique_id* id) {
  std::random_device source;
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::snprintf(id->bytes, sizeof id->bytes, "%08x%08x%08x", source(), source(), source());
  socklen_t length = 0;
  const sockaddr_un address = address_of(*id, length);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || ::bind(listener, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener, 64) != 0)
    return system_error;
  std::thread(meet, listener).detach();
  return success;
}

EXPORTED int ncclCommInitRankConfig(ncclComm** to, int world_size, unique_id id, int rank, config* settings) {
  if (settings->magic != 0xcafebeef || settings->blocking != 0 || rank < 0 || rank >= world_size)
    return invalid_argument;
  auto* made = new ncclComm;
  made->id = id;
  made->rank = static_cast<std::uint32_t>(rank);
  made->world_size = static_cast<std::uint32_t>(world_size);
  made->worker = std::thread([made] { made->run(); });
  *to = made;
  return in_progress;
}

EXPORTED int ncclCommGetAsyncError(ncclComm* comm, int* state) {
  *state = comm->state;
  return success;
}

EXPORTED int ncclCommAbort(ncclComm* comm) {
  if (trouble("abort-hangs")) {
    while (true) ::pause();
  }
  {
    const std::lock_guard hold(comm->mutex);
    comm->over = true;
  }
  comm->changed.notify_all();
  if (comm->fd >= 0) ::shutdown(comm->fd, SHUT_RDWR);
  comm->worker.join();
  if (comm->fd >= 0) ::close(comm->fd);
  delete comm;
  return success;
}

EXPORTED int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int how, ncclComm* comm,
                           void*) {
  return comm->begin(kind::all_reduce, from, to, count, type, how, 1);
}
EXPORTED int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, ncclComm* comm,
                           void*) {
  return comm->begin(kind::broadcast, from, to, count, type, root, 1);
}
EXPORTED int ncclAllGather(const void* from, void* to, std::size_t count, int type, ncclComm* comm, void*) {
  return comm->begin(kind::all_gather, from, to, count, type, 0, comm->world_size);
}
