#include "actors/protocol/link.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <random>

using namespace penstock;
using namespace penstock::protocol;

namespace {

std::vector<char> frames(const std::vector<from_worker>& messages) {
  std::vector<char> bytes;
  for (const from_worker& m : messages) append_frame(bytes, m);
  return bytes;
}

const std::vector<from_worker> conversation{
    hello{hello::expected_magic, version, 4127},
    dataset_described{"image-folder", 1000, {{"image", 0, 1, {224, 224, 3}}, {"label", 7, 0, {}}}, "abc"},
    worker_ready{},
    batch_loaded{2, 17, 126, {{5, "a.jpg", "truncated"}, {9, "b.jpg", ""}}, 123456789},
    worker_gives_up{78, 0, "no such folder"},
    functions_described{{"resize", "thumbnail"}},
    jobs_done{2, 18, 100},
    samples_named{{"a.jpg", "b.jpg"}},
};

}  // namespace

TEST_CASE("messages survive serialisation, however their bytes are split") {
  const std::vector<char> bytes = frames(conversation);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{64}, bytes.size()}) {
    frame_reader<from_worker> reader;
    std::vector<from_worker> received;
    for (std::size_t i = 0; i < bytes.size(); i += piece) {
      const auto part = std::span(bytes).subspan(i, std::min(piece, bytes.size() - i));
      REQUIRE(reader.feed(part, [&](from_worker&& m) { received.push_back(std::move(m)); }));
    }
    REQUIRE(received.size() == conversation.size());
    CHECK(std::get<hello>(received[0]).pid == 4127);
    CHECK(std::get<dataset_described>(received[1]).tensors[0].shape ==
          std::vector<std::uint32_t>{224, 224, 3});
    CHECK(std::get<batch_loaded>(received[3]).failures[0].reason == "truncated");
    CHECK(std::get<functions_described>(received[5]).names ==
          std::vector<std::string>{"resize", "thumbnail"});
    CHECK(std::get<jobs_done>(received[6]).rows == 100);
    CHECK(std::get<samples_named>(received[7]).names == std::vector<std::string>{"a.jpg", "b.jpg"});
    CHECK_FALSE(reader.in_the_middle());
  }
}

TEST_CASE("the longest list of names of samples fits a frame") {
  samples_named most;
  most.names.assign(name_samples::samples_max, std::string(samples_named::name_bytes_max, 'n'));
  std::vector<char> bytes;
  CHECK(append_frame<from_worker>(bytes, most));
}

TEST_CASE("the longest list of functions fits a frame") {
  functions_described most;
  most.names.assign(functions_described::functions_max,
                    std::string(functions_described::name_bytes_max, 'f'));
  std::vector<char> bytes;
  CHECK(append_frame<from_worker>(bytes, most));
}

TEST_CASE("a frame that announces too much is refused before anything is allocated for it") {
  const frame_header header{0xffff'fff0U, 3};
  std::vector<char> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  frame_reader<from_worker> reader;
  const auto no = reader.feed(bytes, [](from_worker&&) {});
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::protocol);
  CHECK(no.error().message == "message 0 announces 4294967280 bytes, but at most 4194304 are allowed");
}

TEST_CASE("unknown types, cut payloads and stray bytes are refused") {
  const auto refusal = [](std::vector<char> bytes) {
    frame_reader<from_worker> reader;
    const auto ok = reader.feed(bytes, [](from_worker&&) {});
    return ok ? std::string() : ok.error().message;
  };
  std::vector<char> bytes = frames({batch_loaded{1, 2, 3, {{1, "n", "x"}}, 4}});
  frame_header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto with = [&](frame_header h) {
    std::vector<char> changed = bytes;
    std::memcpy(changed.data(), &h, sizeof h);
    return changed;
  };
  CHECK(refusal(with({header.payload_bytes, 77})) == "unknown message type 77");
  CHECK(refusal(with({header.payload_bytes - 1, header.type})).find("truncated or corrupt") !=
        std::string::npos);
  auto longer = with({header.payload_bytes + 1, header.type});
  longer.push_back(0);
  CHECK(refusal(longer).find("stray bytes") != std::string::npos);
}

TEST_CASE("a vector that announces more elements than there are bytes allocates nothing for them") {
  std::vector<char> bytes = frames({dataset_described{"x", 1, {}, "f"}});
  for (std::size_t i = sizeof(frame_header); i < bytes.size(); ++i) {
    auto changed = bytes;
    changed[i] = static_cast<char>(0xff);
    frame_reader<from_worker> one;
    // Any outcome is fine except a crash or an allocation of 4 GB.
    static_cast<void>(one.feed(changed, [](from_worker&&) {}));
  }
}

TEST_CASE("the encoded bytes of a message are the same in every build") {
  std::vector<char> bytes;
  REQUIRE(append_frame<from_worker>(bytes,
                                    batch_loaded{1, 0x01020304, 2, {{5, std::string(130, 'n'), ""}}, 9, 7, {}, 6, {{3, "cat", 4}}}));
  std::string expected(
      "\xc4\0\0\0"
      "\3\0\0\0",
      8);  // the header, in the host's byte order
  expected += std::string(
      "\0\0\0\1"
      "\1\2\3\4"
      "\0\0\0\2",
      12);
  expected += std::string(
                  "\1"
                  "\0\0\0\5"
                  "\x82\1",
                  7) +
              std::string(130, 'n') + std::string("\0", 1);
  expected += std::string("\0\0\0\0\0\0\0\x09", 8) + std::string("\0\0\0\0\0\0\0\x07", 8) +
              std::string("\0", 1);
  expected += std::string("\0\0\0\0\0\0\0\x06", 8) + std::string("\1\0\0\0\0\0\0\0\x03", 9) + "\3cat" +
              std::string("\0\0\0\0\0\0\0\x04", 8);
  CHECK(std::string(bytes.begin(), bytes.end()) == expected);
}

TEST_CASE("a length that the payload cannot hold is refused") {
  for (const std::string& length : {std::string("\xff\xff\xff\xff\x0f", 5),
                                    std::string("\xff\xff\xff\xff\xff\xff\1", 7), std::string("\2", 1)}) {
    const frame_header header{static_cast<std::uint32_t>(length.size() + 8), 2};
    std::string bytes(sizeof header, '\0');
    std::memcpy(bytes.data(), &header, sizeof header);
    bytes += length + std::string(8, 'x');  // a slots_copied whose payload has room for one upload
    frame_reader<from_owner> reader;
    const auto no = reader.feed(bytes, [](from_owner&&) {});
    REQUIRE_FALSE(no);
    CHECK(no.error().message == "a message of type 2 is truncated or corrupt");
  }
}

TEST_CASE("random bytes and changes are handled without a crash") {
  std::mt19937 random(20261120);
  const std::vector<char> good = frames(conversation);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<char> bytes = good;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    frame_reader<from_worker> reader;
    std::size_t messages = 0;
    static_cast<void>(reader.feed(bytes, [&](from_worker&&) { ++messages; }));
    REQUIRE(messages <= conversation.size() + 1);
  }
}

namespace {

/// Runs an io_context by hand until the condition holds.
template <class Predicate>
bool run_until(boost::asio::io_context& io, Predicate done) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!done() && std::chrono::steady_clock::now() < until) {
    io.run_one_for(std::chrono::milliseconds(100));
    io.restart();
  }
  return done();
}

}  // namespace

TEST_CASE("each end of a link receives the other's messages in order") {
  boost::asio::io_context io;
  auto ends = make_link_pair();
  REQUIRE(ends);
  std::vector<std::uint32_t> received;
  const auto session =
      worker_link::make(io, std::move(ends->first),
                        {[&](from_worker&& m) { received.push_back(std::get<batch_loaded>(m).slot); }, {}});
  const auto worker = session_link::make(io, std::move(ends->second), {});
  session->start();
  worker->start();
  for (std::uint32_t i = 0; i < 1000; ++i) worker->send(batch_loaded{i, 0, 0, {}, 0});
  REQUIRE(run_until(io, [&] { return received.size() == 1000; }));
  for (std::uint32_t i = 0; i < 1000; ++i) CHECK(received[i] == i);
}

TEST_CASE("a link keeps no buffer while it waits: hundreds of workers have one each") {
  CHECK(sizeof(worker_link) < 1024);
}

TEST_CASE("stream messages in quick succession are gathered; job messages never wait") {
  boost::asio::io_context io;
  auto ends = make_link_pair();
  REQUIRE(ends);
  const auto session = worker_link::make(io, std::move(ends->first), {{}, {}, 100, std::chrono::hours(1)});
  std::array<char, 4096> bytes{};
  const auto arrived = [&] { return ::recv(ends->second.get(), bytes.data(), bytes.size(), MSG_DONTWAIT); };
  session->send(run_jobs{1, 1, 1});
  CHECK(arrived() > 0);
  session->send(run_jobs{2, 1, 1});
  CHECK(arrived() > 0);
  session->send(load_batch{3, 1, 0, {{7, 1}}});  // written at once: no message precedes it
  CHECK(arrived() > 0);
  session->send(load_batch{4, 1, 0, {{8, 1}}});
  CHECK(arrived() == -1);
  session->send(run_jobs{5, 1, 1});  // must not overtake the previous message
  CHECK(arrived() == -1);
  io.poll();
  std::vector<std::uint32_t> slots;
  frame_reader<to_worker> reader;
  const ssize_t together = arrived();
  REQUIRE(together > 0);
  REQUIRE(reader.feed({bytes.data(), static_cast<std::size_t>(together)}, [&](to_worker&& m) {
    slots.push_back(std::holds_alternative<run_jobs>(m) ? std::get<run_jobs>(m).slot
                                                        : std::get<load_batch>(m).slot);
  }));
  CHECK(slots == std::vector<std::uint32_t>{4, 5});
}

TEST_CASE("stream messages with a pause between them do not wait for the io thread") {
  boost::asio::io_context io;
  auto ends = make_link_pair();
  REQUIRE(ends);
  const auto session =
      worker_link::make(io, std::move(ends->first), {{}, {}, 100, std::chrono::nanoseconds(0)});
  std::array<char, 4096> bytes{};
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    session->send(load_batch{slot, 1, 0, {{7, 1}}});
    CHECK(::recv(ends->second.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0);
  }
}

TEST_CASE("a closed peer is reported once") {
  boost::asio::io_context io;
  auto ends = make_link_pair();
  REQUIRE(ends);
  int closed = 0;
  const auto session = worker_link::make(io, std::move(ends->first), {{}, [&](const std::string& reason) {
                                                                        ++closed;
                                                                        CHECK(reason.empty());
                                                                      }});
  session->start();
  ends->second.reset();
  REQUIRE(run_until(io, [&] { return closed == 1; }));
  session->send(stop_work{});
  session->close();
  io.poll();
  CHECK(closed == 1);
}

TEST_CASE("a peer that sends nonsense is disconnected with the reason") {
  boost::asio::io_context io;
  auto ends = make_link_pair();
  REQUIRE(ends);
  std::string reason;
  const auto session =
      worker_link::make(io, std::move(ends->first), {{}, [&](const std::string& r) { reason = r; }});
  session->start();
  REQUIRE(::write(ends->second.get(), "GET / HTTP/1.1\r\n", 16) == 16);
  REQUIRE(run_until(io, [&] { return !reason.empty(); }));
  CHECK(reason.find("announces") != std::string::npos);
}

TEST_CASE("a peer's last messages are drained even if another process holds its socket open") {
  boost::asio::io_context io;
  auto ends = make_link_pair();
  REQUIRE(ends);
  const unique_fd grandchild(::dup(ends->second.get()));
  const std::vector<char> bytes = frames({worker_ready{}, batch_loaded{1, 1, 1, {}, 0}});
  REQUIRE(::write(ends->second.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  ends->second.reset();
  int received = 0;
  const auto session =
      worker_link::make(io, std::move(ends->first), {[&](from_worker&&) { ++received; }, {}});
  session->drain();
  CHECK(received == 2);
}
