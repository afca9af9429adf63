// Random hosts join, fall silent, send damaged batches, leave and die. Invariants are checked after every step.
#include "runtime/hosts/host_book.hpp"

#include "tests/random_seed.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <utility>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t first_place = 65;
constexpr std::uint32_t places = 12;
constexpr std::uint64_t processes = 5;
constexpr nanoseconds lost_after = 2s;

struct connection_seen {
  std::uint64_t process = 0;
  std::uint32_t place = 0;
  steady_time heard{};
  bool leaving = false;
  bool vacated = false;
  bool works = false;
};

class model {
 public:
  explicit model(std::uint64_t seed) : random_(seed) {}

  void step() {
    now_ += std::chrono::milliseconds(draw(200));
    switch (draw(10)) {
      case 0:
      case 1: join(); break;
      case 2:
      case 3:
      case 4: hear(); break;
      case 5: with_connection([&](connection_id id, connection_seen& connection) {
        book_.leaving(id);
        connection.leaving = true;
        left_.insert(connection.process);
      }); break;
      case 6: with_connection([&](connection_id id, connection_seen&) { book_.emptied(id); }); break;
      case 7: with_connection([&](connection_id id, connection_seen&) {
        if (draw(3) == 0) book_.closed(id, "it was closed");
      }); break;
      case 8: with_connection([&](connection_id id, connection_seen&) {
        draw(3) == 0 ? book_.spoilt(id, static_cast<bad_transfer>(draw(3)), "its digest is wrong") : book_.received(id, 1, 1, now_);
      }); break;
      default:
        if (draw(20) == 0) scale();
    }
    carry_out();
    check();
  }

  std::uint64_t joined = 0, lost = 0, left = 0, refused = 0, scaled = 0;

 private:
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

  template <class Change>
  void with_connection(Change change) {
    if (connections_.empty()) return;
    auto at = connections_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(draw(connections_.size())));
    change(at->first, at->second);
  }

  void join() {
    const connection_id id = ++last_;
    const std::uint64_t process = 1 + draw(processes);
    const bool full = connections_.size() == places;
    const bool ok = book_.joined(id, {name_of(process), "", 0, process}, now_);
    REQUIRE(ok == !full);
    ok ? ++joined : ++refused;
    if (ok) connections_[id] = {process, book_.place_of(id), now_};
  }

  void scale() {
    const std::string name = name_of(1 + draw(processes));
    const auto workers = static_cast<std::uint32_t>(draw(places + 1));
    book_.scale(name, workers);
    wanted_[name] = workers;
    ++scaled;
  }

  static std::string name_of(std::uint64_t process) { return fmt::format("host-{}", process); }

  void hear() {
    for (auto& [id, connection] : connections_) {
      if (draw(8) == 0) continue;
      book_.heard(id, now_);
      connection.heard = now_;
    }
  }

  void carry_out() {
    for (const book_command& one : book_.advance(now_)) {
      if (const auto* filled = std::get_if<occupy_place>(&one)) {
        connections_.at(filled->connection).works = true;
      } else if (const auto* rest = std::get_if<rest_place>(&one)) {
        REQUIRE(std::exchange(connections_.at(rest->connection).works, false));
      } else if (const auto* order = std::get_if<vacate_place>(&one)) {
        connection_seen& connection = connections_.at(order->connection);
        REQUIRE(connection.place == order->place);
        REQUIRE((order->lost || !connection.vacated));  // once, and once more if the host is lost while it leaves
        connection.vacated = true;
        connection.works = false;
        if (order->lost) ended(order->connection);
      } else if (const auto* close = std::get_if<close_connection>(&one)) {
        if (close->why.empty()) {
          REQUIRE(connections_.at(close->connection).leaving);
          REQUIRE(connections_.at(close->connection).vacated);
          ended(close->connection);
        }
      } else if (const auto* gone = std::get_if<host_went>(&one)) {
        REQUIRE(hosts_.erase(gone->card.process) == 1);
        left_.erase(gone->card.process);
        gone->why.empty() ? ++left : ++lost;
      } else if (const auto* came = std::get_if<host_came>(&one)) {
        REQUIRE(hosts_.insert(came->card.process).second);
      }
    }
  }

  void ended(connection_id id) { REQUIRE(connections_.erase(id) == 1); }

  void check() {
    std::set<std::uint32_t> taken;
    std::set<std::uint64_t> alive;
    for (const auto& [id, connection] : connections_) {
      REQUIRE(connection.place >= first_place);
      REQUIRE(connection.place < first_place + places);
      REQUIRE(taken.insert(connection.place).second);
      REQUIRE(book_.connection_at(connection.place) == id);
      REQUIRE(now_ - connection.heard < lost_after);  // silent hosts are gone
      alive.insert(connection.process);
    }
    REQUIRE(alive == hosts_);
    std::size_t seen = 0;
    for (const host_view& view : book_.hosts(now_)) {
      REQUIRE(alive.contains(view.card.process));
      seen += view.places.size();
    }
    REQUIRE(seen == connections_.size());
    if (!connections_.empty()) REQUIRE(book_.next_deadline() > now_);
    check_numbers();
  }

  /// On a host that stays, the wanted number of workers runs; on one that is leaving, at most that many.
  void check_numbers() {
    struct counts {
      std::uint32_t works = 0, stays = 0;
      bool leaves = false;
    };
    std::map<std::uint64_t, counts> hosts;
    for (const auto& [id, connection] : connections_) {
      counts& of = hosts[connection.process];
      of.works += connection.works ? 1 : 0;
      of.stays += connection.leaving ? 0 : 1;
      of.leaves |= connection.leaving;
    }
    for (const auto& [process, of] : hosts) {
      const auto wanted = wanted_.find(name_of(process));
      const std::uint32_t most = wanted == wanted_.end() ? places : wanted->second;
      REQUIRE(of.works <= most);
      if (!of.leaves && !left_.contains(process)) REQUIRE(of.works == std::min(most, of.stays));
    }
  }

  std::mt19937_64 random_;
  steady_time now_{1h};
  host_book book_{{.first_place = first_place, .places = places, .lost_after = lost_after}};
  std::map<connection_id, connection_seen> connections_;
  std::set<std::uint64_t> hosts_;
  std::set<std::uint64_t> left_;  // hosts whose connection has left
  std::map<std::string, std::uint32_t> wanted_;
  connection_id last_ = 0;
};

}  // namespace

TEST_CASE("in a million random steps every connection has one place, and silent hosts are gone") {
  model tried(testing::seed_of_this_run("host book"));
  for (int i = 0; i < 1'000'000; ++i) tried.step();
  CHECK(tried.joined > 10'000);
  CHECK(tried.lost > 1'000);
  CHECK(tried.left > 100);
  CHECK(tried.scaled > 1'000);
}
