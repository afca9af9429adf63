// Several groups in one process share a port.
#include "runtime/net/shared_port.hpp"

#include "runtime/group/group_wire.hpp"
#include "tests/runtime/net/link_world.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::group;

TEST_CASE("the first message of a connection names its group") {
  const std::string hello = encode(link_hello{group_protocol, "job/train"});
  CHECK(asks_for(hello, "job/train"));
  CHECK_FALSE(asks_for(hello, "job/trai"));
  CHECK_FALSE(asks_for(hello, "job/train2"));
  CHECK_FALSE(asks_for(hello.substr(0, 8), "job/train"));
  CHECK_FALSE(asks_for({}, "job/train"));
}

TEST_CASE("groups of one process share a port, and the next group takes it when the first has ended") {
  for (const testing::link_kind kind : {testing::link_kind::secret, testing::link_kind::insecure}) {
    boost::asio::io_context io;
    link_settings first = testing::link_settings_for(kind, 1);
    std::string where;
    auto listen = [&](const link_settings& at) {
      where.clear();
      return coordinator_listener::make(io, at,
                                        {.report = [](link_id, const member_report&) {},
                                         .closed = [](link_id, const std::string&) {},
                                         .listening = [&](const std::string& now) { where = now; }})
          .value();
    };
    // A free port: the port of a listener that has closed.
    auto probe = listen(first);
    testing::run_until(io, [&] { return !where.empty(); });
    first.address.port = static_cast<std::uint16_t>(std::stoi(where.substr(where.rfind(':') + 1)));
    probe.reset();
    link_settings second = first;
    second.group = first.group + "2";
    const auto connects = [&](const link_settings& to) {
      bool connected = false;
      const auto link =
          member_link::make(io, to,
                            {.order = [](const group_order&) {}, .connected = [&] { connected = true; }})
              .value();
      testing::run_until(io, [&] { return connected; });
    };
    auto one = listen(first);
    testing::run_until(io, [&] { return !where.empty(); });
    auto two = listen(second);
    testing::run_until(io, [&] { return !where.empty(); });
    connects(second);
    connects(first);
    CHECK(one->links() <= 1);
    CHECK(two->unknown_peers() == decltype(two->unknown_peers()){});
    CHECK(one->unknown_peers() == decltype(one->unknown_peers()){});
    one.reset();
    connects(second);
  }
}
