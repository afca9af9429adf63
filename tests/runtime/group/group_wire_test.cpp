#include "runtime/group/group_wire.hpp"

#include "tests/random_seed.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <random>

using namespace penstock;
using namespace penstock::group;

namespace {

constexpr std::uint32_t world = 5;

/// Every field differs from its default.
group_view full_view() {
  return {.generation = 7,
          .coordinator = 0x1122334455667788,
          .phase = group_phase::stopping,
          .incarnations = {1, 2, 3, 4, 0xffffffff},
          .facts = stream_facts{"fingerprint", 3, 1ULL << 40U},
          .limit = 99,
          .communicator = (7ULL << 32U) + 1,
          .agreed = (3ULL << 32U) + 5,
          .outcome = group_outcome::failed,
          .cause = group_cause{4, "node9", -1, "it failed\n\xff"}};
}

member_report full_report() {
  member_report r;
  r.card = {.protocol = 3,
            .rank = 4,
            .world_size = 5,
            .process = 12,
            .starts = 6,
            .one_at_a_time = true,
            .host = "node9",
            .pid = 4711,
            .device = "GPU-1",
            .shares_device = true,
            .settings = {{"seed", "1"}, {"", ""}, {"batch_size", std::string(1000, 'b')}}};
  r.number = 8;
  r.incarnation = 9;
  r.view = full_view();
  r.facts = stream_facts{"mine", 1, 2};
  r.steps = 10;
  r.lapsed = r.stream_over = r.frozen = r.stop_wanted = r.left = true;
  r.failed = group_cause{2, "node7", 4711, "no more"};
  r.communicator = {11, communicator_state::how::aborting, "an error"};
  r.settled = (1ULL << 40U) + 1;
  r.held = {16, 32, 1ULL << 41U};
  return r;
}

group_order full_order() {
  group_order o;
  o.view = full_view();
  o.number = 1;
  o.heard = 2;
  o.standing = rank_standing::refused;
  o.refusal = "another seed";
  o.incarnation = 3;
  o.go = o.everybody_knows = true;
  o.lost = {0, 4};
  o.communicator = {communicator_order::act::abort, 4, std::string("\0id", 3)};
  o.host = "node7";
  o.pid = 4711;
  return o;
}

std::string payload_of(const std::string& frame) {
  return frame.substr(frame_header_bytes);
}

std::string as_bytes(const member_report& report) {
  return payload_of(encode(report).value());
}
std::string as_bytes(const group_order& order) {
  return payload_of(encode(order).value());
}

/// Every accepted message is meaningful: it can be sent again and arrives unchanged.
void decode_anything(const std::string& bytes) {
  if (const auto report = decode_report(bytes, world)) {
    CHECK(as_bytes(decode_report(as_bytes(*report), world).value()) == as_bytes(*report));
  }
  if (const auto order = decode_order(bytes, world)) {
    CHECK(as_bytes(decode_order(as_bytes(*order), world).value()) == as_bytes(*order));
  }
  static_cast<void>(decode_hello(bytes));
}

}  // namespace

TEST_CASE("reports and orders arrive unchanged") {
  const member_report r = decode_report(as_bytes(full_report()), world).value();
  const member_report was = full_report();
  CHECK(r.card.protocol == was.card.protocol);
  CHECK(r.card.rank == was.card.rank);
  CHECK(r.card.world_size == was.card.world_size);
  CHECK(r.card.process == was.card.process);
  CHECK(r.card.starts == was.card.starts);
  CHECK(r.card.one_at_a_time);
  CHECK(r.card.host == was.card.host);
  CHECK(r.card.pid == was.card.pid);
  CHECK(r.card.device == was.card.device);
  CHECK(r.card.shares_device);
  CHECK(r.card.settings == was.card.settings);
  CHECK(r.number == was.number);
  CHECK(r.incarnation == was.incarnation);
  CHECK(r.view == was.view);
  CHECK(r.facts == was.facts);
  CHECK(r.steps == was.steps);
  CHECK((r.lapsed && r.stream_over && r.frozen && r.stop_wanted && r.left));
  CHECK(r.failed == was.failed);
  CHECK(r.communicator == was.communicator);
  CHECK(r.settled == was.settled);
  CHECK(r.held == was.held);
  const group_order o = decode_order(as_bytes(full_order()), world).value();
  const group_order sent = full_order();
  CHECK(o.view == sent.view);
  CHECK(o.number == sent.number);
  CHECK(o.heard == sent.heard);
  CHECK(o.standing == sent.standing);
  CHECK(o.refusal == sent.refusal);
  CHECK(o.incarnation == sent.incarnation);
  CHECK((o.go && o.everybody_knows));
  CHECK(o.lost == sent.lost);
  CHECK(o.communicator == sent.communicator);
  CHECK(o.host == sent.host);
  CHECK(o.pid == sent.pid);
  CHECK(as_bytes(decode_report(as_bytes(member_report{}), world).value()) == as_bytes(member_report{}));
  CHECK(as_bytes(decode_order(as_bytes(group_order{}), world).value()) == as_bytes(group_order{}));
}

TEST_CASE("truncated messages are refused, and so is every extra byte") {
  for (const std::string& whole : {as_bytes(full_report()), as_bytes(full_order())}) {
    const bool report = decode_report(whole, world).has_value();
    const auto refused = [&](const std::string& bytes) {
      return report ? !decode_report(bytes, world) : !decode_order(bytes, world);
    };
    CHECK_FALSE(refused(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      if (!refused(whole.substr(0, size)))
        FAIL("a message of which only " << size << " bytes came was accepted");
    }
    CHECK(refused(whole + '\0'));
  }
  const std::string hello = payload_of(encode(link_hello{1, "job/train"}));
  CHECK(decode_hello(hello).value().group == "job/train");
  for (std::size_t size = 0; size < hello.size(); ++size) CHECK_FALSE(decode_hello(hello.substr(0, size)));
  CHECK_FALSE(decode_hello(hello + "x"));
}

TEST_CASE("random bytes do not crash the reader of messages") {
  std::mt19937_64 random(testing::seed_of_this_run("group wire"));
  const std::string seeds[] = {as_bytes(full_report()), as_bytes(full_order()),
                               payload_of(encode(link_hello{}))};
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = seeds[random() % std::size(seeds)];
    const std::uint64_t changes = random() % 4;
    for (std::uint64_t k = 0; k < changes; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (random() % 8 == 0) {
      bytes.resize(random() % 300);
      for (char& c : bytes) c = static_cast<char>(random());
    }
    decode_anything(bytes);
    frame_cutter cutter(1000);
    cutter.feed(bytes);
    for (auto next = cutter.next(); next && *next; next = cutter.next()) {
    }
  }
}

TEST_CASE("invalid sizes, enumerators and booleans are refused") {
  const std::string whole = as_bytes(group_order{});
  const auto with_byte = [&](std::size_t at, char value) {
    std::string bytes = whole;
    bytes[at] = value;
    return decode_order(bytes, world);
  };
  REQUIRE(with_byte(0, 1));            // generation
  CHECK_FALSE(with_byte(16, 5));       // the phase
  CHECK_FALSE(with_byte(17, 6));       // six incarnations of five ranks
  CHECK_FALSE(with_byte(20, '\x7f'));  // a count of about two thousand million
  CHECK_FALSE(with_byte(21, 2));       // the flag of an optional is neither 0 nor 1
  CHECK_FALSE(decode_order(whole, world).value().go);
  group_order large;
  large.view.incarnations.resize(world + 1);
  CHECK_FALSE(decode_order(as_bytes(large), world));
  CHECK(decode_order(as_bytes(large), world + 1));
  // Settings longer than allowed, in an otherwise consistent message.
  member_report settings;
  settings.card.settings = {{"n", ""}};
  const std::string one = as_bytes(settings);
  const std::size_t at = one.find('n') + 1;  // the byte with the length of the value
  const auto with_value = [&](std::uint32_t size) {
    std::string bytes = one;
    for (unsigned i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(size >> (8 * i));
    return bytes.insert(at + 4, size, 'v');
  };
  CHECK(decode_report(with_value(settings_bytes_max - 13), world));
  CHECK_FALSE(decode_report(with_value(settings_bytes_max - 12), world));
}

TEST_CASE("texts are shortened, and any other overlong field is refused by name") {
  member_report report = full_report();
  report.failed = group_cause{2, "node7", 4711, std::string(100'000, 'f')};
  report.view.cause->cause = std::string(100'000, 'c');
  const member_report cut = decode_report(as_bytes(report), world).value();
  CHECK(cut.failed->cause.size() == text_max);
  CHECK(cut.view.cause->cause.ends_with("ccc..."));
  const auto refusal = [](const member_report& r) {
    const auto sent = encode(r);
    return sent ? std::string() : sent.error().message;
  };
  report.card.settings = {{"a", std::string(settings_bytes_max - 13, 's')}};
  CHECK(refusal(report).empty());
  report.card.settings = {{"a", std::string(settings_bytes_max - 12, 's')}};
  CHECK(refusal(report) ==
        "a message to the group cannot be sent: settings of 65537, but at most 65536 can be sent");
  report = full_report();
  report.card.settings.resize(settings_max + 1);
  CHECK(refusal(report).find("number of settings of 1025") != std::string::npos);
  report = full_report();
  report.card.host = std::string(host_name_max + 1, 'h');
  CHECK(refusal(report).find("a host's name of 257") != std::string::npos);
  group_order order;
  order.communicator.id = std::string(communicator_id_max + 1, 'i');
  CHECK_FALSE(encode(order));
}

TEST_CASE("the largest messages fit a frame") {
  constexpr std::uint32_t ranks = 64;
  group_view view = full_view();
  view.incarnations.resize(ranks);
  view.facts->fingerprint.resize(fingerprint_max);
  view.cause = group_cause{0, std::string(host_name_max, 'h'), 1, std::string(text_max, 'c')};
  member_report report = full_report();
  report.view = view;
  report.card.host.resize(host_name_max);
  report.card.device.resize(device_name_max);
  report.card.settings = {{"a", std::string(settings_bytes_max - 13, 's')}};
  report.facts->fingerprint.resize(fingerprint_max);
  report.failed = group_cause{0, std::string(host_name_max, 'h'), 1, std::string(text_max, 'f')};
  report.communicator.cause = std::string(text_max, 'c');
  report.held.assign(held_max, 1);
  CHECK(as_bytes(report).size() <= frame_bytes_max(ranks));
  CHECK(as_bytes(report).size() + 256 > frame_bytes_max(ranks));
  group_order order = full_order();
  order.view = view;
  order.lost.resize(ranks);
  order.refusal.resize(text_max);
  order.communicator.id.resize(communicator_id_max);
  CHECK(as_bytes(order).size() <= frame_bytes_max(ranks));
  CHECK(payload_of(encode(link_hello{1, std::string(group_name_max, 'g')})).size() == hello_bytes_max);
}

TEST_CASE("frames are the same however a connection's bytes are split") {
  const std::string stream =
      encode(link_hello{1, "g"}) + encode(full_report()).value() + encode(full_order()).value();
  for (const std::size_t piece : {1UL, 2UL, 3UL, 7UL, 1000UL, stream.size()}) {
    frame_cutter cutter(frame_bytes_max(world));
    std::vector<frame_type> types;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      cutter.feed(std::string_view(stream).substr(at, piece));
      for (auto next = cutter.next(); next.value(); next = cutter.next()) {
        types.push_back((*next)->type);
        if (types.size() == 2) CHECK((*next)->payload == as_bytes(full_report()));
      }
    }
    CHECK(types == std::vector{frame_type::hello, frame_type::report, frame_type::order});
  }
}

TEST_CASE("a frame whose announced size is too large is refused before its bytes arrive") {
  frame_cutter cutter(hello_bytes_max);
  cutter.feed(std::string("\xff\xff\xff\x7f\x00", 5));
  const auto refused = cutter.next();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "a message announces 2147483647 bytes, but at most 216 are allowed");
  frame_cutter other(1000);
  other.feed(std::string("\x00\x00\x00\x00\x07", 5));
  CHECK(other.next().error().message == "a message of unknown type 7");
}
