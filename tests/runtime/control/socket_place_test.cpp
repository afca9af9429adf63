#include "runtime/control/session_record.hpp"
#include "runtime/control/socket_place.hpp"

#include "tests/runtime/control/runtime_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>

using namespace penstock;
using namespace penstock::control;
using penstock::testing::runtime_folder;

TEST_CASE("no session takes over another's live socket, however many sessions of one name a process has") {
  const runtime_folder here;
  std::vector<bound_socket> sessions;
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    auto bound = bind_session_socket("photos", 17);
    REQUIRE(bound);
    CHECK(bound->renamed == (i > 0));
    names.insert(bound->path.stem().string());
    sessions.push_back(std::move(*bound));
  }
  CHECK(names == std::set<std::string>{"photos", "photos-17", "photos-17-2", "photos-17-3", "photos-17-4"});
  for (const found_session& s : find_sessions()) CHECK(s.alive);
  CHECK(find_sessions().size() == 5);
}

TEST_CASE("a socket whose session is gone is replaced") {
  const runtime_folder here;
  REQUIRE(bind_session_socket("photos", 17));  // closed at once; its file remains
  const auto next = bind_session_socket("photos", 18);
  REQUIRE(next);
  CHECK_FALSE(next->renamed);
  CHECK(remove_dead_sockets() == 0);
}

TEST_CASE(
    "a folder that another process keeps locked delays a start until a deadline, and the error says so") {
  const runtime_folder here;
  const auto folder = make_socket_folder();
  REQUIRE(folder);
  const unique_fd holder(::open(folder->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::flock(holder.get(), LOCK_EX) == 0);
  const auto begin = std::chrono::steady_clock::now();
  const auto refused = bind_session_socket("photos", 17);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::timed_out);
  CHECK(refused.error().message.find("has been locked for 200 ms") != std::string::npos);
  CHECK(remove_dead_sockets() == 0);
  CHECK(std::chrono::steady_clock::now() - begin < 20 * folder_lock_deadline);
  REQUIRE(::flock(holder.get(), LOCK_UN) == 0);
  CHECK(bind_session_socket("photos", 17));
}

TEST_CASE("a file next to its socket gives the rank of a session for as long as the session lives") {
  const runtime_folder here;
  const rank_note second{"launch-2 \"a\"", "photos", 1};
  const auto first = bind_session_socket("photos-rank0", 17, rank_note{"launch-1", "photos", 0});
  auto other = bind_session_socket("photos-rank0", 18, second);
  REQUIRE((first && other));
  auto found = find_sessions();
  REQUIRE(found.size() == 2);
  CHECK(found[0].rank == rank_note{"launch-1", "photos", 0});
  CHECK(found[1].name == "photos-rank0-18");
  CHECK(found[1].rank == second);
  // A killed session's file is removed, or replaced by the next session that is a rank.
  other->listener.reset();
  const auto next = bind_session_socket("photos-rank0-18", 19);
  REQUIRE(next);
  CHECK_FALSE(find_sessions()[1].rank);
  REQUIRE(bind_session_socket("gone", 20, second));
  CHECK(remove_dead_sockets() == 1);
  CHECK_FALSE(std::filesystem::exists(socket_folder() / "gone.rank"));
  remove_session_socket(first->path);
  CHECK_FALSE(std::filesystem::exists(socket_folder() / "photos-rank0.rank"));
}

TEST_CASE("the process of a session is known even when it accepts no connection and its backlog is full") {
  const runtime_folder here;
  const auto first = bind_session_socket("photos", 17);
  const auto second = bind_session_socket("photos", 18);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(process_behind(first->path) == ::getpid());  // whoever listens
  const auto now = std::chrono::system_clock::now();
  const auto record_of_first = session_record::create("photos", 17, now);
  const auto record_of_second = session_record::create("photos", 18, now);
  std::vector<unique_fd> waiting;
  for (const bound_socket* s : {&*first, &*second}) {
    while (auto connected = connect_to(s->path)) {
      waiting.push_back(std::move(*connected));
      REQUIRE(waiting.size() < 1000);
    }
  }
  CHECK(process_behind(first->path) == 17);
  CHECK(process_behind(second->path) == 18);
  CHECK(process_behind(socket_folder() / "nobody.sock") == 0);
}
