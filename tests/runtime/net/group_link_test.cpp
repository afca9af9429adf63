#include "runtime/group/group_wire.hpp"
#include "tests/runtime/net/link_world.hpp"

#include <catch2/generators/catch_generators.hpp>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("reports reach the coordinator, and its orders the member that reported") {
  const link_kind kind = GENERATE(link_kind::local, link_kind::insecure, link_kind::secret);
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(kind));
  const link_settings settings = coordinator.for_members();
  test_member first(io, settings);
  test_member second(io, settings);
  REQUIRE(first.link->send(numbered_report(1, 0)));
  REQUIRE(second.link->send(numbered_report(1, 1)));
  run_until(io, [&] { return coordinator.reports.size() == 2; });
  CHECK(coordinator.listener->links() == 2);
  CHECK(coordinator.listener->pending() == 0);
  CHECK(first.connected == 1);
  for (const auto& [id, report] : coordinator.reports)
    coordinator.listener->send(id, numbered_order(100 + report.card.rank));
  run_until(io, [&] { return !first.orders.empty() && !second.orders.empty(); });
  CHECK(first.orders.at(0).number == 100);
  CHECK(second.orders.at(0).number == 101);
  first.link->stop();
  run_until(io, [&] { return coordinator.closed.size() == 1; });
  CHECK(coordinator.closed.begin()->second == "it closed the connection");
  CHECK(coordinator.listener->links() == 1);
}

TEST_CASE("a member connects again after the coordinator's process was replaced, and reports at once") {
  const link_kind kind = GENERATE(link_kind::local, link_kind::insecure, link_kind::secret);
  boost::asio::io_context io;
  auto coordinator = std::make_unique<test_coordinator>(io, link_settings_for(kind));
  const link_settings settings = coordinator->for_members();
  test_member member(io, settings);
  REQUIRE(member.link->send(numbered_report(7)));
  run_until(io, [&] { return coordinator->reports.size() == 1; });
  coordinator.reset();
  run_until(io, [&] { return member.reasons.size() >= 2; });
  CHECK(member.reasons.at(0).find("it closed the connection") != std::string::npos);
  CHECK(member.reasons.at(1).find("Connection refused") != std::string::npos);
  test_coordinator next(io, settings);
  run_until(io, [&] { return next.reports.size() == 1; });
  CHECK(next.reports.at(0).second.number == 7);
  CHECK(member.connected == 2);
}

TEST_CASE("members may connect before the coordinator listens, and it retries an address in use") {
  const link_kind kind = GENERATE(link_kind::local, link_kind::insecure);
  boost::asio::io_context io;
  auto first = std::make_unique<test_coordinator>(io, link_settings_for(kind));
  const link_settings settings = first->for_members();
  test_coordinator second(io, settings);
  run_until(io, [&] { return !second.why_not.empty(); });
  CHECK(second.why_not.find("Address already in use") != std::string::npos);
  first.reset();
  test_member member(io, settings);
  run_until(io, [&] { return member.connected == 1; });
  CHECK_FALSE(second.where.empty());
}

TEST_CASE("a member with another secret is refused, both sides report that, and others can join") {
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(link_kind::secret));
  link_settings settings = coordinator.for_members();
  test_member good(io, settings);
  settings.secret = group_secret{"the secret of another group"};
  test_member wrong(io, settings);
  run_until(io, [&] { return good.connected == 1 && !wrong.reasons.empty() && !coordinator.news.empty(); });
  CHECK(wrong.reasons.at(0).find("its secret is different") != std::string::npos);
  CHECK(wrong.connected == 0);
  CHECK(coordinator.news.at(0).kind == unknown_peer_kind::wrong_secret);
  CHECK(coordinator.news.at(0).peer.find("127.0.0.1:") == 0);
  CHECK(coordinator.listener->links() == 1);
}

TEST_CASE("both sides report a secret that only one of them has") {
  const bool member_has_it = GENERATE(true, false);
  boost::asio::io_context io;
  test_coordinator coordinator(io,
                               link_settings_for(member_has_it ? link_kind::insecure : link_kind::secret));
  link_settings settings = coordinator.for_members();
  settings.insecure = true;
  settings.secret.reset();
  if (member_has_it) settings.secret = group_secret{"a secret of the whole group"};
  test_member member(io, settings);
  run_until(io, [&] { return !member.reasons.empty() && !coordinator.news.empty(); });
  CHECK(coordinator.news.at(0).kind == unknown_peer_kind::no_secret);
  const char* const theirs = member_has_it ? "it has no secret, but this process has one"
                                           : "it has a secret, but this process has none";
  const char* const ours = member_has_it ? "it has a secret, but this process has none"
                                         : "it has no secret, but this process has one";
  CHECK(coordinator.news.at(0).text == ours);
  CAPTURE(member.reasons.at(0));
  CHECK(member.reasons.at(0).find(theirs) != std::string::npos);
}

TEST_CASE("a member of another version of the protocol is refused, and both sides name both versions") {
  const link_kind kind = GENERATE(link_kind::local, link_kind::insecure, link_kind::secret);
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(kind));
  link_settings settings = coordinator.for_members();
  settings.protocol = group_protocol + 1;
  test_member member(io, settings);
  run_until(io, [&] { return !member.reasons.empty() && !coordinator.news.empty(); });
  CHECK(coordinator.news.at(0).kind == unknown_peer_kind::wrong_version);
  const auto said_of = [](std::uint32_t theirs, std::uint32_t own) {
    return fmt::format("it speaks version {} of the protocol, but this process speaks version {}", theirs, own);
  };
  CHECK(coordinator.news.at(0).text ==
        said_of(group_protocol + 1, group_protocol) + ": all ranks need the same version of penstock");
  CHECK(member.reasons.at(0).find(said_of(group_protocol, group_protocol + 1)) != std::string::npos);
  CHECK(coordinator.listener->links() == 0);
}

TEST_CASE("a member of another group is refused, and both sides name both groups") {
  const link_kind kind = GENERATE(link_kind::local, link_kind::insecure);
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(kind));
  link_settings settings = coordinator.for_members();
  settings.group = "job7/validate";
  test_member member(io, settings);
  run_until(io, [&] { return !member.reasons.empty() && !coordinator.news.empty(); });
  CHECK(coordinator.news.at(0).kind == unknown_peer_kind::wrong_group);
  CHECK(coordinator.news.at(0).text ==
        "it belongs to the group 'job7/validate', but this is the group 'job7/train'");
  CHECK(member.reasons.at(0).find(
            "it belongs to the group 'job7/train', but this is the group 'job7/validate'") !=
        std::string::npos);
}

TEST_CASE("unknown peers that send garbage, too much or too slowly are disconnected and counted by kind") {
  const link_kind kind = GENERATE(link_kind::local, link_kind::insecure, link_kind::secret);
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(kind));
  const link_settings settings = coordinator.for_members();
  const std::string first_words[] = {"GET / HTTP/1.1\r\nHost: here\r\n\r\n", std::string(20'000, '\0'),
                                     std::string("\x08\x00\x00\x00\x01", 5) + "a report",
                                     "\xff\xff\xff\xff\xff\xff"};
  for (const std::string& words : first_words) {
    const unique_fd unrelated = connect_raw(settings);
    run_ready(io);
    const std::uint64_t before = coordinator.unknown_peers(unknown_peer_kind::garbage);
    send_raw(unrelated, words);
    run_until(io, [&] { return coordinator.unknown_peers(unknown_peer_kind::garbage) == before + 1; });
    run_until(io, [&] { return !receive_raw(unrelated); });
  }
  link_settings strict = link_settings_for(kind);
  strict.handshake_deadline = 200ms;
  test_coordinator other(io, strict);
  const unique_fd late = connect_raw(other.for_members());
  send_raw(late, std::string_view("\x16", 1));
  run_until(io, [&] { return other.unknown_peers(unknown_peer_kind::too_slow) == 1; });
  CHECK_FALSE(receive_raw(late));
  CHECK(other.listener->pending() == 0);
  CHECK(coordinator.listener->pending() == 0);
  CHECK(coordinator.listener->links() == 0);
  test_member member(io, settings);
  run_until(io, [&] { return member.connected == 1; });
}

TEST_CASE("a member that violates the protocol loses its link, and the reason is reported") {
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(link_kind::local));
  const link_settings settings = coordinator.for_members();
  const std::string hello = encode(link_hello{group_protocol, settings.group});
  const std::pair<std::string, const char*> wrongs[] = {
      {encode(group_order{}).value(), "it sent an order instead of a report"},
      {hello, "it identified itself twice"},
      {std::string("\x00\x00\x00\x00\x01", 5), "a report is truncated or corrupt"},
      {std::string("\xff\xff\xff\x00\x01", 5), "announces 16777215 bytes"}};
  for (const auto& [bytes, reason] : wrongs) {
    coordinator.closed.clear();
    const unique_fd member = connect_raw(settings);
    send_raw(member, hello);
    run_until(io, [&] { return coordinator.listener->links() == 1; });
    send_raw(member, bytes);
    run_until(io, [&] { return coordinator.closed.size() == 1; });
    CHECK(coordinator.closed.begin()->second.find(reason) != std::string::npos);
  }
  CHECK(coordinator.news.empty());
}

TEST_CASE("a member that had stopped reading gets only the newest order") {
  boost::asio::io_context io;
  test_coordinator coordinator(io, link_settings_for(link_kind::local));
  const link_settings settings = coordinator.for_members();
  const unique_fd member = connect_raw(settings);
  send_raw(member, encode(link_hello{group_protocol, settings.group}) + encode(numbered_report(1)).value());
  run_until(io, [&] { return coordinator.reports.size() == 1; });
  constexpr std::uint64_t sent = 50'000;
  for (std::uint64_t i = 1; i <= sent; ++i)
    coordinator.listener->send(coordinator.reports.at(0).first, numbered_order(i));
  frame_cutter cutter(frame_bytes_max(4));
  std::uint64_t got = 0;
  std::uint64_t last = 0;
  run_until(io, [&] {
    cutter.feed(receive_raw(member).value());
    for (auto next = cutter.next().value(); next; next = cutter.next().value()) {
      if (next->type != frame_type::order) continue;
      ++got;
      last = decode_order(next->payload, 4).value().number;
    }
    boost::asio::post(io, [] {});  // continues reading
    return last == sent;
  });
  CHECK(got < sent / 2);
}

TEST_CASE("a member that hears nothing makes another link, and the silent link closes") {
  boost::asio::io_context io;
  link_settings quick = link_settings_for(link_kind::insecure);
  quick.lost_after = 200ms;
  test_coordinator coordinator(io, quick);
  test_member member(io, coordinator.for_members());
  REQUIRE(member.link->send(numbered_report(1)));
  run_until(io, [&] { return !coordinator.closed.empty() && !member.reasons.empty(); });
  // Either side may be first; the other sees the close, or finds the same error.
  const std::string both = coordinator.closed.begin()->second + " | " + member.reasons.at(0);
  CHECK(both.find("it was silent for 100 ms") != std::string::npos);
}

TEST_CASE("a suspended coordinator finds the last report of a rank that had tried to reconnect") {
  boost::asio::io_context io;
  link_settings settings = link_settings_for(link_kind::local);
  settings.lost_after = 200ms;
  const unique_fd listening = listen_at(settings.address, 1s).value();
  test_member member(io, settings);
  unique_fd link;
  run_until(io, [&] {
    if (!link) link.reset(::accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return link.get() >= 0;
  });
  send_raw(link, encode(link_hello{group_protocol, settings.group}));
  run_until(io, [&] { return member.connected == 1; });
  run_until(io, [&] { return !member.reasons.empty(); });
  CHECK(member.reasons.at(0).find("it was silent for 100 ms") != std::string::npos);
  const std::string last = encode(numbered_report(7)).value();
  REQUIRE(member.link->send(numbered_report(7)));
  CHECK(receive_raw(link).value_or("").ends_with(last));
  SECTION("the answer over the old link reaches the rank, too") {
    send_raw(link, encode(numbered_order(3)).value());
    run_until(io, [&] { return !member.orders.empty(); });
    CHECK(member.orders.at(0).number == 3);
  }
}

TEST_CASE("a silent coordinator and an unknown host name are reported as such") {
  boost::asio::io_context io;
  link_settings quick = link_settings_for(link_kind::insecure);
  quick.handshake_deadline = 200ms;
  // The kernel accepts the connection, but no process ever reads.
  const unique_fd silent = listen_at(quick.address, 1s).value();
  quick.address = listening_at(silent.get(), quick.address);
  test_member member(io, quick);
  run_until(io, [&] { return !member.reasons.empty(); });
  CHECK(member.reasons.at(0).find("it did not identify itself within the deadline") != std::string::npos);
  quick.address = {group_address::kind::tcp, "nobody-knows-this.invalid", 1};
  auto lost = std::make_unique<test_member>(io, quick);
  run_until(io, [&] { return !lost->reasons.empty(); });
  CHECK(lost->reasons.at(0).find("looking up the address of 'nobody-knows-this.invalid'") == 0);
  const own_time clock;
  lost.reset();  // returns even if the resolver still waits
  CHECK(clock.passed() < 1s);
}

TEST_CASE("a host's name is looked up before connecting") {
  boost::asio::io_context io;
  link_settings settings = link_settings_for(link_kind::secret);
  settings.address.name = "localhost";
  test_coordinator coordinator(io, settings);
  test_member member(io, coordinator.for_members());
  run_until(io, [&] { return member.connected == 1; });
}

TEST_CASE("links that can never work are refused before they connect") {
  boost::asio::io_context io;
  const auto refusal = [&](link_settings settings) {
    const auto prepared = prepare_links(settings);
    REQUIRE_FALSE(prepared);
    auto made = member_link::make(io, settings, {.order = [](group_order) {}});
    auto listener = coordinator_listener::make(
        io, std::move(settings),
        {.report = [](link_id, member_report) {}, .closed = [](link_id, const std::string&) {}});
    REQUIRE_FALSE(made);
    REQUIRE_FALSE(listener);
    CHECK(made.error().message == listener.error().message);
    CHECK(made.error().message == prepared.error().message);
    return made.error().message;
  };
  CHECK(prepare_links(link_settings_for(link_kind::secret)));
  link_settings open = link_settings_for(link_kind::insecure);
  open.insecure = false;
  CHECK(refusal(open).find("[group] insecure = true") != std::string::npos);
  link_settings unnamed = link_settings_for(link_kind::local);
  unnamed.group = std::string(group_name_max + 1, 'n');
  CHECK(refusal(unnamed).find("at most 200") != std::string::npos);
  test_member member(io, link_settings_for(link_kind::local));
  member_report large;
  large.card.settings = {{"a", std::string(settings_bytes_max, 's')}};
  CHECK(member.link->send(large).error().code == errc::config);
}

TEST_CASE("callbacks can stop and destroy their caller") {
  boost::asio::io_context io;
  const link_kind kind = GENERATE(link_kind::local, link_kind::secret);
  std::unique_ptr<coordinator_listener> listener;
  std::unique_ptr<member_link> member;
  std::string where;
  bool heard = false;
  const link_settings settings = link_settings_for(kind);
  listener = coordinator_listener::make(io, settings,
                                        {.report =
                                             [&](link_id, member_report) {
                                               heard = true;
                                               listener.reset();
                                             },
                                         .closed = [](link_id, const std::string&) { FAIL("it is gone"); },
                                         .listening = [&](const std::string& at) { where = at; }})
                 .value();
  run_until(io, [&] { return !where.empty(); });
  link_settings to = settings;
  if (kind == link_kind::secret)
    to.address.port = static_cast<std::uint16_t>(std::stoi(where.substr(where.rfind(':') + 1)));
  member = member_link::make(io, to,
                             {.order = [](group_order) {},
                              .connected = [&] { CHECK(member->send(numbered_report(1))); },
                              .disconnected = [&](const link_trouble&) { member.reset(); }})
               .value();
  run_until(io, [&] { return heard && !member; });
  run_ready(io);
}
