// Large arguments and results in sealed memory files: they arrive unchanged, and invalid ones are refused.
#include "actors/protocol/parcels.hpp"

#include "runtime/base/mapping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::protocol;
using namespace std::chrono_literals;

namespace {

struct pair_of_ends {
  pair_of_ends() {
    auto made = make_parcel_pair().value();
    session = std::move(made.first);
    worker = std::move(made.second);
  }
  unique_fd session;
  unique_fd worker;
};

unique_fd file_with(std::string_view text) {
  auto file = create_memory_file("test", "a file").value();
  REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  return file;
}
unique_fd sealed_file(std::string_view text) {
  auto file = file_with(text);
  REQUIRE(seal_memory_file(file.get(), seal::size_and_contents, "a file"));
  return file;
}
std::string text_in(const parcel& p) {
  const mapping seen = map_read_only(p.file.get(), {0, p.label.bytes});
  REQUIRE(seen);
  return {reinterpret_cast<const char*>(seen.bytes().data()), seen.bytes().size()};
}

/// Sends packets that violate the protocol.
void send_raw(int socket, std::string_view content, const std::vector<int>& files) {
  iovec piece{const_cast<char*>(content.data()), content.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), files.data(), files.size() * sizeof(int));
  }
  REQUIRE(::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0);
}

/// The bytes of a valid packet.
std::string packet_of(const parcel_label& label) {
  pair_of_ends ends;
  const unique_fd file = sealed_file(std::string(label.bytes, 'x'));
  REQUIRE(send_parcel(ends.worker.get(), label, file.get()).value());
  std::array<char, 256> bytes{};
  const ssize_t count = ::recv(ends.session.get(), bytes.data(), bytes.size(), 0);
  REQUIRE(count > 0);
  return {bytes.data(), static_cast<std::size_t>(count)};
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

std::string refusal(int socket) {
  const auto got = receive_parcel(socket);
  if (got) return got->has_value() ? "a parcel" : "nothing";
  return got.error().code == errc::protocol ? got.error().message : "not a breach of protocol";
}

}  // namespace

TEST_CASE("a parcel arrives with its label and its contents, in order and in both directions") {
  pair_of_ends ends;
  REQUIRE(send_parcel(ends.session.get(), {1, 7, 3, 5}, sealed_file("apple").get()).value());
  REQUIRE(send_parcel(ends.session.get(), {1, 7, 4, 6}, sealed_file("banana").get()).value());
  REQUIRE(send_parcel(ends.worker.get(), {0, 2, 0, 6}, sealed_file("result").get()).value());
  const auto first = receive_parcel(ends.worker.get());
  REQUIRE(first->has_value());
  CHECK((*first)->label == parcel_label{1, 7, 3, 5});
  CHECK(text_in(**first) == "apple");
  CHECK((::fcntl((*first)->file.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(text_in(**receive_parcel(ends.worker.get())) == "banana");
  CHECK(text_in(**receive_parcel(ends.session.get())) == "result");
}

TEST_CASE("the absence of a parcel is not an error, with or without a wait") {
  const pair_of_ends ends;
  CHECK(receive_parcel(ends.worker.get()).value() == std::nullopt);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(receive_parcel(ends.worker.get(), 20ms).value() == std::nullopt);
  CHECK(std::chrono::steady_clock::now() - begin >= 20ms);
}

TEST_CASE("a waiting receiver gets a parcel when it arrives") {
  const pair_of_ends ends;
  std::thread sender([&] {
    static_cast<void>(send_parcel(ends.session.get(), {0, 1, 0, 4}, sealed_file("late").get()));
  });
  const auto got = receive_parcel(ends.worker.get(), 10s);
  sender.join();
  REQUIRE(got->has_value());
  CHECK(text_in(**got) == "late");
}

TEST_CASE("a full socket is reported to the sender, which continues after the receiver has read") {
  const pair_of_ends ends;
  const unique_fd file = sealed_file("x");
  std::uint32_t sent = 0;
  while (send_parcel(ends.worker.get(), {0, 1, sent, 1}, file.get()).value()) REQUIRE(++sent < 100'000);
  CHECK(sent > 0);
  CHECK_FALSE(send_parcel(ends.worker.get(), {0, 1, sent, 1}, file.get(), 10ms).value());
  std::thread reader([&] {
    for (std::uint32_t i = 0; i < sent; ++i)
      CHECK((*receive_parcel(ends.session.get(), 10s))->label.row == i);
  });
  CHECK(send_parcel(ends.worker.get(), {0, 1, sent, 1}, file.get(), 10s).value());
  reader.join();
}

TEST_CASE("a closed peer is distinguished from a silent one") {
  pair_of_ends ends;
  REQUIRE(send_parcel(ends.worker.get(), {0, 1, 0, 4}, sealed_file("last").get()).value());
  ends.worker.reset();
  CHECK(text_in(**receive_parcel(ends.session.get())) == "last");
  CHECK(receive_parcel(ends.session.get()).error().code == errc::stopped);
  CHECK(send_parcel(ends.session.get(), {0, 1, 0, 1}, sealed_file("x").get()).error().code == errc::system);
}

TEST_CASE("parcels sent before a worker's death arrive, even if it left parcels unread") {
  pair_of_ends ends;
  REQUIRE(send_parcel(ends.session.get(), {0, 2, 0, 6}, sealed_file("unread").get()).value());
  REQUIRE(send_parcel(ends.worker.get(), {0, 1, 0, 5}, sealed_file("first").get()).value());
  REQUIRE(send_parcel(ends.worker.get(), {0, 1, 1, 4}, sealed_file("last").get()).value());
  ends.worker.reset();
  CHECK(text_in(**receive_parcel(ends.session.get())) == "first");
  CHECK(text_in(**receive_parcel(ends.session.get())) == "last");
  CHECK(receive_parcel(ends.session.get()).error().code == errc::stopped);
}

TEST_CASE("a file that could still change is refused") {
  const pair_of_ends ends;
  const parcel_label label{2, 7, 9, 5};
  REQUIRE(send_parcel(ends.worker.get(), label, file_with("apple").get()));
  CHECK(refusal(ends.session.get()) ==
        "the parcel of slot 2, row 9, is not a sealed memory file: it could still change");
  auto only_size = file_with("apple");
  REQUIRE(seal_memory_file(only_size.get(), seal::size, "a file"));
  REQUIRE(send_parcel(ends.worker.get(), label, only_size.get()));
  CHECK(refusal(ends.session.get()).find("could still change") != std::string::npos);
  const unique_fd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  REQUIRE(send_parcel(ends.worker.get(), label, device.get()));
  CHECK(refusal(ends.session.get()).find("could still change") != std::string::npos);
}

TEST_CASE("a size that is not the file's is refused") {
  const pair_of_ends ends;
  for (const std::uint64_t lie : {std::uint64_t{1}, std::uint64_t{6}, std::uint64_t{1} << 63}) {
    REQUIRE(send_parcel(ends.worker.get(), {0, 1, 2, lie}, sealed_file("apple").get()));
    CHECK(refusal(ends.session.get()).find("bytes, but has 5") != std::string::npos);
  }
}

TEST_CASE("an invalid parcel is refused and leaves no descriptor open") {
  const pair_of_ends ends;
  const unique_fd file = sealed_file("apple");
  const std::string honest = packet_of({0, 1, 2, 5});
  const std::size_t before = open_descriptors();
  struct attempt {
    std::string content;
    std::size_t files;
    const char* refused;
  };
  std::string other_magic = honest;
  other_magic[0] = '!';
  for (const attempt& a :
       {attempt{honest, 0, "a parcel arrived with 0 descriptors instead of one"},
        attempt{honest, 2, "a parcel arrived with 2 descriptors instead of one"},
        attempt{honest, 4, "a parcel arrived with 4 descriptors instead of one"},
        attempt{honest, 12, "a parcel is longer than the protocol allows"},
        attempt{honest + "x", 1, "a parcel is longer than the protocol allows"},
        attempt{honest.substr(1), 1, "received 23 bytes that are not a parcel on the parcel socket"},
        attempt{other_magic, 1, "received 24 bytes that are not a parcel on the parcel socket"},
        attempt{"", 1, "received 0 bytes that are not a parcel on the parcel socket"}}) {
    send_raw(ends.worker.get(), a.content, std::vector<int>(a.files, file.get()));
    CHECK(refusal(ends.session.get()) == a.refused);
    CHECK(open_descriptors() == before);
  }
}

namespace {

nanoseconds passed{0};
std::function<void()> when_read_thrice = [] {};
int readings = 0;

/// Between two clock readings this process was suspended for an hour.
steady_time time_with_gaps() {
  if (++readings == 3) when_read_thrice();
  return steady_time(passed += 1h);
}

}  // namespace

TEST_CASE(
    "a process suspended while waiting for a parcel, or for room for one, still gives the peer its full time") {
  pair_of_ends ends;
  readings = 0;
  const unique_fd file = sealed_file("abc");
  const parcel_label label{0, 1, 0, 3};
  SECTION("waiting for a parcel") {
    when_read_thrice = [&] { REQUIRE(send_parcel(ends.session.get(), label, file.get()).value()); };
    const auto came = receive_parcel(ends.worker.get(), 80ms, &time_with_gaps);
    REQUIRE(came);
    CHECK(came->has_value());
  }
  SECTION("waiting for room") {
    while (send_parcel(ends.session.get(), label, file.get()).value()) {
    }
    when_read_thrice = [&] {
      while (receive_parcel(ends.worker.get()).value()) {
      }
    };
    CHECK(send_parcel(ends.session.get(), label, file.get(), 80ms, &time_with_gaps).value());
  }
  SECTION("the wait times out") {
    when_read_thrice = [] {};
    CHECK_FALSE(receive_parcel(ends.worker.get(), 80ms, &time_with_gaps).value());
  }
}
